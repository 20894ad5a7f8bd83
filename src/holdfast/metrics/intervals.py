"""Intervals: how far a score, or the difference of two, would move with other images of the same kind.

Bootstrap: draw as many images as there are, with replacement, and score again; the middle 95 % of the
scores is the interval. A *paired* interval draws the same images for both runs, so that what is hard for
both cancels out. Nothing is matched again: a replicate gives each image a weight, the number of times it
was drawn, and precision and recall are weighted sums over the matches at hand. That is exactly what
scoring the drawn copies would give, save that equal scores inside one image and class stay side by side.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from holdfast.core.errors import InputError
from holdfast.core.types import Bools, Floats, Ints
from holdfast.metrics.curves import needed_hits
from holdfast.metrics.matching import IGNORED, TRUE_POSITIVE, Matches
from holdfast.metrics.rules import Rule

Weights = NDArray[np.int32]
CHUNK_CELLS = 8_000_000  # replicates × detections held at a time: 32 MB


@dataclass(frozen=True)
class Interval:
    """An estimate with the interval that holds it at the given level, by `replicates` bootstrap draws."""

    estimate: float
    low: float
    high: float
    level: float
    replicates: int

    def __str__(self) -> str:
        return f"{self.estimate:.4f} [{self.low:.4f}, {self.high:.4f}]"

    @property
    def excludes_zero(self) -> bool:
        """Whether 0 lies outside, so that a difference is more than the choice of images."""
        return self.low > 0.0 or self.high < 0.0


@dataclass(frozen=True)
class Flips:
    """Images right before and wrong after (lost), and the other way round (gained), of all."""

    lost: int
    gained: int
    images: int


def flips(before: ArrayLike, after: ArrayLike) -> Flips:
    """The images on which two runs disagree, from one right-or-wrong value per image and run."""
    first, second = np.asarray(before, dtype=bool), np.asarray(after, dtype=bool)
    _same_images(first, second)
    return Flips(int((first & ~second).sum()), int((~first & second).sum()), len(first))


def mean_interval(
    values: ArrayLike, rng: Generator, *, level: float = 0.95, replicates: int = 1000
) -> Interval:
    """The mean of one value per image, with its bootstrap interval."""
    column = np.asarray(values, dtype=np.float64)
    if len(column) == 0:
        raise InputError("expected at least one image for an interval, got none")
    means = np.concatenate([column @ w for w in _weights(len(column), rng, replicates, len(column))])
    return _interval(float(column.mean()), means / len(column), level)


def mean_difference(
    before: ArrayLike, after: ArrayLike, rng: Generator, *, level: float = 0.95, replicates: int = 1000
) -> Interval:
    """The mean of after − before over the same images, with its paired bootstrap interval."""
    first, second = np.asarray(before, dtype=np.float64), np.asarray(after, dtype=np.float64)
    _same_images(first, second)
    return mean_interval(second - first, rng, level=level, replicates=replicates)


def map_interval(
    matches: Sequence[Matches], rule: Rule, images: int, rng: Generator, *, level: float = 0.95,
    replicates: int = 1000
) -> Interval:  # fmt: skip
    """The mAP, averaged over the given matches (one per IoU threshold), with its bootstrap interval."""
    size = max(len(m) for m in matches)
    values = [_mean_ap(matches, rule, w) for w in _weights(images, rng, replicates, size)]
    estimate = _mean_ap(matches, rule, _once(images))
    return _interval(float(estimate[0]), np.concatenate(values), level)


def map_difference(
    before: Sequence[Matches], after: Sequence[Matches], rule: Rule, images: int, rng: Generator, *,
    level: float = 0.95, replicates: int = 1000
) -> Interval:  # fmt: skip
    """The mAP of `after` − that of `before` on the same images, with its paired bootstrap interval."""
    size = max(len(m) for m in (*before, *after))
    values = [
        _mean_ap(after, rule, w) - _mean_ap(before, rule, w) for w in _weights(images, rng, replicates, size)
    ]
    estimate = _mean_ap(after, rule, _once(images)) - _mean_ap(before, rule, _once(images))
    return _interval(float(estimate[0]), np.concatenate(values), level)


def _same_images(first: NDArray[np.generic], second: NDArray[np.generic]) -> None:
    if first.shape != second.shape or first.ndim != 1:
        raise InputError(f"expected one value per image of both runs, got {first.shape} and {second.shape}")


def _once(images: int) -> Weights:
    """The weights that leave the data set as it is."""
    return np.ones((images, 1), dtype=np.int32)


def _weights(images: int, rng: Generator, replicates: int, size: int) -> Iterator[Weights]:
    """Blocks (images, r) of how often each image was drawn, `replicates` columns in all.

    Drawn one replicate at a time, so that the numbers do not depend on the size of the blocks.
    """
    if images < 1:
        raise InputError("expected at least one image for an interval, got none")
    if replicates < 1:
        raise InputError(f"replicates: expected 1 or more, got {replicates}")
    block = max(1, CHUNK_CELLS // max(size, images, 1))
    for start in range(0, replicates, block):
        draws = (rng.integers(images, size=images) for _ in range(start, min(start + block, replicates)))
        columns = [np.bincount(draw, minlength=images).astype(np.int32) for draw in draws]
        yield np.ascontiguousarray(np.stack(columns, axis=1))


def _interval(estimate: float, values: Floats, level: float) -> Interval:
    """The interval from the scores of the replicates, moved so that their mean is the estimate.

    A drawn copy repeats its hits and misses side by side, which lifts the mean AP of the replicates above
    the AP of the data set; only their spread says how much the choice of images matters.
    """
    if not 0.0 < level < 1.0:
        raise InputError(f"level: expected a number between 0 and 1, got {level}")
    present = values[~np.isnan(values)]
    if len(present) == 0:
        return Interval(estimate, float("nan"), float("nan"), level, len(values))
    low, high = np.quantile(present - present.mean(), [(1 - level) / 2, (1 + level) / 2])
    return Interval(estimate, estimate + float(low), estimate + float(high), level, len(values))


def _mean_ap(matches: Sequence[Matches], rule: Rule, weights: Weights) -> Floats:
    """The mAP of each replicate, (r,), averaged over the matches; classes without truth are left out."""
    return np.asarray(np.mean([_one_mean_ap(m, rule, weights) for m in matches], axis=0))


def _one_mean_ap(matches: Matches, rule: Rule, weights: Weights) -> Floats:
    replicates = weights.shape[1]
    start = np.searchsorted(matches.category, np.arange(len(matches.positives) + 1))
    total, present = np.zeros(replicates), np.zeros(replicates, dtype=np.int64)
    for c in np.flatnonzero(matches.positives).tolist():
        own = matches.truth_image[matches.counted & (matches.truth_category == c)]
        positives = weights.take(own, axis=0).sum(axis=0, dtype=np.int64)
        part = slice(start[c], start[c + 1])
        shown = matches.outcome[part] != IGNORED
        hit = matches.outcome[part][shown] == TRUE_POSITIVE
        weight = weights.take(matches.image[part][shown], axis=0)
        valid = positives > 0
        total[valid] += weighted_ap(weight, hit, positives, rule)[valid]
        present += valid
    mean: Floats = np.full(replicates, np.nan)
    np.divide(total, present, out=mean, where=present > 0)
    return mean


def weighted_ap(weight: Weights, hit: Bools, positives: Ints, rule: Rule) -> Floats:
    """AP of each replicate, (r,), by the rule's interpolation.

    `weight` (n, r) counts each detection of one class, best first, `hit` (n,) says which are true positives
    and `positives` (r,) is the weighted number of true boxes.
    """
    own = weight[hit]
    seen = np.cumsum(weight, axis=0, dtype=np.int32)[hit]
    tp = np.cumsum(own, axis=0, dtype=np.int32)
    tiny = np.spacing(1) if rule.interpolation == "101-point" else 0.0
    # A detection of weight 0 is not there and must not lend its precision.
    precision = np.divide(tp, seen + tiny, out=np.zeros(tp.shape), where=own > 0)
    envelope = np.maximum.accumulate(precision[::-1], axis=0)[::-1]
    if rule.interpolation == "all-point":
        return np.asarray((envelope * own).sum(axis=0) / np.maximum(positives, 1))
    recalls = _needed(positives, 10 if rule.interpolation == "11-point" else 100)
    hits_by_replicate, envelopes = tp.T.copy(), np.vstack([envelope, np.zeros((1, tp.shape[1]))]).T.copy()
    mean: Floats = np.empty(tp.shape[1])
    for r, (counts, best) in enumerate(zip(hits_by_replicate, envelopes, strict=True)):
        values = best.take(counts.searchsorted(recalls[r]))
        if rule.end_points:
            values[0] = 1.0
        mean[r] = values.mean()
    return mean


def _needed(positives: Ints, steps: int) -> NDArray[np.int32]:
    """The least number of hits with recall ≥ k/steps, (r, steps + 1): in integers for 11 points.

    For 101 points the recall is compared as a float, as COCO's reference code does.
    """
    if steps == 10:
        return (-(-np.arange(11) * positives[:, None] // 10)).astype(np.int32)
    return needed_hits(positives, at_least=0).astype(np.int32)
