"""The difference between two runs on the same images: points lost with a paired interval, and what changed.

An image counts as changed if
- classifier: the top-1 class changed;
- detector: of the detections that pass the score threshold, at least one has no match of its class with
  IoU ≥ 0.5 in the other run (matches are one to one, the largest IoU first);
- single-object detector: the class changed, or the IoU of the two boxes is below 0.5;
- segmenter: at least 1% of the points of the label grid changed class.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
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
from holdfast.evaluate.run import EvaluationPlan
from holdfast.evaluate.score import Settings, score_records, single_outputs, tables, true_class_ranks
from holdfast.metrics.boxes import iou
from holdfast.metrics.coco import IOU_THRESHOLDS
from holdfast.metrics.detection import passes
from holdfast.metrics.intervals import (
    Flips,
    Interval,
    flips,
    interval_of,
    map_values,
    mean_values,
    miou_values,
    paired,
)
from holdfast.metrics.matching import TRUE_POSITIVE, Matches, match, prepare
from holdfast.metrics.points import facing, interval_text, lost_text, points, significance
from holdfast.report.tables import many

SAME_BOX = 0.5  # IoU from which two boxes are one prediction
RIGHT_OR_WRONG = ("classify", "single")  # tasks in which an image is right or wrong
CHANGED_SHARE = 0.01  # share of the grid's points from which a label map is another
# What the count of changed images counts, by task: as the heading of a column, and what that means.
_COUNTED = {
    "classify": ("top-1 class changed", "the highest-scored class differs."),
    "detect": (
        "detections lost or gained",
        (
            "no match of the same class at IoU ≥ 0.5 in the other run; a box that moves less can change AP, "
            "but is not counted."
        ),
    ),
    "single": ("class or box changed", "the class differs, or the boxes overlap with IoU < 0.5."),
    "segment": ("labels changed", "at least 1% of the labels of the image differ."),
}
# The same, with a whole sentence.
COUNTED = {task: (name, f"{name.capitalize()}: {text}") for task, (name, text) in _COUNTED.items()}


@dataclass(frozen=True)
class Changes:
    """Images whose prediction changed; of detectors also boxes, of segmenters the share of grid points."""

    task: Task
    images: int
    of: int
    boxes_lost: int | None = None
    boxes_gained: int | None = None
    points: float | None = None

    def __str__(self) -> str:
        words = f"{COUNTED[self.task][0]} in {self.images} of {many(self.of, 'image')}"
        if self.boxes_lost is not None:
            boxes = f"{self.boxes_lost} lost, {self.boxes_gained} gained"
            return f"{words} ({boxes}; matched at IoU ≥ {SAME_BOX})"
        return words if self.points is None else f"{words} ({self.points:.2%} of all labels)"


def changes(before: Sequence[Record], after: Sequence[Record], task: Task, settings: Settings) -> Changes:
    """What changed from one run to another; record i of both is of the same image."""
    pairs: list[tuple[Any, Any]] = list(zip(before, after, strict=True))
    if task == "classify":
        return Changes(task, sum(a.best != b.best for a, b in pairs), len(pairs))
    if task == "single":
        return Changes(task, sum(_single_changed(a, b) for a, b in pairs), len(pairs))
    if task == "segment":
        if any(a.grid.shape != b.grid.shape or not a.grid.size for a, b in pairs):
            # Records of a version without grids tell only that some pixel of an image changed.
            other = sum(not np.array_equal(a.confusion, b.confusion) for a, b in pairs)
            return Changes(task, other, len(pairs))
        shares = np.array([float((a.grid != b.grid).mean()) for a, b in pairs])
        return Changes(task, int((shares >= CHANGED_SHARE).sum()), len(pairs), points=float(shares.mean()))
    shown = [(_above_threshold(a, settings), _above_threshold(b, settings)) for a, b in pairs]
    moved = np.array([unmatched_counts(*pair) for pair in shown], np.int64).reshape(-1, 2)
    lost, gained = moved.sum(axis=0).tolist()
    return Changes(task, int(moved.any(axis=1).sum()), len(pairs), lost, gained)


def _single_changed(before: DetectionRecord, after: DetectionRecord) -> bool:
    first, second = before.detections, after.detections
    if not len(first) or not len(second):
        return len(first) != len(second)
    same = first.classes[0] == second.classes[0]
    equal = np.array_equal(first.boxes[0], second.boxes[0])  # an empty box has no IoU even with itself
    return not same or not (equal or iou(first.boxes[:1], second.boxes[:1])[0, 0] >= SAME_BOX)


def _above_threshold(record: DetectionRecord, settings: Settings) -> Detections:
    scores = record.detections.scores
    return record.detections.take(passes(scores, settings.score, settings.rule))


def unmatched_counts(first: Detections, second: Detections) -> tuple[int, int]:
    """The number of detections of each run that have no match in the other."""
    pairs = matched_pairs(first, second)
    return len(first) - len(pairs), len(second) - len(pairs)


def matched_pairs(first: Detections, second: Detections) -> list[tuple[int, int]]:
    """Index pairs of matching detections: same class, IoU ≥ 0.5, the largest IoU first, one to one."""
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


def _newly_wrong(before: Sequence[Record], after: Sequence[Record], task: Task, settings: Settings) -> Bools:
    """For each image, (n,), whether it was correct before and is wrong after.

    classify: the top-1 class; single: IoU · [class equal] > 0.5; detect: a true box that was found at the
    score and IoU thresholds is missed; segment: the share of correct pixels fell by at least 1%.
    """
    if task == "detect":
        image, detected = _detected_objects(before, settings)
        lost = detected & ~_detected_objects(after, settings)[1]
        return np.isin(np.arange(len(before)), image[lost])
    if task == "segment":
        first, second = _pixel_accuracy(before), _pixel_accuracy(after)
        return np.asarray(first - second >= CHANGED_SHARE)
    return np.asarray(_correct(task, before) & ~_correct(task, after))


def _pixel_accuracy(records: Sequence[Any]) -> Floats:
    return np.array([np.trace(r.confusion) / max(1, int(r.confusion.sum())) for r in records])


def _detected_objects(records: Sequence[Any], settings: Settings) -> tuple[Ints, Bools]:
    """The image of every true box, and whether it is found at the score and IoU thresholds."""
    truth, detections = tables(records)
    classes = int(max((c.max() for c in (truth.category, detections.category) if len(c)), default=0)) + 1
    m = match(truth, detections, settings.rule, settings.iou, images=len(records), classes=classes)
    detected = np.zeros(len(truth), bool)
    detected[m.truth[(m.outcome == TRUE_POSITIVE) & passes(m.score, settings.score, settings.rule)]] = True
    return truth.image, detected


@dataclass(frozen=True, eq=False)
class ScoredRun:
    """One run, ready to be compared with any number of others.

    `records` have the evaluated classes' numbers and no failures (see `realign`).
    """

    records: tuple[Record, ...] = field(repr=False)
    task: Task
    classes: tuple[str, ...] = field(repr=False)
    settings: Settings
    area: tuple[float, float] | None = None  # of true boxes that count: a slice by size
    category: int | None = None  # of a segmenter: the class whose IoU is the metric
    computed: dict[Any, Floats] = field(default_factory=dict, repr=False)  # by images, seed and replicates

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
    """The difference of one metric on the common images of two runs, with its paired interval."""

    metric: str
    rule: str
    images: int
    interval: Interval  # of after − before
    before: float
    after: float
    changes: Changes
    flips: Flips | None = None

    @property
    def changed(self) -> int:
        """The number of images whose prediction changed."""
        return self.changes.images

    @property
    def points_lost(self) -> Interval:
        """Before − after in percentage points, with its paired 95% interval; a gain is negative."""
        i = self.interval
        return replace(i, estimate=points(-i.estimate), low=points(-i.high), high=points(-i.low))

    def to_plain(self) -> dict[str, Any]:
        """The difference as JSON values."""
        lost = self.points_lost
        ends = {"points_lost": lost.estimate, "low": lost.low, "high": lost.high}
        sides = {"before": self.before, "after": self.after}
        return {"metric": self.metric, "images": self.images, **sides, **ends, "changed": self.changed}

    def __str__(self) -> str:
        lost, flips = self.points_lost, self.flips
        span = interval_text(*facing(lost.estimate, lost.low, lost.high))
        words = f"95% interval {span}, {significance(lost.low, lost.high, self.images)}"
        if span == "no difference":
            words = "no difference on any image"
        words += f"; {flips.lost} correct before only, {flips.gained} after only" if flips else ""
        rule = f"{self.rule}, " if self.rule else ""
        metric = f"{self.metric} ({rule}n = {self.images})"
        return f"{metric}: {lost_text(lost.estimate)}, {words}; {self.changes}"


def scored_run(plan: EvaluationPlan, alignment: Alignment, records: Sequence[Record]) -> ScoredRun:
    """The run of a plan with these records, without failures and classes that are not evaluated."""
    task = plan.model.card.task
    return ScoredRun(realign(records, alignment, task), task, alignment.names, plan.settings)


def difference(before: Evaluation, after: Evaluation) -> Difference:
    """The main metric of `after` minus that of `before` on their common images, by the rule of `after`."""
    if before.about.task != after.about.task or before.about.classes != after.about.classes:
        raise InputError("expected two runs of the same task and classes; evaluate both alike")
    about, settings = after.about, Settings.from_plain(after.about.settings)
    return compare(*(ScoredRun(run.records, about.task, about.classes, settings) for run in (before, after)))


def compare(before: ScoredRun, after: ScoredRun, *, seed: int = 0, replicates: int = 1000) -> Difference:
    """The main metric of `after` minus that of `before` on their common images, in the order of `before`."""
    if (before.task, before.classes, before.settings) != (after.task, after.classes, after.settings):
        raise InputError("expected two runs of the same task, classes and rule; evaluate both alike")
    task, settings = after.task, after.settings
    first, second = _pair_records(before.records, after.records)
    old, new = _values(before, first, seed, replicates), _values(after, second, seed, replicates)
    has_flips = task in RIGHT_OR_WRONG
    return Difference(
        metric=after.metric,
        rule=settings.rule.name if task == "detect" else "",
        images=len(second),
        interval=paired(old, new),
        before=float(old[0]),
        after=float(new[0]),
        changes=changes(first, second, task, settings),
        flips=flips(_correct(task, first), _correct(task, second)) if has_flips else None,
    )


def interval(evaluation: Evaluation) -> Interval:
    """The main metric of an evaluation with its 95% interval, by bootstrap over the images."""
    about = evaluation.about
    run = ScoredRun(evaluation.records, about.task, about.classes, Settings.from_plain(about.settings))
    return interval_of(bootstrap_values(run, [record.name for record in run.records]))


def broken_images(before: ScoredRun, after: ScoredRun) -> tuple[str, ...]:
    """The names of images that were correct before and are wrong after."""
    first, second = _pair_records(before.records, after.records)
    wrong = _newly_wrong(first, second, after.task, after.settings)
    return tuple(first[i].name for i in np.flatnonzero(wrong).tolist())


def bootstrap_values(
    side: ScoredRun, names: Sequence[str], *, seed: int = 0, replicates: int = 1000
) -> Floats:
    """The main metric on the named images, then that of each draw of them, (1 + replicates,); computed once.

    Sides of the same names and seed are scored on the same draws: sums and differences of them are paired.
    """
    known = {r.name: r for r in side.records}
    missing = next((name for name in names if name not in known), None)
    if missing is not None:
        raise InputError(f"{missing}: no such image in the run")
    return _values(side, [known[name] for name in names], seed, replicates)


def common_images(before: ScoredRun, after: ScoredRun) -> tuple[str, ...]:
    """The names of the images both runs have, in the order of `before`; InputError if their truth differs."""
    return tuple(record.name for record in _pair_records(before.records, after.records)[0])


def _pair_records(before: Sequence[Record], after: Sequence[Record]) -> tuple[list[Record], list[Record]]:
    by_name = {r.name: r for r in after}
    first = [r for r in before if r.name in by_name]
    if not first:
        raise InputError("the two runs have no image in common")
    second = [by_name[r.name] for r in first]
    for old, new in zip(first, second, strict=True):
        if not same_truth(old, new):
            raise InputError(
                f"{new.name}: the image or its ground truth differs between the two runs; "
                "compare runs on the same data"
            )
    return first, second


def same_truth(first: Record, second: Record) -> bool:
    """Whether two records are of the same image with the same ground truth, as far as they show."""
    return first is second or _truth_key(first) == _truth_key(second)


def _truth_key(record: Record) -> object:
    """The size and the truth of a record's image as a value that can be compared."""
    if isinstance(record, DetectionRecord):
        t = record.truth
        return record.size, *(a.tobytes() for a in (t.xyxy, t.classes, t.crowd, t.difficult, t.areas))
    if isinstance(record, ClassificationRecord):
        return record.size, record.label
    if isinstance(record, SegmentationRecord):
        return record.size, record.confusion.sum(axis=1).tobytes()
    return None


def _values(side: ScoredRun, records: Sequence[Record], seed: int, replicates: int) -> Floats:
    """The metric of these records of the side, then that of each draw; computed once."""
    key = (tuple(r.name for r in records), seed, replicates)
    if key not in side.computed:
        side.computed[key] = _bootstrap(side, records, seed, replicates)
    return side.computed[key]


def _bootstrap(side: ScoredRun, records: Sequence[Any], seed: int, replicates: int) -> Floats:
    rng = generator(seed, "difference")
    if side.task == "segment":
        tables = [r.confusion for r in records]
        return miou_values(tables, rng, replicates=replicates, category=side.category)
    if side.task == "detect":
        matches = match_levels(records, len(side.classes), side.settings, area=side.area)
        return map_values(matches, side.settings.rule, len(records), rng, replicates=replicates)
    values = _correct("classify", records) if side.task == "classify" else single_outputs(records)[0]
    return mean_values(values.astype(np.float64), rng, replicates=replicates)


def match_levels(
    records: Sequence[Any],
    classes: int,
    settings: Settings,
    levels: Sequence[float] = (),
    area: tuple[float, float] | None = None,
) -> list[Matches]:
    """The matches of all detections of the records at each IoU level (default: the levels of the metric)."""
    rule, boxes, images = settings.rule, tables(records), len(records)
    levels = levels or (IOU_THRESHOLDS.tolist() if rule.name == "coco" else [settings.iou])
    prepared = prepare(*boxes, rule, images)
    known: dict[str, Any] = {"images": images, "classes": classes, "prepared": prepared, "area": area}
    return [match(*boxes, rule, x, **known) for x in levels]


def _correct(task: Task, records: Sequence[Any]) -> Bools:
    """Which images are correct, (n,), for tasks where an image is correct or wrong."""
    if task == "classify":
        return np.asarray(true_class_ranks(records)[0] == 0)
    return np.asarray(single_outputs(records)[0] > 0.5)
