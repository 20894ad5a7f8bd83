"""The difference between two runs on the same images: paired interval, flips, changed predictions.

A prediction is another one
- to classify: if the best class is another;
- to detect: if, of the detections that pass the score threshold, one has no partner of its class with IoU ≥
  0.5 on the other side (partners are one to one, the largest IoU first);
- to find a single object: if the class is another, or the IoU of the two boxes is below 0.5;
- to segment: if at least 1 % of the points of the label grid have another class.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from holdfast.core.errors import InputError
from holdfast.core.fingerprint import generator
from holdfast.core.model import Task
from holdfast.core.types import Bools, Detections, Floats, Ints
from holdfast.engine.records import ClassificationRecord, DetectionRecord, Record, SegmentationRecord
from holdfast.evaluate.classes import Alignment, realign
from holdfast.evaluate.result import Evaluation
from holdfast.evaluate.run import Plan
from holdfast.evaluate.score import Settings, places, score_records, single_outputs, tables
from holdfast.metrics.boxes import iou
from holdfast.metrics.coco import IOU_THRESHOLDS
from holdfast.metrics.detection import passes
from holdfast.metrics.intervals import Flips, Interval, flips, map_values, mean_values, miou_values, paired
from holdfast.metrics.matching import TRUE_POSITIVE, Matches, match, prepare

SAME_BOX = 0.5  # IoU from which two boxes are one prediction
CLEAR = ("classify", "single")  # tasks in which an image is right or wrong
POINTS = 0.01  # share of the grid's points from which a label map is another


@dataclass(frozen=True)
class Changes:
    """Images whose prediction changed; of detectors also boxes, of segmenters the share of grid points."""

    images: int
    boxes_lost: int | None = None
    boxes_gained: int | None = None
    points: float | None = None

    def __str__(self) -> str:
        words = f"{self.images} image{'' if self.images == 1 else 's'} changed"
        if self.boxes_lost is not None:
            return f"{words} ({self.boxes_lost} boxes lost, {self.boxes_gained} gained)"
        return words if self.points is None else f"{words} ({self.points:.2%} of the points)"


def changes(before: Sequence[Record], after: Sequence[Record], task: Task, settings: Settings) -> Changes:
    """What changed from one run to another; record i of both is of the same image."""
    pairs: list[tuple[Any, Any]] = list(zip(before, after, strict=True))
    if task == "classify":
        return Changes(sum(a.best != b.best for a, b in pairs))
    if task == "single":
        return Changes(sum(_other_single(a, b) for a, b in pairs))
    if task == "segment":
        if any(a.grid.shape != b.grid.shape or not a.grid.size for a, b in pairs):
            # Records of a version without grids tell only that some pixel of an image changed.
            return Changes(sum(not np.array_equal(a.confusion, b.confusion) for a, b in pairs))
        shares = np.array([float((a.grid != b.grid).mean()) for a, b in pairs])
        return Changes(int((shares >= POINTS).sum()), points=float(shares.mean()))
    moved = np.array([unpartnered(_shown(a, settings), _shown(b, settings)) for a, b in pairs], np.int64)
    lost, gained = moved.reshape(-1, 2).sum(axis=0).tolist()
    return Changes(int(moved.any(axis=1).sum()), lost, gained)


def _other_single(before: DetectionRecord, after: DetectionRecord) -> bool:
    first, second = before.detections, after.detections
    if not len(first) or not len(second):
        return len(first) != len(second)
    same = first.classes[0] == second.classes[0]
    equal = np.array_equal(first.boxes[0], second.boxes[0])  # an empty box has no IoU even with itself
    return not same or not (equal or iou(first.boxes[:1], second.boxes[:1])[0, 0] >= SAME_BOX)


def _shown(record: DetectionRecord, settings: Settings) -> Detections:
    """The detections that a system with this score threshold shows."""
    found = record.detections
    return found.take(passes(found.scores, settings.score, settings.rule))


def unpartnered(first: Detections, second: Detections) -> tuple[int, int]:
    """How many detections of either side have no partner on the other."""
    pairs = partners(first, second)
    return len(first) - len(pairs), len(second) - len(pairs)


def partners(first: Detections, second: Detections) -> list[tuple[int, int]]:
    """Pairs of places, one of each side: same class, the largest IoU of at least one half first."""
    if np.array_equal(first.boxes, second.boxes) and np.array_equal(first.classes, second.classes):
        return [(i, i) for i in range(len(first))]
    overlap = iou(first.boxes, second.boxes)
    overlap[first.classes[:, None] != second.classes[None, :]] = 0.0
    a, b = np.nonzero(overlap >= SAME_BOX)
    # Pairs of one IoU and one sum of places share no box: the order does not depend on which side is which.
    order = np.lexsort((a + b, -overlap[a, b]))
    free_a, free_b = np.ones(len(first), bool), np.ones(len(second), bool)
    pairs = []
    for i, j in zip(a[order].tolist(), b[order].tolist(), strict=True):
        if free_a[i] and free_b[j]:
            free_a[i] = free_b[j] = False
            pairs.append((i, j))
    return pairs


def _broken(before: Sequence[Record], after: Sequence[Record], task: Task, settings: Settings) -> Bools:
    """For each image, (n,), whether it was right before and is wrong after.

    classify: the best class; single: IoU · [class equal] > 0.5; detect: a true box that was found at the
    score and IoU thresholds is not found any more; segment: 1 % of the pixels less are right.
    """
    if task == "detect":
        (image, found), (_, found_after) = (_boxes_found(records, settings) for records in (before, after))
        return np.isin(np.arange(len(before)), image[found & ~found_after])
    if task == "segment":
        counts = [
            [r.confusion for r in records if isinstance(r, SegmentationRecord)] for records in (before, after)
        ]
        first, second = (np.array([np.trace(c) / max(1, int(c.sum())) for c in side]) for side in counts)
        return np.asarray(first - second >= POINTS)
    return np.asarray(_right(task, before) & ~_right(task, after))


def _boxes_found(records: Sequence[Any], settings: Settings) -> tuple[Ints, Bools]:
    """The image of every true box, and whether it is found at the score and IoU thresholds."""
    truth, detections = tables(records)
    classes = int(max((c.max() for c in (truth.category, detections.category) if len(c)), default=0)) + 1
    found = match(truth, detections, settings.rule, settings.iou, images=len(records), classes=classes)
    hit = np.zeros(len(truth), bool)
    counted = (found.outcome == TRUE_POSITIVE) & passes(found.score, settings.score, settings.rule)
    hit[found.truth[counted]] = True
    return truth.image, hit


@dataclass(frozen=True, eq=False)
class Side:
    """One run, ready to be compared with any number of others: what was computed once is kept.

    `records` have the evaluated classes' numbers and no failures (see `realign`).
    """

    records: tuple[Record, ...] = field(repr=False)
    task: Task
    classes: tuple[str, ...] = field(repr=False)
    settings: Settings
    kept: dict[Any, Floats] = field(default_factory=dict, repr=False)

    @property
    def metric(self) -> str:
        """The name of the main metric."""
        if self.task == "detect":
            return "AP" if self.settings.rule.name == "coco" else "mAP"
        return {"classify": "top1", "single": "iou_equal", "segment": "mIoU"}[self.task]

    @property
    def images(self) -> int:
        """How many images the run has."""
        return len(self.records)

    @cached_property
    def result(self) -> dict[str, Any]:
        """All numbers of the run, as an evaluation has them."""
        return score_records(self.records, self.task, self.classes, self.settings)

    @property
    def value(self) -> float:
        """The main metric, as an evaluation has it; NaN where there is nothing to measure."""
        number = self.result["metrics"][self.metric]
        return float("nan") if number is None else float(number)

    @property
    def rule(self) -> str:
        """The rule of the metric in words."""
        return str(self.result["rule"])


@dataclass(frozen=True)
class Difference:
    """After − before of one metric on the images both runs have, with its interval and what changed."""

    metric: str
    images: int
    interval: Interval
    before: float
    after: float
    changes: Changes
    flips: Flips | None = None

    @property
    def changed(self) -> int:
        """On how many images the prediction is another."""
        return self.changes.images

    def __str__(self) -> str:
        i = self.interval
        words = "clear of 0" if i.excludes_zero else "includes 0: may be the choice of images"
        if i.low == i.estimate == i.high == 0.0:
            words = "no image makes a difference"
        right = f"; {self.flips.lost} lost, {self.flips.gained} gained" if self.flips else ""
        return (
            f"Δ {self.metric} {i.estimate:+.4f}, paired {i.level:.0%} interval [{i.low:+.4f}, {i.high:+.4f}] "
            f"over {self.images} images ({words}){right}; {self.changes}"
        )


def side_of(plan: Plan, alignment: Alignment, records: Sequence[Record]) -> Side:
    """The run of a plan with these records; failures and what has no evaluated class are left out."""
    task = plan.model.card.task
    return Side(realign(records, alignment, task), task, alignment.names, plan.settings)


def difference(before: Evaluation, after: Evaluation) -> Difference:
    """The main metric of `after` minus that of `before` on their common images, by the rule of `after`."""
    if before.about.task != after.about.task or before.about.classes != after.about.classes:
        raise InputError("two runs can be compared only if they have the same task and the same classes")
    about, settings = after.about, Settings.from_plain(after.about.settings)
    return compare(*(Side(run.records, about.task, about.classes, settings) for run in (before, after)))


def compare(before: Side, after: Side, *, seed: int = 0, replicates: int = 1000) -> Difference:
    """The main metric of `after` minus that of `before` on their common images, in the order of `before`."""
    if (before.task, before.classes, before.settings) != (after.task, after.classes, after.settings):
        raise InputError("two runs can be compared only if task, classes and rule are the same")
    first, second = _paired(before.records, after.records)
    old, new = _values(before, first, seed, replicates), _values(after, second, seed, replicates)
    return Difference(
        metric=after.metric,
        images=len(second),
        interval=paired(old, new),
        before=float(old[0]),
        after=float(new[0]),
        changes=changes(first, second, after.task, after.settings),
        flips=flips(_right(after.task, first), _right(after.task, second)) if after.task in CLEAR else None,
    )


def broken(before: Side, after: Side) -> tuple[str, ...]:
    """The names of images that were right before and are wrong after."""
    first, second = _paired(before.records, after.records)
    wrong = _broken(first, second, after.task, after.settings)
    return tuple(first[i].name for i in np.flatnonzero(wrong).tolist())


def drawn(side: Side, names: Sequence[str], *, seed: int = 0, replicates: int = 1000) -> Floats:
    """The main metric on the named images, then that of each draw of them, (1 + replicates,); computed once.

    Sides of the same names and seed are scored on the same draws: sums and differences of them are paired.
    """
    known = {r.name: r for r in side.records}
    missing = next((name for name in names if name not in known), None)
    if missing is not None:
        raise InputError(f"{missing}: the run has no image of this name")
    return _values(side, [known[name] for name in names], seed, replicates)


def common(before: Side, after: Side) -> tuple[str, ...]:
    """The names of the images both runs have, in the order of `before`; InputError if their truth differs."""
    return tuple(record.name for record in _paired(before.records, after.records)[0])


def _paired(before: Sequence[Record], after: Sequence[Record]) -> tuple[list[Record], list[Record]]:
    found = {r.name: r for r in after}
    first = [r for r in before if r.name in found]
    if not first:
        raise InputError("the two runs have no image in common")
    second = [found[r.name] for r in first]
    for old, new in zip(first, second, strict=True):
        if not same_truth(old, new):
            raise InputError(
                f"{new.name}: the two runs do not have the same image or truth of this name; "
                "compare runs on the same data"
            )
    return first, second


def same_truth(first: Record, second: Record) -> bool:
    """Whether two records are of the same image with the same truth, as far as they tell."""
    return first is second or _truth(first) == _truth(second)


def _truth(record: Record) -> object:
    """The size and the truth of a record's image as a value that can be compared."""
    if isinstance(record, DetectionRecord):
        t = record.truth
        return record.size, *(a.tobytes() for a in (t.xyxy, t.classes, t.crowd, t.difficult, t.areas))
    if isinstance(record, ClassificationRecord):
        return record.size, record.label
    if isinstance(record, SegmentationRecord):
        return record.size, record.confusion.sum(axis=1).tobytes()
    return None


def _values(side: Side, records: Sequence[Record], seed: int, replicates: int) -> Floats:
    """The metric of these records of the side, then that of each draw; computed once."""
    key = (tuple(r.name for r in records), seed, replicates)
    if key not in side.kept:
        side.kept[key] = _scored(side, records, seed, replicates)
    return side.kept[key]


def _scored(side: Side, records: Sequence[Any], seed: int, replicates: int) -> Floats:
    rng = generator(seed, "difference")
    if side.task == "segment":
        return miou_values([r.confusion for r in records], rng, replicates=replicates)
    if side.task == "detect":
        matches = match_levels(records, len(side.classes), side.settings)
        return map_values(matches, side.settings.rule, len(records), rng, replicates=replicates)
    column = places(records)[0] == 0 if side.task == "classify" else single_outputs(records)[0]
    return mean_values(np.asarray(column, np.float64), rng, replicates=replicates)


def match_levels(
    records: Sequence[Any], classes: int, settings: Settings, levels: Sequence[float] = ()
) -> list[Matches]:
    """What became of every detection of the records, at each IoU; without levels at those of the metric."""
    rule, (truth, found) = settings.rule, tables(records)
    levels = levels or (IOU_THRESHOLDS.tolist() if rule.name == "coco" else [settings.iou])
    known: dict[str, Any] = {"images": len(records), "classes": classes}
    known["prepared"] = prepare(truth, found, rule, len(records))
    return [match(truth, found, rule, level, **known) for level in levels]


def _right(task: Task, records: Sequence[Any]) -> Bools:
    """Which images are right, (n,), of a task where an image is right or wrong."""
    return np.asarray(places(records)[0] == 0 if task == "classify" else single_outputs(records)[0] > 0.5)
