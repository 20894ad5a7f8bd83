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
from holdfast.metrics.matching import IGNORED, TRUE_POSITIVE, Matches
from holdfast.metrics.rules import Rule

CHUNK_CELLS = 4_000_000  # replicates × detections held at a time: 32 MB


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
    means = np.concatenate([w @ column for w in _weights(len(column), rng, replicates, len(column))])
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
    values = [_mean_ap(matches, rule, w, images) for w in _weights(images, rng, replicates, size)]
    estimate = _mean_ap(matches, rule, np.ones((1, images), dtype=np.int64), images)
    return _interval(float(estimate[0]), np.concatenate(values), level)


def map_difference(
    before: Sequence[Matches], after: Sequence[Matches], rule: Rule, images: int, rng: Generator, *,
    level: float = 0.95, replicates: int = 1000
) -> Interval:  # fmt: skip
    """The mAP of `after` − that of `before` on the same images, with its paired bootstrap interval."""
    size = max(len(m) for m in (*before, *after))
    values = [
        _mean_ap(after, rule, w, images) - _mean_ap(before, rule, w, images)
        for w in _weights(images, rng, replicates, size)
    ]
    once = np.ones((1, images), dtype=np.int64)
    estimate = _mean_ap(after, rule, once, images) - _mean_ap(before, rule, once, images)
    return _interval(float(estimate[0]), np.concatenate(values), level)


def _same_images(first: NDArray[np.generic], second: NDArray[np.generic]) -> None:
    if first.shape != second.shape or first.ndim != 1:
        raise InputError(f"expected one value per image of both runs, got {first.shape} and {second.shape}")


def _weights(images: int, rng: Generator, replicates: int, size: int) -> Iterator[Ints]:
    """Blocks (r, images) of how often each image was drawn, `replicates` rows in all.

    Drawn a row at a time, so that the numbers do not depend on the size of the blocks.
    """
    if images < 1:
        raise InputError("expected at least one image for an interval, got none")
    if replicates < 1:
        raise InputError(f"replicates: expected 1 or more, got {replicates}")
    block = max(1, CHUNK_CELLS // max(size, images, 1))
    for start in range(0, replicates, block):
        rows = range(start, min(start + block, replicates))
        yield np.stack([np.bincount(rng.integers(images, size=images), minlength=images) for _ in rows])


def _interval(estimate: float, values: Floats, level: float) -> Interval:
    if not 0.0 < level < 1.0:
        raise InputError(f"level: expected a number between 0 and 1, got {level}")
    low, high = np.nanquantile(values, [(1 - level) / 2, (1 + level) / 2]) if np.isfinite(values).any() else (
        float("nan"), float("nan")
    )  # fmt: skip
    return Interval(estimate, float(low), float(high), level, len(values))


def _mean_ap(matches: Sequence[Matches], rule: Rule, weights: Ints, images: int) -> Floats:
    """The mAP of each replicate, (r,), averaged over the matches; classes without truth are left out."""
    return np.asarray(np.mean([_one_mean_ap(m, rule, weights, images) for m in matches], axis=0))


def _one_mean_ap(matches: Matches, rule: Rule, weights: Ints, images: int) -> Floats:
    classes = len(matches.positives)
    counted = matches.truth_category[matches.counted] * images + matches.truth_image[matches.counted]
    per_image = np.bincount(counted, minlength=classes * images).reshape(classes, images)
    # In floats, which are exact for counts, because only those have a fast product; (r, classes).
    positives = np.rint(weights.astype(np.float64) @ per_image.T.astype(np.float64)).astype(np.int64)
    start = np.searchsorted(matches.category, np.arange(classes + 1))
    total, present = np.zeros(len(weights)), np.zeros(len(weights), dtype=np.int64)
    for c in np.flatnonzero(matches.positives).tolist():
        part = slice(start[c], start[c + 1])
        shown = matches.outcome[part] != IGNORED
        hit = matches.outcome[part][shown] == TRUE_POSITIVE
        weight = weights[:, matches.image[part][shown]]
        ap = weighted_ap(weight, hit, positives[:, c], rule)
        valid = positives[:, c] > 0
        total[valid] += ap[valid]
        present += valid
    mean: Floats = np.full(len(weights), np.nan)
    np.divide(total, present, out=mean, where=present > 0)
    return mean


def weighted_ap(weight: Ints, hit: Bools, positives: Ints, rule: Rule) -> Floats:
    """AP of each row of weights, (r,), by the rule's interpolation.

    `weight` (r, n) counts each detection of one class, best first, `hit` (n,) says which are true positives
    and `positives` (r,) is the weighted number of true boxes.
    """
    seen = np.cumsum(weight, axis=1)[:, hit]
    tp = np.cumsum(weight[:, hit], axis=1)
    tiny = np.spacing(1) if rule.interpolation == "101-point" else 0.0
    drawn = weight[:, hit] > 0  # a detection of weight 0 is not there and must not lend its precision
    precision = np.divide(tp, seen + tiny, out=np.zeros(tp.shape), where=drawn)
    envelope = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
    if rule.interpolation == "all-point":
        return np.asarray((envelope * weight[:, hit]).sum(axis=1) / np.maximum(positives, 1))
    steps = 10 if rule.interpolation == "11-point" else 100
    envelope = np.concatenate([envelope, np.zeros((len(tp), 1))], axis=1)
    values = np.stack([_read(tp[r], envelope[r], int(positives[r]), steps) for r in range(len(tp))])
    if rule.end_points:
        values[:, 0] = 1.0
    return np.asarray(values.mean(axis=1), dtype=np.float64)


def _read(tp: Ints, envelope: Floats, positives: int, steps: int) -> Floats:
    """Precision at the recalls 0, 1/steps … 1: integers for 11 points, floats as in COCO for 101."""
    if steps == 10:
        return envelope[np.searchsorted(tp * 10, np.arange(11) * positives, side="left")]
    return envelope[np.searchsorted(tp / max(positives, 1), np.linspace(0.0, 1.0, 101), side="left")]
