"""A language suite as one page: what matters, the paper's table, every set in detail, how it was run."""

from pathlib import Path

from holdfast.noise.language import result
from holdfast.noise.page import drop_spot, suite_page
from holdfast.report.charts.forest import ForestGroup, ForestPoint, forest
from holdfast.report.html import write_page
from holdfast.report.parts import Alert, Card, Figure, Section, about_section, joined, table_figure
from holdfast.report.tables import Cell, Table

_READING = (
    "A dot is what one precision costs in points of accuracy, its line the paired 95 % interval over "
    "questions. Grey: the interval holds 0, so it may be the choice of questions."
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
    """What matters most of a model, in a sentence."""
    worst = worst_of(model)
    if worst is None:
        return f"{model.model}: no precision could be measured."
    of, row = worst
    if not any(r.changed for s in model.sets for r in s.default.rows):
        return f"{model.model}: no precision changes a single answer by the table's rules."
    if not row.drop or row.drop <= 0:
        return f"{model.model}: no precision costs accuracy on any set."
    sure = "" if row.clear else ", which may be the choice of questions"
    accuracy = 100 * of.default.clean
    return (
        f"{model.model}: the worst precision is {row.precision} on {of.data}, {row.drop:z.2f} points of "
        f"{accuracy:.2f}{sure}; {row.changed} of {row.questions} answers change."
    )


def worst_of(model: result.LanguageNoise) -> tuple[result.SetNoise, result.Row] | None:
    """The set and the precision that cost most by the set's own rule; None if nothing was measured."""
    found = [(s, r) for s in model.sets for r in s.default.rows if r.drop is not None]
    return max(found, key=lambda one: (one[1].drop or 0.0, one[1].clear, one[1].changed or 0), default=None)


def _cards(model: result.LanguageNoise) -> list[Card]:
    shown = [
        Card(of.data, f"{100 * of.default.clean:.2f}", f"accuracy at fp32, {of.default.rule}")
        for of in model.sets[:4]
    ]
    worst = worst_of(model)
    if worst is not None:
        of, row = worst
        shown.append(Card("worst precision", f"{row.drop:z.2f}", f"points lost: {row.precision}, {of.data}"))
    return shown


def _card(model: result.LanguageNoise) -> Card:
    """One of several models: what its worst precision costs."""
    worst = worst_of(model)
    if worst is None:
        return Card(model.model, "n/a", "no precision could be measured")
    of, row = worst
    return Card(model.model, f"{row.drop:z.2f}", f"points lost at worst: {row.precision}, {of.data}")


def _alerts(suite: result.LanguageSuite) -> tuple[Alert, ...]:
    lost = [
        f"{m.model} cannot be run at {r.precision} on {s.data}"
        for m in suite.models
        for s in m.sets
        for r in s.default.rows
        if r.outcome == "impossible"
    ]
    lost += [
        f"{m.model}: {count} without a likelihood at fp32, counted as wrong"
        for m in suite.models
        if (count := sum(len(s.failed) for s in m.sets))
    ]
    return tuple(Alert(text, "table") for text in lost)


def _table(suite: result.LanguageSuite) -> Section:
    table = result.models_table(suite)
    # Spaces, so that a line breaks between numbers.
    rows = [[name, *(str(cell).replace("/", " / ") for cell in cells)] for name, *cells in table.rows]
    figure = table_figure("", Table(table.columns, rows), name="Table", wide=True)
    return Section("table", "Precision", (figure,), f"{table.caption}.")


def _details(suite: result.LanguageSuite) -> list[Section]:
    sections = []
    for place, model in enumerate(suite.models, 1):
        sets = [(f"{s.data} ({s.default.rule})", s.default.rows) for s in model.sets]
        groups = [ForestGroup(name, [_spot(r) for r in rows]) for name, rows in sets]
        chart = forest(groups, title=f"Accuracy lost by {model.model}", desc=_READING)
        figures = [Figure("Accuracy lost", chart, _READING, wide=True)]
        for of in model.sets:
            calibration = [f"static 8 bits see {of.calibration}"] if of.calibration else []
            said = "; ".join([result.caption(of), *of.notes, *calibration])
            figures.append(table_figure(of.data, result.numbers_table(of), f"{said}.", wide=True))
        how = table_figure("How each precision was made", result.how_table(model), wide=True, sortable=False)
        title = f"In detail: {model.model}" if len(suite.models) > 1 else "In detail"
        sections.append(Section(f"details-{place}", title, (*figures, how), "; ".join(model.notes)))
    return sections


def _spot(row: result.Row) -> ForestPoint:
    if row.drop is None:
        return ForestPoint(row.precision, None, words=row.outcome, note=result.words(row))
    return drop_spot(row.precision, row, row.questions, result.words(row))


def _about(suite: result.LanguageSuite) -> Section:
    models = Table(["model", "sha256"], [[m.model, m.sha256[:16]] for m in suite.models])
    rows: list[list[Cell]] = [[s.data, s.kind, s.questions, s.sha256[:16]] for s in suite.models[0].sets]
    tables = {"Models": models, "Sets": Table(["set", "kind", "questions", "sha256"], rows)}
    figures = [table_figure(name, table, sortable=False) for name, table in tables.items()]
    return about_section(figures, suite.versions)
