"""All scores of one detector on one dataset by a named rule: AP, counts at a score, confusions."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import InputError
from holdfast.core.types import Bools, Floats, Ints
from holdfast.metrics import matching
from holdfast.metrics.boxes import DetectionTable, TruthTable
from holdfast.metrics.curves import Curve, average_precision, curve
from holdfast.metrics.matching import FALSE_POSITIVE, TRUE_POSITIVE, Matches
from holdfast.metrics.rules import APRule

Table = TypeVar("Table", TruthTable, DetectionTable)


@dataclass(frozen=True, eq=False)
class DetectionResult:
    """mAP and its components at one IoU threshold, with the rule that was used.

    `ap` is (classes,), NaN for a class without true boxes; `mean_ap` the mean of the others, NaN if none.
    `counts` and `confusion` are evaluated at the score threshold; AP is over all scores.
    """

    rule: APRule
    iou: float
    score: float
    mean_ap: float
    ap: Floats
    curves: tuple[Curve, ...]
    counts: Counts
    matches: Matches
    truth: TruthTable = field(repr=False)
    detections: DetectionTable = field(repr=False)
    images: int

    @cached_property
    def confusion(self) -> Ints:
        """Truth (rows) against detection (columns), (classes + 1, classes + 1); the last is the background.

        The diagonal holds the true positives. The false positives are then matched, best score first, with
        the unmatched true boxes of *other* classes in their image: such a pair is a confusion. The rest is
        background detected as an object (last row) or missed objects (last column).
        """
        truth, detections, matches, rule = self.truth, self.detections, self.matches, self.rule
        classes = len(matches.positives)
        passing = passes(matches.score, self.score, rule)
        hit = passing & (matches.outcome == TRUE_POSITIVE)
        free = matches.counted.copy()
        free[matches.truth[hit]] = False
        wrong = passing & (matches.outcome == FALSE_POSITIVE)
        true_rows, detected_rows = np.flatnonzero(free), np.sort(matches.detection[wrong])
        boxes, detected = _one_class(truth, true_rows), _one_class(detections, detected_rows)
        arranged = matching.arrange(detected, self.images, None)
        pairs = matching.pair_up(boxes, detected, arranged, self.images, plus_one=rule.plus_one)
        pairs_truth, pairs_detected = true_rows[pairs.truth], detected_rows[arranged.row[pairs.position]]
        passed = matching.threshold_bits(pairs.iou, np.array([self.iou]), strict=rule.iou_strict)
        differs = truth.category[pairs_truth] != detections.category[pairs_detected]
        keep = np.flatnonzero((passed > 0) & differs & (pairs.iou > 0.0))
        no = np.zeros(len(keep), dtype=bool)
        keep = keep[matching.assign(matching.select(pairs, keep), passed[keep], no, no) > 0]
        pairs_truth, pairs_detected = pairs_truth[keep], pairs_detected[keep]
        table = np.zeros((classes + 1, classes + 1), dtype=np.int64)
        np.add.at(table, (matches.category[hit], matches.category[hit]), 1)
        np.add.at(table, (truth.category[pairs_truth], detections.category[pairs_detected]), 1)
        missed = np.setdiff1d(true_rows, pairs_truth)
        table[:classes, classes] = np.bincount(truth.category[missed], minlength=classes)
        invented = np.setdiff1d(detected_rows, pairs_detected)
        table[classes, :classes] = np.bincount(detections.category[invented], minlength=classes)
        return table

    def __str__(self) -> str:
        return f"mAP {self.mean_ap:.4f} at IoU {self.iou:g} ({self.rule})"


def evaluate(
    truth: TruthTable,
    detections: DetectionTable,
    rule: APRule,
    *,
    images: int,
    classes: int,
    iou: float = 0.5,
    score: float = 0.5,
) -> DetectionResult:
    """Every score of the detections against the truth over `images` images and `classes` classes."""
    if np.isnan(score):
        raise InputError("score threshold: expected a number, got NaN")
    matches = matching.match(truth, detections, rule, iou, images=images, classes=classes)
    curves = class_curves(matches, rule)
    ap = np.array([average_precision(c, rule.interpolation) for c in curves], dtype=np.float64)
    mean_ap, counts = mean_of_present(ap), counts_at(matches, score, rule)
    return DetectionResult(rule, iou, score, mean_ap, ap, curves, counts, matches, truth, detections, images)


def class_curves(matches: Matches, rule: APRule) -> tuple[Curve, ...]:
    """The precision-recall curve of each class."""
    positives = matches.positives.tolist()
    parts = pairwise(np.searchsorted(matches.category, np.arange(len(positives) + 1)).tolist())
    return tuple(
        curve(matches.score[low:high], matches.outcome[low:high], n, end_points=rule.end_points)
        for n, (low, high) in zip(positives, parts, strict=True)
    )


def mean_of_present(values: Floats) -> float:
    """The mean of the numbers that are not NaN; NaN if there are none."""
    present = values[~np.isnan(values)]
    return float(present.mean()) if len(present) else float("nan")


@dataclass(frozen=True, eq=False)
class Counts:
    """TP, FP and FN per class, (classes,), at one score threshold."""

    tp: Ints
    fp: Ints
    fn: Ints

    @property
    def precision(self) -> Floats:
        """TP / (TP + FP) per class; NaN where nothing was detected."""
        return ratio(self.tp, self.tp + self.fp)

    @property
    def recall(self) -> Floats:
        """TP / (TP + FN) per class; NaN without true boxes."""
        return ratio(self.tp, self.tp + self.fn)

    @property
    def f1(self) -> Floats:
        """2 TP / (2 TP + FP + FN) per class: the harmonic mean of precision and recall; NaN for 0/0."""
        return ratio(2 * self.tp, 2 * self.tp + self.fp + self.fn)

    def total(self) -> Counts:
        """The sums over all classes, as one class."""
        return Counts(*(column.sum(keepdims=True) for column in (self.tp, self.fp, self.fn)))


def ratio(part: NDArray[np.int64], whole: NDArray[np.int64]) -> Floats:
    """The quotient as floats, NaN where the whole is 0."""
    return np.asarray(np.divide(part, whole, out=np.full(part.shape, np.nan), where=whole != 0))


def passes(score: Floats, threshold: float, rule: APRule) -> Bools:
    """Which scores count at the threshold, by the rule's > or ≥."""
    return score > threshold if rule.score_strict else score >= threshold


def counts_at(matches: Matches, score: float, rule: APRule) -> Counts:
    """Counts per class of the detections that pass the score threshold.

    Matching is not repeated: removing detections of lower score does not affect one that is matched before.
    """
    passing, classes = passes(matches.score, score, rule), len(matches.positives)
    tp = np.bincount(matches.category[passing & (matches.outcome == TRUE_POSITIVE)], minlength=classes)
    fp = np.bincount(matches.category[passing & (matches.outcome == FALSE_POSITIVE)], minlength=classes)
    return Counts(tp, fp, matches.positives - tp)


def _one_class(table: Table, rows: Ints) -> Table:
    """These rows of a table, all of class 0 and none of them a crowd or difficult."""
    zero = ("category", "crowd", "difficult")
    columns = {name: column[rows] for name, column in vars(table).items()}
    return replace(table, **{k: np.zeros_like(v) if k in zero else v for k, v in columns.items()})
