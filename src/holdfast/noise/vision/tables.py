"""The tables of a noise suite: the paper's, with a row a model; one with a row an option; and the list."""

from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

from holdfast.noise.suite import interval_text
from holdfast.noise.vision.combine import Staircase, Step
from holdfast.noise.vision.result import Line, ModelNoise, Row, Suite, line
from holdfast.report.tables import Cell, Column, Table, many, table_of
from holdfast.stages.families import families

METRICS = {"top1": "top-1", "AP": "AP", "mAP": "mAP", "mIoU": "mIoU", "iou_equal": "IoU × class"}
_ORDER = "decode resize colour upsample precision ceil boxes runtime"  # of columns, as in the paper's tables
_NOT_RUN = ("not installed", "impossible")


def metric_name(of: Any) -> str:
    """How the metric of a model's noise, a staircase or a diagnosis is written."""
    return METRICS.get(of.metric, str(of.metric))


def groups_of(suite: Suite) -> tuple[str, ...]:
    """The columns of the paper's table: families, with the precisions by their kind (fp16, int8)."""
    found = dict.fromkeys(r.group for m in suite.models for r in m.rows)
    return tuple(sorted(found, key=lambda g: (_ORDER.find(_family(g)) % 1000, g)))


def _family(group: str) -> str:
    return "precision" if group.isupper() else group


def title_of(group: str) -> str:
    """The heading of a column."""
    known = {f.name: f.title for f in families()}
    return known.get(group, group)


def lines_of(model: ModelNoise, groups: Sequence[str]) -> list[Line]:
    """The line of every column of one model."""
    return [line([r for r in model.rows if r.group == g], _family(g)) for g in groups]


def models_table(suite: Suite) -> Table:
    """The paper's table: a row a model, mean (worst) Δ of every family in points of the metric."""
    groups = groups_of(suite)
    metrics = ", ".join(dict.fromkeys(metric_name(m) for m in suite.models))
    rows: list[list[Cell]] = []
    for model in suite.models:
        found, both = [_mean_worst(made) for made in lines_of(model, groups)], model.combined
        combined = "–" if both is None else both.outcome if both.drop is None else f"{both.drop:z.2f}"
        rows.append([model.model, 100 * model.clean, *found, combined])
    columns: list[Column | str] = ["model", Column(f"clean {metrics}", 2)]
    columns += [f"Δ {title_of(g)}" for g in groups]
    caption = (
        f"Δ {metrics} = clean − noised on {suite.data}, in points, mean (worst) over the options that "
        "differ: lower is better"
    )
    return Table([*columns, "Δ Combined"], rows, caption)


def models_csv(suite: Suite) -> Table:
    """The same with numbers alone: mean, worst and the worst option of every family."""
    groups = groups_of(suite)
    rows = []
    for model in suite.models:
        about = {"model": model.model, "data": suite.data, "task": model.task, "metric": model.metric}
        row: dict[str, Cell] = {**about, "images": model.images, "clean": 100 * model.clean}
        for name, made in zip(map(str.lower, groups), lines_of(model, groups), strict=True):
            worst = {f"{name} worst": made.worst, f"{name} worst option": made.option or made.words}
            row |= {name: made.mean, **worst}
        rows.append({**row, "combined": model.combined.drop if model.combined else None})
    return table_of(rows)


def _mean_worst(made: Line) -> str:
    if made.mean is None or made.worst is None:
        return made.words if made.words in ("identical", "no effect", "impossible") else "–"
    if made.distinct == 1:
        return f"{made.worst:z.2f}"
    return f"{made.mean:z.2f} ({made.worst:z.2f})"


def families_table(model: ModelNoise) -> Table:
    """Every family of one model: mean and worst Δ, the worst option by name, and how many options differ."""
    groups = groups_of(Suite("", (model,)))
    deltas = [Column("mean Δ", 2), Column("worst Δ", 2)]
    rows: list[list[Cell]] = []
    for group, made in zip(groups, lines_of(model, groups), strict=True):
        differ = _differ(made.distinct, [r for r in model.rows if r.group == group])
        rows.append([title_of(group), made.mean, made.worst, made.option or made.words or "–", differ])
    if model.combined is not None:
        every = model.combined.option.count("=")
        rows.append(["Combined", None, model.combined.drop, "the worst of each", f"{every} together"])
    caption = f"{model.model}: what each kind of noise costs, in points"
    return Table(["noise", *deltas, "worst option", "options"], rows, caption)


def _differ(distinct: int, rows: Sequence[Row]) -> str:
    """How many of the options that could be run differ, and how many could not: 6 of 7 differ (2 …)."""
    counts = {outcome: sum(r.outcome == outcome for r in rows) for outcome in _NOT_RUN}
    there = len(rows) - sum(counts.values())
    left = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
    if not there:
        return left
    return f"{distinct} of {there} differ" + (f" ({left})" if left else "")


def options_table(model: ModelNoise) -> Table:
    """Every option of one model: Δ with its paired interval, what changed, and words."""
    metric, combined = metric_name(model), model.combined
    together = f"{combined.option.count('=')} worst together" if combined else ""
    columns: list[Column[Row]] = [
        Column("noise", get=lambda r: r.family),
        Column("option", get=lambda r: together if r is combined else r.option),
        Column(f"Δ {metric}", 2, get=lambda r: r.drop),
        Column("95 % interval", get=lambda r: interval_text(r) if r.outcome == "measured" else ""),
        Column("changed", get=lambda r: "" if r.drop is None else f"{r.changed} of {r.images}"),
        Column("what is to be said", get=lambda r: words(r, r is combined)),
    ]
    caption = (
        f"{model.model}: {metric} {100 * model.clean:.2f} clean on {many(model.images, 'image')}. Changed: "
        "images whose prediction is another. An interval that holds 0 may be the choice of images"
    )
    return Table.of([*model.rows, *([combined] if combined else [])], columns, caption)


def words(row: Row, combined: bool = False) -> str:
    """What is to be said of a row beside its numbers."""
    if row.drop is None:
        return f"{row.outcome}: {row.note}" if row.note else row.outcome
    still = row.outcome == "measured" and row.changed == 0 and not row.drop
    said = [
        row.option if combined else "",
        f"{row.outcome}: {row.note}" if row.outcome in ("identical", "no effect") else row.note,
        f"same inputs as {row.alike}" if row.alike else "",
        "no prediction changes" if still else "",
        f"{many(row.failed, 'image')} failed" if row.failed else "",
    ]
    return "; ".join(filter(None, said))


def staircase_table(made: Staircase) -> Table:
    """Every step of the build-up in numbers."""
    columns: list[Column[tuple[int, Step]]] = [
        Column("step", get=lambda e: e[0]),
        Column("added", get=lambda e: e[1].added),
        Column(metric_name(made), 2, get=lambda e: 100 * e[1].value),
        Column("Δ so far", 2, get=lambda e: e[1].drop),
        Column("adds", 2, get=lambda e: e[1].extra),
        Column("95 % interval", get=lambda e: f"[{e[1].extra_low:z.2f}, {e[1].extra_high:z.2f}]"),
        Column("alone", 2, get=lambda e: e[1].alone),
        Column("changed", get=lambda e: f"{e[1].changed} of {e[1].images}"),
        Column("effect", get=lambda e: e[1].effect),
    ]
    return Table.of(enumerate(made.steps, 1), columns)


def staircase_csv(made: Staircase) -> Table:
    """The same with plain numbers alone, each in a column of its own, and what they are of."""
    about = {"model": made.model, "data": made.data, "metric": made.metric, "clean": 100 * made.clean}
    names = ["step", *(f.name.replace("extra", "adds").replace("_", " ") for f in fields(Step))]
    steps = [asdict(step) | {"value": 100 * step.value} for step in made.steps]
    rows = [[*about.values(), number, *step.values()] for number, step in enumerate(steps, 1)]
    return Table([*about, *names], rows)
