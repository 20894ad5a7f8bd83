"""The page of a noise suite: summary, the paper's table, every option, the combination, how it was run."""

from collections.abc import Sequence
from pathlib import Path

from holdfast.evaluate.difference import COUNTED
from holdfast.metrics.points import facing, interval_text, lost_text, significance
from holdfast.noise import page as pages
from holdfast.noise.suite import CORRUPTIONS, outcome_text
from holdfast.noise.vision.combine import Combination, CombineStep, describe_combination
from holdfast.noise.vision.corruptions import corruption_cards, corruption_section, corruption_text
from holdfast.noise.vision.result import ModelNoise, NoiseRow, NoiseSuite
from holdfast.noise.vision.tables import (
    chance_of,
    combination_table,
    metric_label,
    models_table,
    notes_of,
    options_table,
    slice_tables,
)
from holdfast.report.charts.bars import WaterfallStep, staircase
from holdfast.report.charts.forest import ForestGroup, ForestPoint, forest
from holdfast.report.html import write_page
from holdfast.report.parts import Alert, Card, Figure, Section, about_section, scroll, table_figure
from holdfast.report.tables import Table, many
from holdfast.stages.families import families

_READING = (
    "Each dot shows the points lost by one option, each line the paired 95% interval over images. "
    "Grey: not significant (the 95% interval contains 0)."
)


def _chart(model: ModelNoise) -> Figure:
    titles = {f.name: f.title for f in families()}
    names = dict.fromkeys(r.family for r in model.rows if r.family != CORRUPTIONS or not model.corruptions)
    groups = [ForestGroup(titles.get(n, n), [_point(r) for r in model.of(n)]) for n in names]
    if model.combined is not None:
        groups.append(ForestGroup("Combined", [_point(model.combined, combined=True)]))
    metric = metric_label(model)
    chart = forest(groups, title=f"Points lost by each option, {metric}", desc=_READING)
    return Figure(f"Points lost, {metric}, n = {model.images}", chart, _READING, wide=True)


def _point(row: NoiseRow, combined: bool = False) -> ForestPoint:
    name = "worst of each" if combined else row.option
    if row.outcome != "measured":
        return ForestPoint(name, None, words=outcome_text(row), note=f"{outcome_text(row)}: {row.note}")
    return pages.loss_point(name, row, row.images, notes_of(row, combined))


def lead(model: ModelNoise) -> str:
    """The main result in a sentence or two, and what to do next."""
    worst = model.worst
    clean = f"{metric_label(model)} is {100 * model.clean:.2f}"
    text = f"{clean} with the training pipeline (n = {model.images})."
    if model.corruptions:
        text += f" {corruption_text(model, metric_label(model))}."
        if all(r.family == CORRUPTIONS for r in model.rows):
            return text
    system = [r for r in model.rows if r.family != CORRUPTIONS]
    measured = [r for r in system if r.outcome == "measured" and not r.hypothetical]
    if not measured and any(r.moves for r in model.rows):
        return f"{text} Only hypothetical options change it; no product has them."
    if not measured:
        return f"{text} No noise option that ran here changes it."
    if worst is None or worst.points_lost is None:
        return f"{text} No option that ran changes a prediction ({many(len(measured), 'option')})."
    words = significance(worst.low, worst.high, worst.images)
    text += f" Worst option: {worst.label}, {lost_text(worst.points_lost)}, {words}."
    if model.combined is not None and model.combined.points_lost is not None:
        text += f" Worst options of all families combined: {lost_text(model.combined.points_lost)}."
    if worst.clear and worst.points_lost > 0:
        check = f"check whether your deployment uses {worst.label}, for example with holdfast diagnose"
        text += f" Next: {check}."
    return text


def combination_section(combination: Combination, images: int) -> Section:
    """The combination of options, as a chart and in a table; `images` are those of the clean metric."""
    metric = metric_label(combination)
    counts = [images, *(s.images for s in combination.steps)]
    fewer = {  # steps that are measured on fewer images than the one before
        s.added: f"measured on {many(s.images, 'image')}, {before - s.images} fewer than the previous step"
        for s, before in zip(combination.steps, counts, strict=False)
        if s.images < before
    }
    steps = [_waterfall_step(s, fewer.get(s.added, "")) for s in combination.steps]
    chart = staircase(
        [WaterfallStep("clean", "", 100 * combination.clean), *steps],
        title="Combined noise, step by step",
        y_label=metric,
        desc=f"{metric} after each option is added to those before it, the most harmful first.",
    )
    notes = [f"{added}: {text}; its column shows this step on those images." for added, text in fewer.items()]
    notes += [f"Skipped: {'; '.join(combination.skipped)}"] if combination.skipped else []
    figures = (
        Figure(f"{metric}, n = {images}", scroll(chart, "Combined noise"), " ".join(notes), wide=True),
        table_figure("", combination_table(combination), name="Combined noise, in numbers", wide=True),
    )
    return Section("staircase", "Combined noise, step by step", figures, describe_combination(combination))


def _waterfall_step(step: CombineStep, fewer: str) -> WaterfallStep:
    family, option = step.added.split("=", 1)
    note = f"{lost_text(step.extra)} by this step, {lost_text(step.alone)} alone: {step.effect}"
    more = (f"{note}; {fewer}", f"({many(step.images, 'image')})") if fewer else (note,)
    return WaterfallStep(family, option, 100 * step.value, -step.extra, *more)


def write(suite: NoiseSuite, out: Path, combinations: Sequence[Combination] = ()) -> Path:
    """Write the page, whole or not at all, and return its path."""
    return write_page(page(suite, combinations), out, "noise.html")


def page(suite: NoiseSuite, combinations: Sequence[Combination] = ()) -> str:
    """The suite as one self-contained HTML file."""
    models, table = suite.models, models_table(suite)
    body = table_figure("", table, name="System noise", wide=True)
    sections = [Section("noise", "Points lost by noise family", (body,), f"{table.caption}.")]
    for place, model in enumerate(models):
        table = options_table(model)
        chance = chance_of(model)
        text = " ".join(filter(None, [lead(model), chance and f"{chance}."]))
        text = text if len(models) > 1 else f"{table.caption}."
        if model.corruptions:
            heading = pages.heading(suite, place, "corruptions", "System noise and common corruptions")
            sections.append(corruption_section(model, metric_label(model), heading))
        if table.rows:
            sections.append(pages.options_section(suite, place, _chart(model), table, text))
        sliced = tuple(table_figure("", t, name=t.caption, wide=True) for t in slice_tables(model))
        if sliced:
            sections.append(Section(*pages.heading(suite, place, "slices", "Slices of the data"), sliced))
    images = {m.model: m.images for m in models}
    sections += [combination_section(c, images[c.model]) for c in combinations]
    several = " ".join(f"{m.model}: {lead(m)}" for m in models[:3])
    warnings = [Alert(f"{m.model}: {line}", "about") for m in models for line in m.warnings]
    measured = sum(r.points_lost is not None for m in models for r in m.rows)
    return pages.suite_page(
        suite,
        suite.data,
        {"images": models[0].images, "options run": measured},
        _cards,
        _card,
        verdict=several if len(models) > 1 else lead(models[0]),
        rule=models[0].rule,
        alerts=(*warnings, *pages.failure_alerts(suite, "image")),
        sections=(*sections, _about(suite)),
        layout="noise",
    )


def _cards(model: ModelNoise) -> list[Card]:
    metric, worst, combined = metric_label(model), model.worst, model.combined
    cards = [Card(f"clean {metric}", 100 * model.clean, "training pipeline", 2, model.images)]
    cards += corruption_cards(model, metric)
    if worst is not None and worst.points_lost is not None:
        cards.append(_loss_card("worst option", worst, f"{worst.label}, "))
        counted = f"{COUNTED[model.task][0]} by {worst.label}"
        cards.append(Card(counted, f"{worst.changed} of {worst.images}", "images", n=worst.images))
    if combined is not None and combined.points_lost is not None:
        cards.append(_loss_card("combined", combined))
    return cards


def _loss_card(title: str, row: NoiseRow, about: str = "") -> Card:
    interval = interval_text(*facing(row.points_lost or 0.0, row.low, row.high))
    return pages.loss_card(title, row, f"{about}95% interval {interval}", row.images)


def _card(model: ModelNoise) -> Card:
    note, worst = f"clean {metric_label(model)}", model.worst
    if worst and worst.points_lost is not None:
        note += f"; worst option {worst.label}: {lost_text(worst.points_lost)}"
    return Card(model.model, f"{100 * model.clean:.2f}", note, n=model.images)


def _about(suite: NoiseSuite) -> Section:
    stages = [[m.model, *m.pipeline.values()] for m in suite.models]
    table = Table(["model", *suite.models[0].pipeline], stages)
    note = "Every option is compared with this pipeline."
    clean = table_figure("Clean pipeline", table, note, wide=True, sortable=False)
    failed = [[line] for m in suite.models for line in m.failed]
    lost = table_figure("Failed images", Table(["failed"], failed), sortable=False)
    return about_section([clean], suite.versions, *([lost] if failed else []))
