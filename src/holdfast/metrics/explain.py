"""Explain: the road from detections to average precision, step by step, for one class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from holdfast.core.errors import InputError
from holdfast.metrics.counts import passes
from holdfast.metrics.curves import (
    Curve,
    all_point_ap,
    average_precision,
    eleven_point_ap,
    eleven_points,
    hundred_one_point_ap,
    trapezoid_area,
)
from holdfast.metrics.detection import class_curves
from holdfast.metrics.matching import FALSE_POSITIVE, IGNORED, TRUE_POSITIVE, Matches, match
from holdfast.metrics.rules import Rule
from holdfast.metrics.tables import DetectionTable, TruthTable


@dataclass(frozen=True)
class Step:
    """One detection, best score first: what it met, what it counts as and why, and the sums so far."""

    place: int
    detection: int
    image: int
    score: float
    truth: int
    iou: float
    outcome: str
    why: str
    tp: int
    fp: int
    precision: float
    recall: float


@dataclass(frozen=True)
class ThresholdRow:
    """The counts of all detections that pass one score threshold."""

    score: float
    tp: int
    fp: int
    fn: int
    precision: float
    recall: float


@dataclass(frozen=True)
class RecallPoint:
    """Precision read at recall k/10, and the number of hits that this recall needs."""

    tenth: int
    hits_needed: int
    precision: float


@dataclass(frozen=True)
class Explanation:
    """Everything behind the AP of one class.

    `by_interpolation` holds the AP that the same curve has under other ways of averaging.
    """

    class_name: str
    rule: Rule
    iou: float
    positives: int
    steps: tuple[Step, ...]
    thresholds: tuple[ThresholdRow, ...]
    points: tuple[RecallPoint, ...]
    ap: float
    by_interpolation: dict[str, float]

    def at(self, score: float) -> ThresholdRow:
        """The counts at any score threshold, by the rule's > or ≥."""
        return _threshold_row(self.steps, score, self.rule, self.positives)


def explain(
    truth: TruthTable,
    detections: DetectionTable,
    rule: Rule,
    *,
    images: int,
    class_names: Sequence[str],
    iou: float,
    class_index: int = 0,
) -> Explanation:
    """The procedure of the lecture on the given data, for one class, under the given rule."""
    if not 0 <= class_index < len(class_names):
        raise InputError(f"class index: expected 0 to {len(class_names) - 1}, got {class_index}")
    matches = match(truth, detections, rule, iou, images=images, classes=len(class_names))
    curve = class_curves(matches, rule)[class_index]
    positives = int(matches.positives[class_index])
    steps = _steps(matches, rule, iou, class_index)
    return Explanation(
        class_name=class_names[class_index],
        rule=rule,
        iou=iou,
        positives=positives,
        steps=steps,
        thresholds=tuple(_threshold_row(steps, k / 100, rule, positives) for k in range(100, -1, -1)),
        points=_points(curve),
        ap=average_precision(curve, rule),
        by_interpolation={
            "11-point": eleven_point_ap(curve),
            "all-point": all_point_ap(curve),
            "101-point": hundred_one_point_ap(curve),
            "straight lines": trapezoid_area(curve) if positives else float("nan"),
        },
    )


def _steps(matches: Matches, rule: Rule, iou: float, class_index: int) -> tuple[Step, ...]:
    at = np.flatnonzero(matches.category == class_index)
    positives = int(matches.positives[class_index])
    tp = np.cumsum(matches.outcome[at] == TRUE_POSITIVE).tolist()
    fp = np.cumsum(matches.outcome[at] == FALSE_POSITIVE).tolist()
    words = {TRUE_POSITIVE: "TP", FALSE_POSITIVE: "FP", IGNORED: "ignored"}
    return tuple(
        Step(
            place=place + 1,
            detection=int(matches.detection[i]),
            image=int(matches.image[i]),
            score=float(matches.score[i]),
            truth=int(matches.truth[i] if matches.truth[i] >= 0 else matches.best[i]),
            iou=float(matches.overlap[i]),
            outcome=words[int(matches.outcome[i])],
            why=_why(matches, i, rule, iou),
            tp=tp[place],
            fp=fp[place],
            precision=_quotient(tp[place], tp[place] + fp[place]),
            recall=_quotient(tp[place], positives),
        )
        for place, i in enumerate(at.tolist())
    )


def _why(matches: Matches, i: int, rule: Rule, iou: float) -> str:
    """The reason for the outcome of the i-th detection, in words."""
    sign = ">" if rule.iou_strict else "≥"
    outcome, overlap = int(matches.outcome[i]), float(matches.overlap[i])
    if outcome == IGNORED:
        return f"lies on a box that does not count (IoU {overlap:.3f})"
    if outcome == TRUE_POSITIVE:
        second = matches.truth[i] != matches.best[i]
        return f"IoU {overlap:.3f} {sign} {iou:g}, box was free" + (
            " (its best box was not, so it took the next)" if second else ""
        )
    if matches.best[i] < 0:
        return "meets no true box of its class in this image: IoU 0"
    passed = overlap > iou if rule.iou_strict else overlap >= iou
    if passed:
        return f"IoU {overlap:.3f} {sign} {iou:g}, but the box was taken by a detection of higher score"
    return f"IoU {overlap:.3f} is not {sign} {iou:g}"


def _threshold_row(steps: Sequence[Step], score: float, rule: Rule, positives: int) -> ThresholdRow:
    kept = passes(np.array([step.score for step in steps], dtype=np.float64), score, rule)
    last = int(kept.sum())  # scores fall, so the kept ones come first
    tp, fp = (steps[last - 1].tp, steps[last - 1].fp) if last else (0, 0)
    return ThresholdRow(score, tp, fp, positives - tp, _quotient(tp, tp + fp), _quotient(tp, positives))


def _points(curve: Curve) -> tuple[RecallPoint, ...]:
    if not curve.positives:
        return ()
    values = eleven_points(curve).tolist()
    # k/10 of n true boxes, rounded up, in integers
    return tuple(RecallPoint(k, -(-k * curve.positives // 10), values[k]) for k in range(11))


def _quotient(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")
