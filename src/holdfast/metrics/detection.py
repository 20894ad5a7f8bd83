"""Detection: all scores of one detector on one data set, by a named rule."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from holdfast.core.errors import InputError
from holdfast.core.types import Floats, Ints
from holdfast.metrics.counts import Counts, confusion, counts_at
from holdfast.metrics.curves import Curve, average_precision, curve
from holdfast.metrics.matching import Matches, match
from holdfast.metrics.rules import Rule
from holdfast.metrics.tables import DetectionTable, TruthTable


@dataclass(frozen=True, eq=False)
class DetectionResult:
    """mAP and all that stands behind it, at one IoU threshold, with the rule that was used.

    `ap` is (classes,), NaN for a class without true boxes; `mean_ap` the mean of the others, NaN if none.
    `counts` and `confusion` are taken at the score threshold; AP is over all scores.
    """

    rule: Rule
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
        """Truth (rows) against detection (columns) with the background last: see `counts.confusion`."""
        return confusion(
            self.truth, self.detections, self.matches, self.rule, self.iou, self.score, images=self.images
        )

    def __str__(self) -> str:
        return f"mAP {self.mean_ap:.4f} at IoU {self.iou:g} ({self.rule})"


def evaluate(
    truth: TruthTable,
    detections: DetectionTable,
    rule: Rule,
    *,
    images: int,
    classes: int,
    iou: float = 0.5,
    score: float = 0.5,
) -> DetectionResult:
    """Every score of the detections against the truth over `images` images and `classes` classes."""
    if np.isnan(score):
        raise InputError("score threshold: expected a number, got NaN")
    matches = match(truth, detections, rule, iou, images=images, classes=classes)
    curves = class_curves(matches, rule)
    ap = np.array([average_precision(c, rule) for c in curves], dtype=np.float64)
    return DetectionResult(
        rule=rule,
        iou=iou,
        score=score,
        mean_ap=mean_of_present(ap),
        ap=ap,
        curves=curves,
        counts=counts_at(matches, score, rule),
        matches=matches,
        truth=truth,
        detections=detections,
        images=images,
    )


def class_curves(matches: Matches, rule: Rule) -> tuple[Curve, ...]:
    """The precision-recall curve of each class."""
    classes = len(matches.positives)
    start = np.searchsorted(matches.category, np.arange(classes + 1))
    return tuple(
        curve(
            matches.score[start[c] : start[c + 1]],
            matches.outcome[start[c] : start[c + 1]],
            int(matches.positives[c]),
            end_points=rule.end_points,
        )
        for c in range(classes)
    )


def mean_of_present(values: Floats) -> float:
    """The mean of the numbers that are not NaN; NaN if there are none."""
    present = values[~np.isnan(values)]
    return float(present.mean()) if len(present) else float("nan")
