"""The range a tensor is quantised over, from what calibration saw of it.

min-max      all that was seen
percentile   all but the outermost 0.01 % on either side
entropy      the clipping that loses the least information (Kullback–Leibler divergence), after TensorRT
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

BINS = 2048
PERCENTILE = 99.99
LEVELS = 128  # integers of one sign: what TensorRT's calibrator merges the bins into
STEP = 8  # entropy tries every STEP-th clipping


@dataclass(frozen=True)
class Seen:
    """What calibration saw of a tensor: its extremes, and counts in equal bins between them."""

    low: float
    high: float
    counts: NDArray[np.int64]

    @property
    def centres(self) -> NDArray[np.float64]:
        """The middle of every bin."""
        edges = np.linspace(self.low, self.high, len(self.counts) + 1)
        middle: NDArray[np.float64] = (edges[1:] + edges[:-1]) / 2
        # Most numbers near 0 are 0 itself, from ReLU and padding.
        return np.where((edges[:-1] <= 0) & (edges[1:] >= 0), 0.0, middle)


Method: TypeAlias = Callable[[Seen], tuple[float, float]]


def minmax(seen: Seen) -> tuple[float, float]:
    """The extremes."""
    return seen.low, seen.high


def percentile(seen: Seen) -> tuple[float, float]:
    """The range without the outermost 0.01 % of the values on either side."""
    total = int(seen.counts.sum())
    if total == 0 or seen.high <= seen.low:
        return seen.low, seen.high
    share = np.concatenate([[0.0], np.cumsum(seen.counts) / total])
    edges = np.linspace(seen.low, seen.high, len(seen.counts) + 1)
    cut = 1.0 - PERCENTILE / 100
    # An edge is left out only if fewer than `cut` of the values lie beyond it.
    first = int(np.searchsorted(share, cut, side="right")) - 1
    last = int(np.searchsorted(share, 1.0 - cut, side="left"))
    return float(edges[first]), float(edges[last])


def entropy(seen: Seen) -> tuple[float, float]:
    """The extremes clipped to ±T, where 128 levels up to T tell the most of the distribution of |x|."""
    counts, limit = _magnitudes(seen)
    if counts.sum() == 0 or limit <= 0:
        return seen.low, seen.high
    counts[0] = counts[1]  # zeros of ReLU and padding say nothing about the range
    sizes = range(LEVELS, len(counts) + 1, STEP)
    kept = min(sizes, key=lambda size: (_divergence(counts, size), -size))
    threshold = limit * kept / len(counts)
    return max(seen.low, -threshold), min(seen.high, threshold)


def _magnitudes(seen: Seen) -> tuple[NDArray[np.float64], float]:
    """Counts of |x| in equal bins from 0, and where the last one ends."""
    limit = max(abs(seen.low), abs(seen.high))
    if limit == 0:
        return np.zeros(BINS), 0.0
    place = np.minimum((np.abs(seen.centres) / limit * BINS).astype(np.int64), BINS - 1)
    return np.bincount(place, weights=seen.counts, minlength=BINS).astype(np.float64), limit


def _divergence(counts: NDArray[np.float64], size: int) -> float:
    """KL(P ‖ Q): P the first `size` bins with all beyond added to the last, Q those bins in 128 levels."""
    inside = counts[:size]
    reference = inside.copy()
    reference[-1] += counts[size:].sum()
    level = np.minimum(np.arange(size) * LEVELS // size, LEVELS - 1)
    filled = inside > 0
    sums = np.bincount(level, weights=inside, minlength=LEVELS)
    shares = np.bincount(level, weights=filled, minlength=LEVELS)
    spread = np.where(filled, (sums / np.maximum(shares, 1))[level], 0.0)
    total, spread_total = reference.sum(), spread.sum()
    if total == 0 or spread_total == 0:
        return float("inf")
    p, q = reference / total, spread / spread_total
    # A bin that Q leaves empty costs as much as its count against the least there is.
    q = np.maximum(q, 1e-12)
    seen = p > 0
    return float((p[seen] * np.log(p[seen] / q[seen])).sum())


METHODS: dict[str, Method] = {"min-max": minmax, "percentile": percentile, "entropy": entropy}
