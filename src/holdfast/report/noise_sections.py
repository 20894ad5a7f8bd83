"""The noise of a model as sections of a page: the paper's table, every option, the staircase."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.noise.families import families
from holdfast.report.about import scroll
from holdfast.report.charts.forest import Group, Spot, forest
from holdfast.report.charts.staircase import Stair, staircase
from holdfast.report.noise_tables import METRICS, models_table, options_table, words
from holdfast.report.parts import Figure, Section
from holdfast.report.tables import Table, to_html
from holdfast.run.noise import combine
from holdfast.run.noise.result import ModelNoise, Row, Suite

_READING = (
    "A dot is what one option costs in points of the metric, its line the paired 95 % interval over images. "
    "Grey: the interval holds 0, so it may be the choice of images."
)


def noise_sections(suite: Suite, told: bool = True) -> list[Section]:
    """The table of all models, then each one's options; what matters most is said unless `told` already."""
    table = models_table(suite)
    body = scroll(to_html(Table(table.columns, table.rows)), "System noise")
    said = f"{table.caption}." if told else f"{lead(suite.models[0])} {table.caption}."
    sections = [Section("noise", "System noise", (Figure("", body, wide=True),), said)]
    several = len(suite.models) > 1
    for place, model in enumerate(suite.models):
        identifier = f"options-{place + 1}" if several else "options"
        title = f"Option by option: {model.model}" if several else "Option by option"
        sections.append(options_section(model, identifier, title, lead(model) if several else ""))
    return sections


def options_section(model: ModelNoise, identifier: str, title: str, said: str) -> Section:
    """Every option of a model, drawn and in a table."""
    titles = {f.name: f.title for f in families()}
    names = dict.fromkeys(r.family for r in model.rows)
    groups = [Group(titles.get(n, n), [_spot(r) for r in model.of(n)]) for n in names]
    if model.combined is not None:
        groups.append(Group("Combined", [_spot(model.combined, combined=True)]))
    metric = METRICS.get(model.metric, model.metric)
    chart = forest(groups, title=f"{metric} lost to each option", desc=_READING)
    table = options_table(model)
    body = scroll(to_html(Table(table.columns, table.rows)), "Option by option")
    figures = (
        Figure(f"{metric} lost, {model.images} images", chart, _READING, wide=True),
        Figure("", body, _calibrated(model), wide=True),
    )
    return Section(identifier, title, figures, said)


def _calibrated(model: ModelNoise) -> str:
    return f"Integer precisions are calibrated on {model.calibration}." if model.calibration else ""


def _spot(row: Row, combined: bool = False) -> Spot:
    name = "worst of each" if combined else row.option
    if row.outcome != "measured":
        return Spot(name, None, words=row.outcome, note=f"{row.outcome}: {row.note}")
    note = f"Δ {row.drop:.2f} [{row.low:.2f}, {row.high:.2f}]; {row.changed} of {row.images} changed"
    said = words(row, combined)
    return Spot(name, row.drop, row.low, row.high, note=f"{note}; {said}" if said else note)


def lead(model: ModelNoise) -> str:
    """What matters most, in a sentence or two."""
    metric, worst = METRICS.get(model.metric, model.metric), model.worst
    said = f"{metric} is {100 * model.clean:.2f} where the system is the one it was trained with."
    if worst is None or worst.drop is None:
        return f"{said} No noise that could be run here changes it."
    measured = [r for r in model.rows if r.outcome == "measured"]
    if not any(r.changed or r.drop for r in measured):
        return f"{said} None of the {len(measured)} noises that were run changes a single prediction."
    sure = "" if worst.clear else ", which may be the choice of images"
    said += f" The worst single noise is {worst.label}: {worst.drop:.2f} points{sure}."
    if model.combined is not None and model.combined.drop is not None:
        said += f" The worst of every kind together cost {model.combined.drop:.2f}."
    return said


def staircase_section(made: combine.Staircase) -> Section:
    """The build-up of noises, drawn and in a table."""
    metric = METRICS.get(made.metric, made.metric)
    stairs = [
        Stair(family, option, 100 * s.value, f"adds {s.extra:.2f}, alone {s.alone:.2f}: {s.effect}")
        for s in made.steps
        for family, option in [s.added.split("=", 1)]
    ]
    chart = staircase(
        Stair("clean", "", 100 * made.clean), stairs, title="Noise upon noise", y_label=metric,
        desc=f"{metric} after each noise is added to those before it, the most harmful first.",
    )  # fmt: skip
    note = "; ".join(made.left_out)
    figures = (
        Figure(
            "", scroll(chart, "Noise upon noise"), f"Could not be added: {note}" if note else "", wide=True
        ),
        Figure("", scroll(to_html(staircase_table(made)), "Noise upon noise, in numbers"), wide=True),
    )
    return Section("staircase", "Noise upon noise", figures, combine.words(made))


def staircase_table(made: combine.Staircase) -> Table:
    """Every step of the build-up in numbers."""
    metric = METRICS.get(made.metric, made.metric)
    columns = ["step", "added", metric, "Δ so far", "adds", "95 % interval", "alone", "changed", "effect"]
    rows = [
        [
            place, s.added, f"{100 * s.value:.2f}", f"{s.drop:.2f}", f"{s.extra:.2f}",
            f"[{s.extra_low:.2f}, {s.extra_high:.2f}]", f"{s.alone:.2f}", f"{s.changed} of {s.images}",
            s.effect,
        ]
        for place, s in enumerate(made.steps, 1)
    ]  # fmt: skip
    return Table(columns, rows)


def sections_of(suite: Suite, stairs: Sequence[combine.Staircase] = (), told: bool = True) -> list[Section]:
    """All sections about noise."""
    return [*noise_sections(suite, told), *(staircase_section(s) for s in stairs)]
