"""Curves: precision over recall, and the three ways of averaging it.

With detections in order of descending score, the running counts TP and FP, and n true boxes:
precision = TP / (TP + FP), recall = TP / n.  Counts are integers; they are compared as integers.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from holdfast.core.errors import InputError
from holdfast.core.types import Floats, Ints
from holdfast.metrics.rules import Interpolation

RECALLS: Floats = np.linspace(0.0, 1.0, 101)


@dataclass(frozen=True, eq=False)
class Curve:
    """Precision and recall of one class after each detection that counts, best score first."""

    score: Floats
    tp: Ints
    fp: Ints
    positives: int
    end_points: bool = False  # the plotted curve also starts at (recall 0, precision 1) and ends at (1, 0)

    @property
    def precision(self) -> Floats:
        """TP / (TP + FP) after each detection, (n,)."""
        return np.asarray(self.tp / np.maximum(self.tp + self.fp, 1), dtype=np.float64)

    @property
    def recall(self) -> Floats:
        """TP / number of true boxes after each detection, (n,); NaN without true boxes."""
        return self.tp / self.positives if self.positives else np.full(len(self.tp), np.nan)

    def points(self) -> tuple[Floats, Floats]:
        """Recall and precision as plotted: with the end points if the rule has them."""
        if not self.end_points:
            return self.recall, self.precision
        return np.concatenate([[0.0], self.recall, [1.0]]), np.concatenate([[1.0], self.precision, [0.0]])


def curve(score: ArrayLike, outcome: ArrayLike, positives: int, *, end_points: bool = False) -> Curve:
    """The curve of detections by descending score; outcome 1 is a hit, 0 a false positive, −1 ignored."""
    scores, outcomes = np.asarray(score, dtype=np.float64), np.asarray(outcome)
    if scores.shape != outcomes.shape:
        raise InputError(f"expected as many scores as outcomes, got {scores.shape} and {outcomes.shape}")
    if np.any(scores[1:] > scores[:-1]):
        raise InputError("expected scores in descending order")
    counted = outcomes >= 0
    hit = outcomes[counted] == 1
    return Curve(scores[counted], np.cumsum(hit), np.cumsum(~hit), int(positives), end_points)


def _sampled(c: Curve, precision: Floats, places: Ints) -> Floats:
    """The largest precision at or after each place; 0 after the last detection."""
    values = np.append(np.maximum.accumulate(precision[::-1])[::-1], 0.0)[places]
    if c.end_points:  # (recall 0, precision 1) is a point of the curve; (1, 0) can never be the largest
        values[0] = 1.0
    return values


def eleven_points(c: Curve) -> Floats:
    """The largest precision at recall ≥ 0, .1 … 1, (11,), 0 where that recall is not reached.

    Recall TP/n ≥ k/10 is tested as 10·TP ≥ k·n: the float 0.1·6 is 0.6000000000000001 and would drop 9/15.
    """
    return _sampled(c, c.precision, np.searchsorted(c.tp * 10, np.arange(11) * c.positives, side="left"))


def hundred_one_points(c: Curve) -> Floats:
    """The largest precision at recall ≥ 0, .01 … 1, (101,), compared as COCO does, in floats."""
    # COCO's reference adds the smallest step to the denominator, which turns 1/1 into 1 − 2e-16.
    precision = c.tp / (c.tp + c.fp + np.spacing(1))
    return _sampled(c, precision, np.searchsorted(c.recall, RECALLS, side="left"))


def average_precision(c: Curve, interpolation: Interpolation) -> float:
    """AP of one class: the mean of the 11 or 101 precisions, or the area; NaN without true boxes.

    The area is that under the largest precision at or right of each recall. The end points do not change it:
    they have no width at recall 0 and no height at recall 1.
    """
    if not c.positives:
        return float("nan")
    if interpolation == "all-point":
        envelope = np.maximum.accumulate(c.precision[::-1])[::-1]
        return float((envelope * np.diff(c.tp, prepend=0)).sum() / c.positives)
    return float((eleven_points(c) if interpolation == "11-point" else hundred_one_points(c)).mean())


def trapezoid_area(c: Curve) -> float:
    """The area under straight lines between the plotted points (no rule uses it; shown for comparison)."""
    recall, precision = c.points()
    return float(np.sum(np.diff(recall) * (precision[1:] + precision[:-1]) / 2.0))


def needed_hits(positives: Ints, *, at_least: int) -> Ints:
    """The least number of hits whose recall, as a float, reaches each of the 101 recalls, (classes, 101)."""
    total = np.maximum(positives, 1)[:, None]
    needed = np.floor(RECALLS[None, :] * total).astype(np.int64) - 1
    for _ in range(3):  # rounding changes the result by at most one, so start one below and increment
        needed += needed / total < RECALLS[None, :]
    return np.maximum(needed, at_least)
