"""The page of a language suite: summary, the paper's table, every set in detail, how it was run."""

from pathlib import Path

from holdfast.metrics.points import lost_text, significance
from holdfast.noise.language import result
from holdfast.noise.page import loss_card, loss_point, suite_page
from holdfast.noise.suite import outcome_text
from holdfast.report.charts.forest import ForestGroup, ForestPoint, forest
from holdfast.report.html import write_page
from holdfast.report.parts import Alert, Card, Figure, Section, about_section, joined, table_figure
from holdfast.report.tables import Cell, Table

_READING = (
    "Each dot shows the points of accuracy lost by one precision, each line the paired 95% interval over "
    "questions. Grey: not significant (the 95% interval contains 0)."
)


def write(suite: result.LanguageSuite, out: Path) -> Path:
    """Write the page, whole or not at all, and return its path."""
    return write_page(page(suite), out, "noise.html")


def page(suite: result.LanguageSuite) -> str:
    """The suite as one self-contained HTML file."""
    sets = suite.models[0].sets
    rules = dict.fromkeys(by.rule for of in sets for by in of.rules)
    return suite_page(
        suite,
        joined(suite.sets),
        {"questions": sum(s.questions for s in sets), "precisions": ", ".join(suite.precisions)},
        _cards,
        _card,
        verdict=" ".join(lead(m) for m in suite.models),
        rule="; ".join(f"{rule}: {result.RULES[rule]}" for rule in rules),
        alerts=_alerts(suite),
        sections=(_table(suite), *_details(suite), _about(suite)),
    )


def lead(model: result.LanguageNoise) -> str:
    """The main result of a model in a sentence, and what to do next."""
    worst = result.worst_of(model.sets)
    if worst is None:
        return f"{model.model}: no precision could be measured."
    of, row = worst
    if not any(r.changed for s in model.sets for r in s.default.rows):
        return f"{model.model}: no precision changes an answer by the default rules."
    if not row.points_lost or row.points_lost <= 0:
        return f"{model.model}: no precision loses accuracy on any set."
    next_step = f" Next: choose another precision than {row.precision}." if row.clear else ""
    return (
        f"{model.model}: the worst precision is {row.precision} on {of.data}, {row.points_lost:z.2f} points "
        f"lost of {100 * of.default.clean:.2f} ({significance(row.low, row.high, row.questions)}); "
        f"{row.changed} of {row.questions} answers change.{next_step}"
    )


def _cards(model: result.LanguageNoise) -> list[Card]:
    cards = []
    for of in model.sets[:4]:
        note = f"accuracy at fp32, {of.default.rule}, n = {of.questions}"
        cards.append(Card(of.data, f"{100 * of.default.clean:.2f}", note))
    if worst := result.worst_of(model.sets):
        of, row = worst
        note = f"{row.precision} on {of.data}, n = {row.questions}"
        cards.append(loss_card("worst precision", row, note))
    return cards


def _card(model: result.LanguageNoise) -> Card:
    worst = result.worst_of(model.sets)
    if worst is None:
        return Card(model.model, "n/a", "no precision could be measured")
    of, row = worst
    number, _, unit = lost_text(row.points_lost or 0.0).partition(" ")
    note = f"{unit} at {row.precision} on {of.data} (worst), n = {row.questions}"
    return Card(model.model, number, note)


def _alerts(suite: result.LanguageSuite) -> tuple[Alert, ...]:
    rows = [(m.model, s.data, r) for m in suite.models for s in m.sets for r in s.default.rows]
    texts = [
        f"{model} does not run at {row.precision} on {data}"
        for model, data, row in rows
        if row.outcome == "impossible"
    ]
    counts = [(m.model, sum(len(s.failed) for s in m.sets)) for m in suite.models]
    failed = "questions without a likelihood at fp32, counted as wrong"
    texts += [f"{model}: {count} {failed}" for model, count in counts if count]
    return tuple(Alert(text, "table") for text in texts)


def _table(suite: result.LanguageSuite) -> Section:
    table = result.models_table(suite)
    # Spaces, so that a line breaks between numbers.
    rows = [[name, *(str(cell).replace("/", " / ") for cell in cells)] for name, *cells in table.rows]
    figure = table_figure("", Table(table.columns, rows), name="Table", wide=True)
    return Section("table", "Precision", (figure,), f"{table.caption}.")


def _details(suite: result.LanguageSuite) -> list[Section]:
    sections = []
    for place, model in enumerate(suite.models, 1):
        groups = [
            ForestGroup(f"{s.data} ({s.default.rule})", [_point(r) for r in s.default.rows])
            for s in model.sets
        ]
        chart = forest(groups, title=f"Points of accuracy lost by {model.model}", desc=_READING)
        figures = [Figure("Points of accuracy lost", chart, _READING, wide=True)]
        for of in model.sets:
            calibration = [f"static int8 calibrated on {of.calibration}"] if of.calibration else []
            note = "; ".join([result.caption(of), *of.notes, *calibration])
            figures.append(table_figure(of.data, result.numbers_table(of), f"{note}.", wide=True))
        how = table_figure("Conversion to each precision", result.how_table(model), wide=True, sortable=False)
        title = f"Details: {model.model}" if len(suite.models) > 1 else "Details"
        sections.append(Section(f"details-{place}", title, (*figures, how), "; ".join(model.notes)))
    return sections


def _point(row: result.PrecisionRow) -> ForestPoint:
    note = result.notes_of(row)
    if row.points_lost is None:
        return ForestPoint(row.precision, None, words=outcome_text(row), note=note)
    return loss_point(row.precision, row, row.questions, note)


def _about(suite: result.LanguageSuite) -> Section:
    models = Table(["model", "sha256"], [[m.model, m.sha256[:16]] for m in suite.models])
    rows: list[list[Cell]] = [[s.data, s.kind, s.questions, s.sha256[:16]] for s in suite.models[0].sets]
    tables = {"Models": models, "Question sets": Table(["set", "kind", "questions", "sha256"], rows)}
    figures = [table_figure(name, table, sortable=False) for name, table in tables.items()]
    return about_section(figures, suite.versions)
