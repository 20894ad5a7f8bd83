"""Intervals: how far a score, or the difference of two, would move with other images of the same kind.

Bootstrap: draw as many images as there are, with replacement, and score again; the middle 95 % of the
scores is the interval. A *paired* interval draws the same images for both runs, so that what is hard for
both cancels out. Nothing is matched again (see replicates); that is exactly what scoring the drawn copies
would give, save that equal scores inside one image and class stay side by side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from holdfast.core.errors import InputError
from holdfast.core.types import Floats
from holdfast.metrics.replicates import mean_values

FEWEST = 5  # images an interval is drawn from: draws of fewer are too often all the same
ROUNDING = 1e-12  # differences of scores below this are rounding errors of sums in another order
SHARE = (0.0, 1.0)  # range of a mAP, an accuracy or any other rate


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
    """The mean of one value per image, of any range, with its bootstrap interval."""
    drawn = mean_values(np.asarray(values, np.float64), rng, replicates=replicates)
    return interval_of(drawn, level, within=(-math.inf, math.inf))


def mean_difference(
    before: ArrayLike, after: ArrayLike, rng: Generator, *, level: float = 0.95, replicates: int = 1000,
    bound: float = math.inf
) -> Interval:  # fmt: skip
    """The mean of after − before over the same images, with its paired bootstrap interval within ±`bound`."""
    first, second = np.asarray(before, dtype=np.float64), np.asarray(after, dtype=np.float64)
    _same_images(first, second)
    return _of_difference(mean_values(second - first, rng, replicates=replicates), level, bound)


def paired(before: Floats, after: Floats, level: float = 0.95, bound: float = 1.0) -> Interval:
    """The interval of after − before, each a score followed by those of the same replicates.

    The difference of two scores between 0 and 1 is within ±1; `bound` is for other units and longer sums.
    """
    _same_images(before, after)
    return _of_difference(after - before, level, bound)


def _of_difference(values: Floats, level: float, bound: float) -> Interval:
    """The interval of a difference; it holds 0 if the middle of the draws does, before they are moved.

    When few images differ, many draws have none of them and are exactly 0. Moving them by the noise of the
    draws' mean, however little, must not put 0 outside; nor a gain inside where no draw has one. Rounding
    errors must not decide on which side of 0 a draw is, so they are set to 0 first.
    """
    values = np.where(np.abs(values) < ROUNDING, 0.0, values)
    moved = interval_of(values, level, within=(-bound, bound))
    drawn = values[1:]
    present = drawn[~np.isnan(drawn)]
    if len(present) == 0:
        return moved
    first, last = np.quantile(present, _ends(level))
    low, high = moved.low, moved.high
    if first <= 0.0 <= last:
        low, high = min(low, 0.0), max(high, 0.0)
    if present.min() >= 0.0:
        low = max(low, 0.0)
    if present.max() <= 0.0:
        high = min(high, 0.0)
    return replace(moved, low=min(low, moved.estimate), high=max(high, moved.estimate))


def interval_of(
    values: Floats, level: float = 0.95, *, within: tuple[float, float] = SHARE
) -> Interval:  # fmt: skip
    """The interval from a score and those of its replicates, moved so that their mean is the score.

    A drawn copy repeats its hits and misses side by side, which lifts the mean AP of the replicates above
    the AP of the data set; only their spread says how much the choice of images matters. The move must not
    take an end out of the range `within` which the score is defined.
    """
    if not 0.0 < level < 1.0:
        raise InputError(f"level: expected a number between 0 and 1, got {level}")
    estimate, drawn = float(values[0]), values[1:]
    present = drawn[~np.isnan(drawn)]
    if len(present) == 0:
        return Interval(estimate, float("nan"), float("nan"), level, len(drawn))
    low, high = np.quantile(present - present.mean(), _ends(level))
    low, high = np.clip((estimate + low, estimate + high), *within)
    return Interval(estimate, float(low), float(high), level, len(drawn))


def _ends(level: float) -> tuple[float, float]:
    """Which shares of the draws lie below the two ends of the interval."""
    return (1 - level) / 2, (1 + level) / 2


def _same_images(first: NDArray[np.generic], second: NDArray[np.generic]) -> None:
    if first.shape != second.shape or first.ndim != 1:
        raise InputError(f"expected one value per image of both runs, got {first.shape} and {second.shape}")
