"""The noise of a model as sections of a page: the paper's table, every option, the staircase."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from holdfast.noise.vision import combine
from holdfast.noise.vision.result import ModelNoise, Row, Suite
from holdfast.noise.vision.tables import METRICS, models_table, options_table, words
from holdfast.report.charts.bars import Stair, staircase
from holdfast.report.charts.forest import Group, Spot, forest
from holdfast.report.parts import Figure, Section, scroll
from holdfast.report.tables import Cell, Column, Table, many, to_html
from holdfast.stages.families import families

_READING = (
    "A dot is what one option costs in points of the metric, its line the paired 95 % interval over images. "
    "Grey: the interval holds 0, so it may be the choice of images."
)


def noise_sections(suite: Suite) -> list[Section]:
    """The table of all models, then each one's options."""
    table = models_table(suite)
    columns = [replace(head, name=head.name.replace("Δ ", "Δ\u00a0")) for head in table.heads]
    body = scroll(to_html(Table(columns, table.rows)), "System noise")
    sections = [Section("noise", "System noise", (Figure("", body, wide=True),), f"{table.caption}.")]
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
        Figure(f"{metric} lost, {many(model.images, 'image')}", chart, _READING, wide=True),
        Figure("", body, _calibrated(model), wide=True),
    )
    return Section(identifier, title, figures, said)


def _calibrated(model: ModelNoise) -> str:
    return f"Integer precisions are calibrated on {model.calibration}." if model.calibration else ""


def _spot(row: Row, combined: bool = False) -> Spot:
    name = "worst of each" if combined else row.option
    if row.outcome != "measured":
        return Spot(name, None, words=row.outcome, note=f"{row.outcome}: {row.note}")
    note = f"Δ {row.drop:z.2f} [{row.low:z.2f}, {row.high:z.2f}]; {row.changed} of {row.images} changed"
    said = words(row, combined)
    return Spot(name, row.drop, row.low, row.high, note=f"{note}; {said}" if said else note)


def lead(model: ModelNoise) -> str:
    """What matters most, in a sentence or two."""
    metric, worst = METRICS.get(model.metric, model.metric), model.worst
    said = f"{metric} is {100 * model.clean:.2f} where the system is the one it was trained with."
    measured = [r for r in model.rows if r.outcome == "measured"]
    if not measured:
        return f"{said} No noise that could be run here changes it."
    if worst is None or worst.drop is None:
        return f"{said} Of {many(len(measured), 'noise')} that could be run none changes a single prediction."
    sure = "" if worst.clear else ", which may be the choice of images"
    said += f" The worst single noise is {worst.label}: {worst.drop:z.2f} points{sure}."
    if model.combined is not None and model.combined.drop is not None:
        said += f" The worst of every kind together cost {model.combined.drop:z.2f}."
    return said


def staircase_section(made: combine.Staircase, images: int) -> Section:
    """The build-up of noises, drawn and in a table; `images` is how many the clean metric is of."""
    metric = METRICS.get(made.metric, made.metric)
    fewer = _fewer(made, images)
    chart = staircase(
        Stair("clean", "", 100 * made.clean), [_stair(s, fewer.get(s.added, "")) for s in made.steps],
        title="Noise upon noise", y_label=metric,
        desc=f"{metric} after each noise is added to those before it, the most harmful first.",
    )  # fmt: skip
    notes = [f"{added}: {said}: its column is what it adds on these." for added, said in fewer.items()]
    notes += [f"Could not be added: {'; '.join(made.left_out)}"] if made.left_out else []
    figures = (
        Figure("", scroll(chart, "Noise upon noise"), " ".join(notes), wide=True),
        Figure("", scroll(to_html(staircase_table(made)), "Noise upon noise, in numbers"), wide=True),
    )
    return Section("staircase", "Noise upon noise", figures, combine.words(made))


def _stair(step: combine.Step, fewer: str) -> Stair:
    """A step as it is drawn; what it changes is what it adds, which is in points lost."""
    family, option = step.added.split("=", 1)
    note = f"adds {step.extra:z.2f}, alone {step.alone:z.2f}: {step.effect}"
    if not fewer:
        return Stair(family, option, 100 * step.value, -step.extra, note)
    images = f"({many(step.images, 'image')})"
    return Stair(family, option, 100 * step.value, -step.extra, f"{note}; {fewer}", images)


def _fewer(made: combine.Staircase, images: int) -> dict[str, str]:
    """The steps that are measured on fewer images than the one before, with that in words."""
    counts = [images, *(s.images for s in made.steps)]
    return {
        s.added: f"measured on {many(s.images, 'image')}, {before - s.images} fewer than the step before"
        for s, before in zip(made.steps, counts, strict=False)
        if s.images < before
    }


def staircase_table(made: combine.Staircase) -> Table:
    """Every step of the build-up in numbers."""
    metric = METRICS.get(made.metric, made.metric)
    columns: list[Column | str] = ["step", "added", Column(metric, 2), Column("Δ so far", 2)]
    columns += [Column("adds", 2), "95 % interval", Column("alone", 2), "changed", "effect"]
    rows: list[list[Cell]] = [
        [
            place, s.added, 100 * s.value, s.drop, s.extra, f"[{s.extra_low:z.2f}, {s.extra_high:z.2f}]",
            s.alone, f"{s.changed} of {s.images}", s.effect,
        ]
        for place, s in enumerate(made.steps, 1)
    ]  # fmt: skip
    return Table(columns, rows)


def staircase_csv(made: combine.Staircase) -> Table:
    """The same with plain numbers alone, each in a column of its own, and what they are of."""
    columns = ["model", "data", "metric", "clean", "step", "added", "value", "drop", "low", "high", "adds"]
    columns += ["adds low", "adds high", "alone", "beyond low", "beyond high", "changed", "images", "effect"]
    rows: list[list[Cell]] = [
        [
            made.model, made.data, made.metric, 100 * made.clean, place, s.added, 100 * s.value, s.drop,
            s.low, s.high, s.extra, s.extra_low, s.extra_high, s.alone, s.beyond_low, s.beyond_high,
            s.changed, s.images, s.effect,
        ]
        for place, s in enumerate(made.steps, 1)
    ]  # fmt: skip
    return Table(columns, rows)


def sections_of(suite: Suite, stairs: Sequence[combine.Staircase]) -> list[Section]:
    """All sections about noise."""
    images = {model.model: model.images for model in suite.models}
    return [*noise_sections(suite), *(staircase_section(s, images[s.model]) for s in stairs)]
