"""A noise suite as one page: what matters, the paper's table, every option, the staircase, how it was run."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from holdfast.noise import page as pages
from holdfast.noise.vision.combine import Staircase, Step
from holdfast.noise.vision.combine import words as combination_words
from holdfast.noise.vision.result import ModelNoise, Row, Suite
from holdfast.noise.vision.tables import metric_name, models_table, options_table, staircase_table, words
from holdfast.report.charts.bars import WaterfallStep, staircase
from holdfast.report.charts.forest import ForestGroup, ForestPoint, forest
from holdfast.report.html import write_page
from holdfast.report.parts import Alert, Card, Figure, Section, about_section, scroll, table_figure
from holdfast.report.tables import Table, many
from holdfast.stages.families import families

_READING = (
    "A dot is what one option costs in points of the metric, its line the paired 95 % interval over images. "
    "Grey: the interval holds 0, so it may be the choice of images."
)


def _chart(model: ModelNoise) -> Figure:
    titles = {f.name: f.title for f in families()}
    names = dict.fromkeys(r.family for r in model.rows)
    groups = [ForestGroup(titles.get(n, n), [_spot(r) for r in model.of(n)]) for n in names]
    if model.combined is not None:
        groups.append(ForestGroup("Combined", [_spot(model.combined, combined=True)]))
    metric = metric_name(model)
    chart = forest(groups, title=f"{metric} lost to each option", desc=_READING)
    return Figure(f"{metric} lost, {many(model.images, 'image')}", chart, _READING, wide=True)


def _spot(row: Row, combined: bool = False) -> ForestPoint:
    name = "worst of each" if combined else row.option
    if row.outcome != "measured":
        return ForestPoint(name, None, words=row.outcome, note=f"{row.outcome}: {row.note}")
    return pages.drop_spot(name, row, row.images, words(row, combined))


def lead(model: ModelNoise) -> str:
    """What matters most, in a sentence or two."""
    metric, worst = metric_name(model), model.worst
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


def staircase_section(made: Staircase, images: int) -> Section:
    """The build-up of noises, drawn and in a table; `images` is how many the clean metric is of."""
    metric = metric_name(made)
    counts = [images, *(s.images for s in made.steps)]
    fewer = {  # steps that are measured on fewer images than the one before
        s.added: f"measured on {many(s.images, 'image')}, {before - s.images} fewer than the step before"
        for s, before in zip(made.steps, counts, strict=False)
        if s.images < before
    }
    chart = staircase(
        WaterfallStep("clean", "", 100 * made.clean),
        [_stair(s, fewer.get(s.added, "")) for s in made.steps],
        title="Noise upon noise",
        y_label=metric,
        desc=f"{metric} after each noise is added to those before it, the most harmful first.",
    )
    notes = [f"{added}: {said}: its column is what it adds on these." for added, said in fewer.items()]
    notes += [f"Could not be added: {'; '.join(made.left_out)}"] if made.left_out else []
    figures = (
        Figure("", scroll(chart, "Noise upon noise"), " ".join(notes), wide=True),
        table_figure("", staircase_table(made), name="Noise upon noise, in numbers", wide=True),
    )
    return Section("staircase", "Noise upon noise", figures, combination_words(made))


def _stair(step: Step, fewer: str) -> WaterfallStep:
    """A step as it is drawn; what it changes is what it adds, which is in points lost."""
    family, option = step.added.split("=", 1)
    note = f"adds {step.extra:z.2f}, alone {step.alone:z.2f}: {step.effect}"
    more = (f"{note}; {fewer}", f"({many(step.images, 'image')})") if fewer else (note,)
    return WaterfallStep(family, option, 100 * step.value, -step.extra, *more)


def write(suite: Suite, out: Path, stairs: Sequence[Staircase] = ()) -> Path:
    """Write the page, whole or not at all, and return its path."""
    return write_page(page(suite, stairs), out, "noise.html")


def page(suite: Suite, stairs: Sequence[Staircase] = ()) -> str:
    """The suite as one self-contained HTML file."""
    models, table = suite.models, models_table(suite)
    columns = [replace(head, name=head.name.replace("Δ ", "Δ\u00a0")) for head in table.heads]
    body = table_figure("", Table(columns, table.rows), name="System noise", wide=True)
    sections = [Section("noise", "System noise", (body,), f"{table.caption}.")]
    for place, model in enumerate(models):
        said = lead(model) if len(models) > 1 else ""
        sections.append(pages.options_section(suite, place, _chart(model), options_table(model), said))
    images = {m.model: m.images for m in models}
    sections += [staircase_section(s, images[s.model]) for s in stairs]
    several = " ".join(f"{m.model}: {lead(m)}" for m in models[:3])
    warnings = [Alert(f"{m.model}: {line}", "about") for m in models for line in m.warnings]
    return pages.suite_page(
        suite,
        suite.data,
        {"images": models[0].images, "options run": sum(r.drop is not None for m in models for r in m.rows)},
        _cards,
        _card,
        verdict=several if len(models) > 1 else lead(models[0]),
        rule=models[0].rule,
        alerts=(*warnings, *pages.failed_alerts(suite, "image")),
        sections=(*sections, _about(suite)),
        layout="noise",
    )


def _cards(model: ModelNoise) -> list[Card]:
    metric = metric_name(model)
    worst, combined = model.worst, model.combined
    shown = [Card(metric, 100 * model.clean, "clean: the system it was trained with", 2)]
    if worst is not None and worst.drop is not None:
        shown.append(Card("worst single noise", f"{worst.drop:z.2f}", f"points lost: {worst.label}"))
        shown.append(Card("predictions changed by it", worst.changed, f"of {many(worst.images, 'image')}"))
    if combined is not None and combined.drop is not None:
        shown.append(Card("worst of each together", f"{combined.drop:z.2f}", "points lost"))
    return shown


def _card(model: ModelNoise) -> Card:
    """One of several models: its metric as trained, and what the worst single noise takes from it."""
    metric, worst = metric_name(model), model.worst
    cost = f"; at worst {worst.drop:z.2f} less: {worst.label}" if worst and worst.drop is not None else ""
    return Card(model.model, f"{100 * model.clean:.2f}", f"{metric} clean{cost}")


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
