"""A noise suite as one page: what matters, the paper's table, every option, the staircase, how it was run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from holdfast.noise.page import about_section, suite_page, table_figure
from holdfast.noise.vision import combine
from holdfast.noise.vision.combine import Staircase
from holdfast.noise.vision.result import ModelNoise, Row, Suite
from holdfast.noise.vision.tables import METRICS, models_table, options_table, staircase_table, words
from holdfast.report.charts.bars import Stair, staircase
from holdfast.report.charts.forest import Group, Spot, forest
from holdfast.report.html import write_page
from holdfast.report.parts import Alert, Card, Figure, Section, scroll
from holdfast.report.tables import Table, many
from holdfast.stages.families import families

_READING = (
    "A dot is what one option costs in points of the metric, its line the paired 95 % interval over images. "
    "Grey: the interval holds 0, so it may be the choice of images."
)


def noise_sections(suite: Suite) -> list[Section]:
    """The table of all models, then each one's options."""
    table = models_table(suite)
    columns = [replace(head, name=head.name.replace("Δ ", "Δ\u00a0")) for head in table.heads]
    body = table_figure("", Table(columns, table.rows), name="System noise", wide=True)
    sections = [Section("noise", "System noise", (body,), f"{table.caption}.")]
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
    note = f"Integer precisions are calibrated on {model.calibration}." if model.calibration else ""
    figures = (
        Figure(f"{metric} lost, {many(model.images, 'image')}", chart, _READING, wide=True),
        table_figure("", options_table(model), note, name="Option by option", wide=True),
    )
    return Section(identifier, title, figures, said)


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
        table_figure("", staircase_table(made), name="Noise upon noise, in numbers", wide=True),
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


def sections_of(suite: Suite, stairs: Sequence[combine.Staircase]) -> list[Section]:
    """All sections about noise."""
    images = {model.model: model.images for model in suite.models}
    return [*noise_sections(suite), *(staircase_section(s, images[s.model]) for s in stairs)]


def write(suite: Suite, out: Path, stairs: Sequence[Staircase] = ()) -> Path:
    """Write the page, whole or not at all, and return its path."""
    return write_page(page(suite, stairs), out, "noise.html")


def page(suite: Suite, stairs: Sequence[Staircase] = ()) -> str:
    """The suite as one self-contained HTML file."""
    first, several = suite.models[0], len(suite.models) > 1
    return suite_page(
        [m.model for m in suite.models],
        suite.data,
        facts=_facts(suite),
        verdict=" ".join(f"{m.model}: {lead(m)}" for m in suite.models[:3]) if several else lead(first),
        cards=tuple(map(_card, suite.models[:6])) if several else _cards(first),
        rule=first.rule,
        command=suite.command,
        alerts=_alerts(suite),
        sections=(*sections_of(suite, stairs), _about(suite)),
        layout="noise",
    )


def _facts(suite: Suite) -> tuple[tuple[str, str], ...]:
    options = sum(r.drop is not None for m in suite.models for r in m.rows)
    return (
        ("images", str(suite.models[0].images)),
        ("models", str(len(suite.models))),
        ("options run", str(options)),
        ("made", suite.created),
    )


def _cards(model: ModelNoise) -> tuple[Card, ...]:
    metric = METRICS.get(model.metric, model.metric)
    worst, combined = model.worst, model.combined
    shown = [Card(metric, 100 * model.clean, "clean: the system it was trained with", 2)]
    if worst is not None and worst.drop is not None:
        shown.append(Card("worst single noise", f"{worst.drop:z.2f}", f"points lost: {worst.label}"))
        shown.append(Card("predictions changed by it", worst.changed, f"of {many(worst.images, 'image')}"))
    if combined is not None and combined.drop is not None:
        shown.append(Card("worst of each together", f"{combined.drop:z.2f}", "points lost"))
    return tuple(shown)


def _card(model: ModelNoise) -> Card:
    """One of several models: its metric as trained, and what the worst single noise takes from it."""
    metric, worst = METRICS.get(model.metric, model.metric), model.worst
    cost = f"; at worst {worst.drop:z.2f} less: {worst.label}" if worst and worst.drop is not None else ""
    return Card(model.model, f"{100 * model.clean:.2f}", f"{metric} clean{cost}")


def _alerts(suite: Suite) -> tuple[Alert, ...]:
    found = [Alert(f"{m.model}: {line}", "about") for m in suite.models for line in m.warnings]
    lost = sum(len(m.failed) for m in suite.models)
    said = f"{many(lost, 'image')} failed and {'is' if lost == 1 else 'are'} not in the numbers"
    return (*found, *([Alert(said, "about")] if lost else []))


def _about(suite: Suite) -> Section:
    stages = [[m.model, *m.pipeline.values()] for m in suite.models]
    clean = table_figure(
        "Clean pipeline",
        Table(["model", *suite.models[0].pipeline], stages),
        "What every option is compared with.",
        name="The clean pipeline",
        wide=True,
        sortable=False,
    )
    failed = [[line] for m in suite.models for line in m.failed]
    lost = table_figure("Images that failed", Table(["failed"], failed), name="Failed", sortable=False)
    return about_section([clean], suite.versions, *([lost] if failed else []))
