"""The tables of a noise suite: the paper's, with one row per model, and one with one row per option."""

from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

from holdfast.evaluate.difference import COUNTED
from holdfast.evaluate.slices import SliceLoss
from holdfast.metrics.points import chance_text, interval_text
from holdfast.noise.suite import CORRUPTIONS, OUTCOMES, distinct_rows, outcome_text
from holdfast.noise.vision.choose import IN_PLACE
from holdfast.noise.vision.combine import Combination, CombineStep
from holdfast.noise.vision.corruptions import corruption_table
from holdfast.noise.vision.result import (
    HYPOTHETICAL,
    FamilySummary,
    ModelNoise,
    NoiseRow,
    NoiseSuite,
    summarize_family,
)
from holdfast.report.tables import Cell, Column, Table, many, table_of
from holdfast.stages.families import families

METRICS = {"top1": "top-1", "AP": "AP", "mAP": "mAP", "mIoU": "mIoU", "iou_equal": "IoU × class"}
_ORDER = "decode resize colour upsample precision ceil boxes runtime"  # of columns, as in the paper's tables
# Tables 2, 3 and 4 of the paper: columns in order.
PAPER_TABLES = {"classify": "Table 2", "detect": "Table 3", "segment": "Table 4"}
PAPER_COLUMNS = {
    "classify": ("decode", "resize", "colour", "FP16", "INT8", "ceil"),
    "detect": ("decode", "resize", "colour", "upsample", "INT8", "ceil", "boxes"),
    "segment": ("decode", "resize", "colour", "upsample", "INT8", "ceil"),
}
PAPER_TITLES = {
    "decode": "Decode",
    "resize": "Resize",
    "colour": "Color Mode",
    "FP16": "FP16",
    "INT8": "INT8",
    "ceil": "Ceil Mode",
    "upsample": "Upsample",
    "boxes": "Post-processing",
}
_NOT_RUN = ("not installed", "impossible")


def metric_name(of: Any) -> str:
    """The metric of a model's noise, a combination or a diagnosis as it is written."""
    return METRICS.get(of.metric, str(of.metric))


def metric_label(of: Any) -> str:
    """The metric of a model's noise, a combination or a diagnosis with its AP rule: "AP (coco)"."""
    rule = str(of.rule).split(":")[0]
    return f"{metric_name(of)} ({rule})" if of.task == "detect" and rule else metric_name(of)


def groups_of(suite: NoiseSuite) -> tuple[str, ...]:
    """The columns of the paper's table: families, with the precisions by their kind (fp16, int8)."""
    groups = {r.group for m in suite.models for r in m.rows}
    return tuple(sorted(groups, key=lambda g: (_ORDER.find(_family(g)) % 1000, g)))


def _family(group: str) -> str:
    return "precision" if group.isupper() else group


def family_title(group: str) -> str:
    """The heading of a column."""
    return next((f.title for f in families() if f.name == group), group)


def family_summaries(model: ModelNoise, groups: Sequence[str]) -> list[FamilySummary]:
    """The line of every column of one model."""
    rows = [[r for r in model.rows if r.group == group] for group in groups]
    return [summarize_family(own, _family(g), model.suite) for g, own in zip(groups, rows, strict=True)]


def models_table(suite: NoiseSuite) -> Table:
    """One row per model, mean (worst) points lost by every family; the paper's table of its suite."""
    if suite.models[0].suite == "paper":
        return paper_table(suite)
    groups = groups_of(suite)
    metrics = ", ".join(dict.fromkeys(metric_label(m) for m in suite.models))
    rows: list[list[Cell]] = []
    for model in suite.models:
        cells, combined, text = map(_mean_worst, family_summaries(model, groups)), model.combined, "–"
        if combined is not None:
            lost = combined.points_lost
            text = outcome_text(combined) if lost is None else f"{lost:z.2f}"
        rows.append([model.model, 100 * model.clean, *cells, text])
    columns: list[Column | str] = ["model", Column(f"clean {metrics}", 2), *map(family_title, groups)]
    counts = ", ".join(dict.fromkeys(many(m.images, "image") for m in suite.models))
    caption = (
        f"Points lost by each noise family: {metrics}, clean − noisy in percentage points, on {counts} of "
        f"{suite.data}. Mean (worst) over the options that differ; lower is better"
    )
    return Table([*columns, "Combined"], rows, caption)


def paper_table(suite: NoiseSuite) -> Table:
    """Table 2, 3 or 4 of the paper for these models: its columns in its order, a dash where it has one."""
    task = suite.models[0].task
    groups = PAPER_COLUMNS.get(task, PAPER_COLUMNS["detect"])
    rows: list[list[Cell]] = []
    for model in suite.models:
        cells = [_mean_worst(family, "-") for family in family_summaries(model, groups)]
        combined = model.combined.points_lost if model.combined else None
        rows.append([model.model, 100 * model.clean, *cells, "-" if combined is None else f"{combined:z.2f}"])
    metric = metric_label(suite.models[0])
    noted = [r.note for r in suite.models[0].rows if r.note.startswith(IN_PLACE)]
    heads: list[Column | str] = ["Architecture", Column(f"Trained {metric}", 2)]
    counts = ", ".join(dict.fromkeys(many(m.images, "image") for m in suite.models))
    caption = (
        f"The paper's table ({PAPER_TABLES.get(task, 'its options')}) on {counts} of {suite.data}: {metric}, "
        "clean − noisy in percentage points; mean (max) of several options, lower is better. "
        f"{'; '.join(f'decode: no-fancy-upsampling {note}' for note in noted)}"
    )
    return Table([*heads, *(PAPER_TITLES[g] for g in groups), "Combined"], rows, caption.strip())


def model_tables(model: ModelNoise) -> list[Table]:
    """The tables of one model: option by option, corruptions, families."""
    tables = [options_table(model)] if model.corruptions is None else []
    if model.corruptions:
        system = options_table(model)
        tables = [*([system] if system.rows else []), corruption_table(model, metric_label(model))]
    return [*tables, families_table(model), *slice_tables(model)]


def slice_tables(model: ModelNoise) -> list[Table]:
    """One table per way to slice: points lost by every option that differs, on every slice."""
    rows = [*distinct_rows(model.rows), *([model.combined] if model.combined else [])]
    metric = metric_label(model)
    tables = []
    for by in dict.fromkeys(part.by for row in rows for part in row.slices):
        own = [(row, part) for row in rows for part in row.slices if part.by == by]
        columns: list[Column[tuple[NoiseRow, SliceLoss]]] = [
            Column("option", get=lambda e: "Combined" if e[0] is model.combined else e[0].label),
            Column(by, get=lambda e: e[1].slice),
            Column(f"clean {metric}", 2, get=lambda e: 100 * e[1].clean),
            Column("points lost", 2, get=lambda e: e[1].points_lost),
            Column("95% interval", get=lambda e: interval_text(e[1].low, e[1].high)),
            Column("images", get=lambda e: e[1].images),
        ]
        if own[0][1].objects is not None:
            columns.append(Column("objects", get=lambda e: e[1].objects))
        note = ". A slice of fewer than 20 images is an indication only"
        few = any(part.images < 20 for _, part in own)
        tables.append(Table.of(own, columns, f"{model.model}: points lost by {by}{note if few else ''}"))
    return tables


def models_csv(suite: NoiseSuite) -> Table:
    """The same as numbers: mean and worst points lost and the worst option of every family."""
    groups = groups_of(suite)
    rows = []
    for model in suite.models:
        about = {"model": model.model, "data": suite.data, "task": model.task, "metric": model.metric}
        row: dict[str, Cell] = {**about, "images": model.images, "clean": 100 * model.clean}
        for name, family in zip(map(str.lower, groups), family_summaries(model, groups), strict=True):
            row |= {f"{name} points lost": family.mean, f"{name} worst points lost": family.worst}
            row[f"{name} worst option"] = family.option or family.words
        together = model.combined.points_lost if model.combined else None
        rows.append({**row, "combined points lost": together})
    return table_of(rows)


def _mean_worst(family: FamilySummary, empty: str = "") -> str:
    if family.mean is None or family.worst is None:
        if empty:
            return empty
        shown = family.words in ("identical", "no effect", "impossible", HYPOTHETICAL)
        return OUTCOMES.get(family.words, family.words) if shown else "–"
    worst = f"{family.worst:z.2f}"
    return worst if family.distinct == 1 else f"{family.mean:z.2f} ({worst})"


def families_table(model: ModelNoise) -> Table:
    """Every family of one model: mean and worst points lost, the worst option, and how many differ."""
    groups = groups_of(NoiseSuite("", (model,)))
    deltas = [Column("mean points lost", 2), Column("worst points lost", 2)]
    rows: list[list[Cell]] = []
    for group, family in zip(groups, family_summaries(model, groups), strict=True):
        differ = _count_text(family.distinct, [r for r in model.rows if r.group == group])
        if model.suite == "paper":  # every option counts, also one that does not differ
            differ = differ.replace(" differ", "")
        option = family.option or OUTCOMES.get(family.words, family.words) or "–"
        rows.append([family_title(group), family.mean, family.worst, option, differ])
    if model.combined is not None:
        count = f"{model.combined.option.count('=')} options"
        rows.append(["Combined", None, model.combined.points_lost, "worst of each family", count])
    caption = f"{model.model}: points lost by noise family, {metric_label(model)}, n = {model.images}"
    return Table(["family", *deltas, "worst option", "options"], rows, caption)


def _count_text(distinct: int, rows: Sequence[NoiseRow]) -> str:
    """How many of the options that ran differ, and how many do not count: 6 of 7 differ (2 …)."""
    own = [r for r in rows if not r.hypothetical]
    counts = {outcome: sum(r.outcome == outcome for r in own) for outcome in _NOT_RUN}
    ran = len(own) - sum(counts.values())
    counts[HYPOTHETICAL] = len(rows) - len(own)
    skipped = ", ".join(f"{count} {OUTCOMES.get(name, name)}" for name, count in counts.items() if count)
    if not ran:
        return skipped
    return f"{distinct} of {ran} differ" + (f" ({skipped})" if skipped else "")


def options_table(model: ModelNoise) -> Table:
    """Every option of one model: points lost with the paired interval, changed images, notes."""
    metric, combined = metric_label(model), model.combined
    together = f"worst of {combined.option.count('=')} families" if combined else ""
    heading, counted = COUNTED[model.task]
    columns: list[Column[NoiseRow]] = [
        Column("family", get=lambda r: r.family),
        Column("option", get=lambda r: together if r is combined else r.option),
        Column("points lost", 2, get=lambda r: r.points_lost),
        Column("95% interval", get=lambda r: interval_text(r.low, r.high) if r.outcome == "measured" else ""),
        Column(heading, get=lambda r: "" if r.points_lost is None else _changed(r)),
        Column("notes", get=lambda r: notes_of(r, r is combined)),
    ]
    chance = chance_of(model)
    caption = (
        f"{model.model}: {metric} {100 * model.clean:.2f} with the training pipeline, n = {model.images}. "
        f"Points lost: clean − noisy, in percentage points; not significant if the 95% interval contains 0. "
        f"{chance and f'{chance}. '}{counted.rstrip('.')}"
    )
    rows = [row for row in model.rows if row.family != CORRUPTIONS or not model.corruptions]
    return Table.of([*rows, *([combined] if combined else [])], columns, caption)


def chance_of(model: ModelNoise) -> str:
    """How many of the options' intervals would exclude 0 by chance, and how many do; empty for one."""
    rows = [r for r in model.rows if r.family != CORRUPTIONS or not model.corruptions]
    return chance_text((r.low, r.high) for r in rows if r.outcome == "measured" and not r.alike)


def _changed(row: NoiseRow | CombineStep) -> str:
    return f"{row.changed} of {many(row.images, 'image')}"


def notes_of(row: NoiseRow, combined: bool = False) -> str:
    """The notes on a row."""
    if row.points_lost is None:
        return f"{outcome_text(row)}: {row.note}" if row.note else outcome_text(row)
    still = row.outcome == "measured" and row.changed == 0 and not row.points_lost
    notes = [
        HYPOTHETICAL if row.hypothetical else "",
        row.option if combined else "",
        f"{outcome_text(row)}: {row.note}" if row.outcome in ("identical", "no effect") else row.note,
        f"same inputs as {row.alike}" if row.alike else "",
        "predictions differ slightly, the metric does not" if still else "",
        f"{many(row.failed, 'image')} failed" if row.failed else "",
    ]
    return "; ".join(filter(None, notes))


def combination_table(combination: Combination) -> Table:
    """Every step of the combination in numbers."""
    metric = metric_name(combination)
    columns: list[Column[tuple[int, CombineStep]]] = [
        Column("step", get=lambda e: e[0]),
        Column("added", get=lambda e: e[1].added),
        Column(metric, 2, get=lambda e: 100 * e[1].value),
        Column("points lost", 2, get=lambda e: e[1].points_lost),
        Column("by this step", 2, get=lambda e: e[1].extra),
        Column("95% interval", get=lambda e: interval_text(e[1].extra_low, e[1].extra_high)),
        Column("alone", 2, get=lambda e: e[1].alone),
        Column(COUNTED[combination.task][0] if combination.task else "changed", get=lambda e: _changed(e[1])),
        Column("effect", get=lambda e: e[1].effect),
    ]
    caption = (
        f"{combination.model} on {combination.data}: points lost ({metric}) as noise is added, the most "
        "harmful option first; by this step, and alone"
    )
    return Table.of(enumerate(combination.steps, 1), columns, caption)


def combination_csv(combination: Combination) -> Table:
    """The same as plain numbers, each in its own column, with model, data and metric."""
    about = {name: getattr(combination, name) for name in ("model", "data", "metric")}
    about["clean"] = 100 * combination.clean
    names = [f.name.replace("extra", "step points lost").replace("_", " ") for f in fields(CombineStep)]
    steps = [asdict(step) | {"value": 100 * step.value} for step in combination.steps]
    rows = [[*about.values(), number, *step.values()] for number, step in enumerate(steps, 1)]
    return Table([*about, "step", *names], rows)
