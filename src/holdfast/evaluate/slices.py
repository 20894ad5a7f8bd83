"""The metric and the points lost on slices of the data, with intervals, images and objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from holdfast.core.model import Task
from holdfast.engine.records import ClassificationRecord, DetectionRecord, Record, SegmentationRecord
from holdfast.evaluate.classes import Alignment
from holdfast.evaluate.difference import ScoredRun, bootstrap_values, compare
from holdfast.evaluate.run import EvaluationPlan
from holdfast.evaluate.slicing import BRIGHTNESS, CLASS, SIZE, Slicing
from holdfast.metrics.coco import AREAS
from holdfast.metrics.intervals import interval_of
from holdfast.report.tables import Column, Table


@dataclass(frozen=True)
class Slice:
    """One part of the data; `keep` are names of images, `area` is a range of true areas in pixels."""

    by: str
    name: str
    keep: frozenset[str] | None = None
    category: int | None = None
    area: tuple[float, float] | None = None


@dataclass(frozen=True)
class SliceResult:
    """The main metric on one slice, with its 95% interval, images and objects."""

    by: str
    slice: str
    images: int
    objects: int | None
    metric: str
    value: float | None
    low: float | None
    high: float | None


def slices_of(slicing: Slicing, run: ScoredRun) -> Iterator[Slice]:
    """The slices of a run, in order; those without images or objects are left out."""
    if slicing.by == SIZE:
        for name in ("small", "medium", "large"):
            yield Slice(SIZE, name, area=AREAS[name])
    elif slicing.by == CLASS:
        for category, name in enumerate(run.classes):
            yield Slice(CLASS, name, category=category)
    else:
        order = {"dark": 0, "medium": 1, "bright": 2} if slicing.by == BRIGHTNESS else {}
        for value in sorted(set(slicing.values.values()), key=lambda v: (order.get(v, 9), v)):
            images = (image for image, own in slicing.values.items() if own == value)
            yield Slice(slicing.by, value, keep=frozenset(images))


def restricted(run: ScoredRun, part: Slice) -> ScoredRun:
    """The run on one slice: its images, true boxes and detections."""
    records: Any = run.records
    if part.keep is not None:
        return replace(run, records=tuple(r for r in records if r.name in part.keep), computed={})
    if part.area is not None and run.task == "single":
        low, high = part.area
        inside = tuple(r for r in records if low <= float(r.truth.areas[0]) <= high)
        return replace(run, records=inside, computed={})
    if part.area is not None:
        return replace(run, area=part.area, computed={})
    chosen = [_of_class(record, part.category or 0, run.task) for record in records]
    classes = run.classes
    if run.task == "detect":
        classes = (part.name,)
    category = part.category if run.task == "segment" else None
    kept = tuple(record for record in chosen if record is not None)
    return replace(run, records=kept, classes=classes, category=category, computed={})


def _of_class(record: Record, category: int, task: Task) -> Record | None:
    if isinstance(record, ClassificationRecord):
        return record if record.label == category else None
    if isinstance(record, SegmentationRecord):
        return record if record.confusion[category].any() or record.confusion[:, category].any() else None
    if not isinstance(record, DetectionRecord):
        return None
    if task == "single":
        return record if int(record.truth.classes[0]) == category else None
    truth, mine = record.truth, record.truth.classes == category
    columns = {name: getattr(truth, name)[mine] for name in ("xyxy", "crowd", "difficult", "areas")}
    boxes = replace(truth, **columns, classes=np.zeros(int(mine.sum()), np.int64))
    found = record.detections.take(record.detections.classes == category)
    return replace(record, truth=boxes, detections=replace(found, classes=np.zeros(len(found), np.int64)))


def objects_in(run: ScoredRun) -> int | None:
    """How many true boxes count; None for tasks without boxes."""
    if run.task not in ("detect", "single"):
        return None
    low, high = run.area or (0.0, np.inf)
    records: Any = run.records
    return sum(
        int(((r.truth.areas >= low) & (r.truth.areas <= high) & ~r.truth.crowd).sum()) for r in records
    )


def slice_results(run: ScoredRun, slicings: Sequence[Slicing], replicates: int = 1000) -> list[SliceResult]:
    """The main metric of every slice that has something to measure."""
    results = []
    for part in (part for slicing in slicings for part in slices_of(slicing, run)):
        own = restricted(run, part)
        objects = objects_in(own)
        if not own.records or objects == 0:
            continue
        names = [record.name for record in own.records]
        found = interval_of(bootstrap_values(own, names, replicates=replicates))
        ends = {"value": found.estimate, "low": found.low, "high": found.high}
        numbers: dict[str, Any] = {key: None if np.isnan(x) else float(x) for key, x in ends.items()}
        metric = "IoU" if own.category is not None else own.metric
        counts: dict[str, Any] = {"images": len(names), "objects": objects}
        results.append(SliceResult(by=part.by, slice=part.name, metric=metric, **counts, **numbers))
    return results


@dataclass(frozen=True)
class SliceLoss:
    """The points lost on one slice with the paired 95% interval; `clean` is the metric before, 0 to 1."""

    by: str
    slice: str
    images: int
    objects: int | None
    clean: float
    points_lost: float
    low: float
    high: float


def slice_losses(
    before: ScoredRun, after: ScoredRun, slicings: Sequence[Slicing], replicates: int = 1000
) -> tuple[SliceLoss, ...]:
    """The points lost on every slice from one run to another of the same images."""
    losses = []
    for part in (part for slicing in slicings for part in slices_of(slicing, before)):
        old, new = restricted(before, part), restricted(after, part)
        objects = objects_in(old)
        if not old.records or not new.records or objects == 0:
            continue
        found = compare(old, new, replicates=replicates)
        lost = found.points_lost
        numbers = found.before, lost.estimate, lost.low, lost.high
        losses.append(SliceLoss(part.by, part.name, found.images, objects, *numbers))
    return tuple(losses)


def evaluation_slices(
    plan: EvaluationPlan, alignment: Alignment, records: Sequence[Record]
) -> list[dict[str, Any]]:
    """The slices of an evaluation as JSON values; `records` are realigned."""
    run = ScoredRun(tuple(records), plan.model.card.task, alignment.names, plan.settings)
    return [asdict(result) for result in slice_results(run, plan.slices)]


def slice_tables(results: Sequence[Mapping[str, Any]]) -> list[Table]:
    """One table per slicing: metric, interval, images and objects."""
    tables = []
    for by in dict.fromkeys(row["by"] for row in results):
        rows = [row for row in results if row["by"] == by]
        columns: list[Column[Mapping[str, Any]]] = [
            Column(by, get=lambda row: row["slice"]),
            Column(rows[0]["metric"], 4, get=lambda row: row["value"]),
            Column("95% interval", get=lambda row: _interval(row)),
            Column("images", get=lambda row: row["images"]),
        ]
        if rows[0]["objects"] is not None:
            columns.append(Column("objects", get=lambda row: row["objects"]))
        note = ". A slice of fewer than 20 images is an indication only" if _few(rows) else ""
        tables.append(Table.of(rows, columns, f"By {by}{note}"))
    return tables


def _few(rows: Sequence[Mapping[str, Any]]) -> bool:
    return any(row["images"] < 20 for row in rows)


def _interval(row: Mapping[str, Any]) -> str:
    if row["low"] is None or row["high"] is None:
        return ""
    return f"[{row['low']:.4f}, {row['high']:.4f}]"
