"""Confidence intervals of a score, or of the difference of two, over the choice of images.

Bootstrap: draw as many images as there are, with replacement, and score again; the middle 95 % of the
scores is the interval. A *paired* interval draws the same images for both runs, so that the common
difficulty of images cancels out. A replicate gives each image a weight, the number of times it was drawn.
Matching is not repeated: precision, recall and pixel counts are weighted sums of the existing matches. This
equals scoring the drawn copies, except that equal scores inside one image and class stay adjacent. Draws come
from the generator one replicate at a time, so that two runs on the same images, with generators of the same
seed, use the same draws. Every `*_values` function gives (1 + replicates,) values, the first of which is that
of the dataset itself.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from holdfast.core.errors import InputError
from holdfast.core.types import Floats, Ints
from holdfast.metrics.curves import RECALLS
from holdfast.metrics.matching import IGNORED, TRUE_POSITIVE, Matches
from holdfast.metrics.rules import APRule

FEWEST = 5  # fewest images for an interval: draws from fewer are too often identical
ROUNDING = 1e-12  # differences of scores below this are rounding errors of sums in another order
SHARE = (0.0, 1.0)  # range of a mAP, an accuracy or any other rate


@dataclass(frozen=True)
class Interval:
    """An estimate with its interval at the given level, from `replicates` bootstrap draws."""

    estimate: float
    low: float
    high: float
    level: float
    replicates: int

    def __str__(self) -> str:
        return f"{self.estimate:.4f} [{self.low:.4f}, {self.high:.4f}]"

    @property
    def excludes_zero(self) -> bool:
        """Whether 0 lies outside the interval, so that a difference is significant."""
        return self.low > 0.0 or self.high < 0.0


@dataclass(frozen=True)
class Flips:
    """Number of images right before and wrong after (lost), and vice versa (gained), out of all."""

    lost: int
    gained: int
    images: int


def flips(before: ArrayLike, after: ArrayLike) -> Flips:
    """The images on which two runs disagree, from one right-or-wrong value per image and run."""
    first, second = np.asarray(before, dtype=bool), np.asarray(after, dtype=bool)
    _same_images(first, second)
    return Flips(int((first & ~second).sum()), int((~first & second).sum()), len(first))


def mean_interval(values: ArrayLike, rng: Generator, replicates: int = 1000) -> Interval:
    """The mean of one value per image, of any range, with its bootstrap interval."""
    replicated = mean_values(np.asarray(values, np.float64), rng, replicates=replicates)
    return interval_of(replicated, within=(-math.inf, math.inf))


def mean_difference(
    before: ArrayLike, after: ArrayLike, rng: Generator, replicates: int = 1000, bound: float = math.inf
) -> Interval:
    """The mean of after − before over the same images, with its paired bootstrap interval within ±`bound`."""
    first, second = np.asarray(before, dtype=np.float64), np.asarray(after, dtype=np.float64)
    _same_images(first, second)
    return _difference_interval(mean_values(second - first, rng, replicates=replicates), 0.95, bound)


def paired(before: Floats, after: Floats, level: float = 0.95, bound: float = 1.0) -> Interval:
    """The interval of after − before, each a score followed by those of the same replicates.

    The difference of two scores between 0 and 1 is within ±1; `bound` is for other units and longer sums.
    """
    _same_images(before, after)
    return _difference_interval(after - before, level, bound)


def _difference_interval(values: Floats, level: float, bound: float) -> Interval:
    """The interval of a difference; it contains 0 if the uncentred quantiles of the draws do.

    If few images differ, many draws contain none of them and are exactly 0. Centring them by the noise of
    the draws' mean must not exclude 0, nor include a gain that no draw has. Rounding errors must not decide
    the sign of a draw, so they are set to 0 first.
    """
    values = np.where(np.abs(values) < ROUNDING, 0.0, values)
    moved = interval_of(values, level, within=(-bound, bound))
    replicated = values[1:]
    present = replicated[~np.isnan(replicated)]
    if len(present) == 0:
        return moved
    first, last = np.quantile(present, [(1 - level) / 2, (1 + level) / 2])
    low, high = moved.low, moved.high
    if first <= 0.0 <= last:
        low, high = min(low, 0.0), max(high, 0.0)
    low = max(low, 0.0) if present.min() >= 0.0 else low
    high = min(high, 0.0) if present.max() <= 0.0 else high
    return replace(moved, low=min(low, moved.estimate), high=max(high, moved.estimate))


def interval_of(values: Floats, level: float = 0.95, *, within: tuple[float, float] = SHARE) -> Interval:
    """The interval from a score and those of its replicates, shifted so that their mean is the score.

    A drawn copy repeats its hits and misses next to each other, which raises the mean AP of the replicates
    above the AP of the dataset; only their spread measures the effect of the choice of images. The ends are
    clipped to the range `within` which the score is defined.
    """
    if not 0.0 < level < 1.0:
        raise InputError(f"level: expected a number between 0 and 1, got {level}")
    estimate, replicated = float(values[0]), values[1:]
    present = replicated[~np.isnan(replicated)]
    if len(present) == 0:
        return Interval(estimate, float("nan"), float("nan"), level, len(replicated))
    low, high = np.quantile(present - present.mean(), [(1 - level) / 2, (1 + level) / 2])
    low, high = np.clip((estimate + low, estimate + high), *within)
    return Interval(estimate, float(low), float(high), level, len(replicated))


def _same_images(first: NDArray[np.generic], second: NDArray[np.generic]) -> None:
    if first.shape != second.shape or first.ndim != 1:
        raise InputError(f"expected one value per image of both runs, got {first.shape} and {second.shape}")


Weights = NDArray[np.int32]
CHUNK_CELLS = 8_000_000  # replicates × detections in memory at a time: 32 MB

# COCO's 101 recalls are multiples of the float 0.01; some lie slightly above k/100, so that a recall of
# exactly k/100 does not reach them.
_MISSED: NDArray[np.bool_] = np.arange(101) / 100 < RECALLS


def blocks(images: int, rng: Generator, replicates: int, size: int) -> Iterator[Weights]:
    """Blocks (images, r) of the number of draws of each image; the first column is the dataset itself.

    `size` is the number of rows in memory for each column. Replicates are drawn one at a time, so that the
    numbers do not depend on the size of the blocks.
    """
    if images < 1:
        raise InputError("expected at least one image for an interval, got none")
    if replicates < 1:
        raise InputError(f"replicates: expected 1 or more, got {replicates}")
    yield np.ones((images, 1), dtype=np.int32)
    block = max(1, CHUNK_CELLS // max(size, images, 1))
    for start in range(0, replicates, block):
        draws = (rng.integers(images, size=images) for _ in range(start, min(start + block, replicates)))
        columns = [np.bincount(draw, minlength=images).astype(np.int32) for draw in draws]
        yield np.ascontiguousarray(np.stack(columns, axis=1))


def mean_values(values: Floats, rng: Generator, *, replicates: int = 1000) -> Floats:
    """The mean of one value per image."""
    n = len(values)
    return np.concatenate([_sum(values[:, None] * w) / n for w in blocks(n, rng, replicates, n)])


def miou_values(
    confusions: Sequence[Ints], rng: Generator, *, replicates: int = 1000, category: int | None = None
) -> Floats:
    """The mean IoU over classes, or the IoU of one, from one table of pixels (classes, classes) per image."""
    tables = np.asarray(confusions, np.float64)
    n = len(tables)
    if n == 0:
        raise InputError("expected at least one image for an interval, got none")
    # Sums of integers below 2^53 are exact in floats in any order.
    parts = [np.diagonal(tables, axis1=1, axis2=2), tables.sum(axis=2), tables.sum(axis=1)]
    if category is not None:
        parts = [part[:, [category]] for part in parts]
    means = []
    for weights in blocks(n, rng, replicates, n):
        hit, in_truth, predicted = (part.T @ weights.astype(np.float64) for part in parts)
        union = in_truth + predicted - hit
        present = union > 0
        iou = np.divide(hit, union, out=np.zeros(hit.shape), where=present)
        count = present.sum(axis=0)
        means.append(np.divide(_sum(iou), count, out=np.full(len(count), np.nan), where=count > 0))
    return np.concatenate(means)


def map_values(
    matches: Sequence[Matches], rule: APRule, images: int, rng: Generator, *, replicates: int = 1000
) -> Floats:
    """The mAP, averaged over the matches of one run (one per IoU threshold)."""
    rankings = list(_rankings(matches))
    size = max((len(r.image) for r in rankings), default=1)
    return np.concatenate([_mean_ap(rankings, rule, w) for w in blocks(images, rng, replicates, size)])


@dataclass(frozen=True, eq=False)
class _Ranking:
    """One class at the thresholds that rank the same detections (the others ignore some)."""

    truth_image: Ints  # images of its true boxes
    image: Ints  # (n,) images of the ranked detections, best first, up to the last hit
    hit: Ints  # (h,) places of those that are a hit at some threshold
    # hits of a threshold, and the number of thresholds with the same hits
    levels: tuple[tuple[Ints, int], ...]
    thresholds: int


def _rankings(matches: Sequence[Matches]) -> Iterator[_Ranking]:
    """The rankings of the classes that have truth, independent of the weights."""
    first = matches[0]
    if any(not np.array_equal(m.detection, first.detection) for m in matches):
        raise InputError("expected matches of the same detections at several IoU thresholds")
    start = np.searchsorted(first.category, np.arange(len(first.positives) + 1))
    outcomes = np.stack([m.outcome for m in matches])
    for c in np.flatnonzero(first.positives).tolist():
        own = first.truth_image[first.counted & (first.truth_category == c)]
        image, outcome = first.image[start[c] : start[c + 1]], outcomes[:, start[c] : start[c + 1]]
        groups: dict[bytes, list[int]] = {}
        for level, mask in enumerate(outcome != IGNORED):
            groups.setdefault(mask.tobytes(), []).append(level)
        for levels in groups.values():
            mask = outcome[levels[0]] != IGNORED
            hits = (outcome[levels] == TRUE_POSITIVE)[:, mask]
            places = np.flatnonzero(hits.any(axis=0))
            ranked_images = image[mask][: places[-1] + 1 if len(places) else 0]
            distinct, times = np.unique(hits[:, places], axis=0, return_counts=True)
            which = tuple(zip(map(np.flatnonzero, distinct), times.tolist(), strict=True))
            yield _Ranking(own, ranked_images, places, which, len(levels))


def _mean_ap(rankings: Sequence[_Ranking], rule: APRule, weights: Weights) -> Floats:
    """The mAP of each replicate, (r,), averaged over thresholds; classes without truth are skipped."""
    total, count = np.zeros(weights.shape[1]), np.zeros(weights.shape[1], dtype=np.int64)
    for ranking in rankings:
        positives = weights.take(ranking.truth_image, axis=0).sum(axis=0)
        valid = positives > 0
        ranked, start = np.empty((len(ranking.hit), weights.shape[1]), dtype=np.int32), 0
        for row, place in enumerate(ranking.hit.tolist()):
            np.add.reduce(weights.take(ranking.image[start : place + 1], axis=0), axis=0, out=ranked[row])
            start = place + 1
        _running(np.add, ranked)
        own, summed = weights.take(ranking.image[ranking.hit], axis=0), np.zeros(weights.shape[1])
        for level, times in ranking.levels:
            summed += times * _ap(own[level], ranked[level], np.maximum(positives, 1), rule)
        total[valid] += summed[valid]
        count += valid * ranking.thresholds
    return np.asarray(np.divide(total, count, out=np.full(len(total), np.nan), where=count > 0))


def _ap(own: Weights, ranked: Weights, positives: Ints, rule: APRule) -> Floats:
    """AP of each replicate, (r,), by the rule's interpolation.

    `own` (h, r) counts the true positives of one class, best first, `ranked` (h, r) all detections up to each
    of them, and `positives` (r,) the true boxes. Each recall level reads the envelope at the first hit that
    reaches it, so a hit counts as often as there are recall levels between the previous hit and it. A hit of
    weight 0 has no effect: its precision is at most that of the previous hit.
    """
    tp = _running(np.add, own.copy())
    # COCO's reference adds the smallest step to the denominator, which turns 1/1 into 1 − 2e-16.
    fine = rule.interpolation == "101-point"
    envelope = tp / (ranked + np.spacing(1) if fine else np.maximum(ranked, 1))
    _running(np.maximum, envelope[::-1])
    if rule.interpolation == "all-point":
        return np.asarray(_sum(envelope * own) / positives)
    steps = 100 if fine else 10
    counted = _reached(tp, positives, steps) - float(rule.end_points)
    counted[1:] -= counted[:-1].copy()
    return np.asarray((_sum(envelope * counted) + float(rule.end_points)) / (steps + 1))


def _reached(tp: Weights, positives: Ints, steps: int) -> Floats:
    """How many of the recalls 0, 1/steps … 1 each number of hits reaches, (h, r).

    For 101 points the recall is compared as a float, as COCO's reference code does.
    """
    # floor is exact: the quotient of integers below 2^31 cannot round up to the next one.
    exact = tp * steps / positives
    floor = np.floor(exact)
    count = floor + 1.0
    if steps == 100:
        at = np.flatnonzero(exact == floor)
        count.reshape(-1)[at] -= _MISSED[floor.reshape(-1)[at].astype(np.int64)]
    return np.asarray(count)


def _running(operation: np.ufunc, rows: NDArray[Any]) -> NDArray[Any]:
    """Combine each row with the previous one in place; ufunc.accumulate takes five times as long."""
    for before, row in pairwise(rows):
        operation(before, row, out=row)
    return rows


def _sum(rows: Floats) -> Floats:
    """The sum of the rows, added one by one, so that it is bit-identical for any number of columns."""
    return np.asarray(sum(rows, np.zeros(rows.shape[1])))
