"""The grid a tensor is quantised on, from what calibration saw of it.

min-max                all values seen, asymmetric (ONNX Runtime, TensorFlow Lite)
percentile             all values seen, clipped to ±T with 99.999 % of |x| below T (ONNX Runtime)
entropy                ±T, where clipping loses the least information, symmetric (TensorRT)
two-sided percentile   all but the outermost 0.01 % at each end, asymmetric
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from holdfast.graph.rewrite.quantise import Grid, grid_over, symmetric_grid

BINS = 2048  # of either sign
PERCENTILE = 99.999  # of |x|; ONNX Runtime's default
EITHER_END = 99.99  # of the values, at each end
LEVELS = 128  # integers of one sign: what TensorRT's calibrator merges the bins into
STEP = 8  # entropy tries every STEP-th clipping


@dataclass(frozen=True)
class Seen:
    """What calibration saw of a tensor: its extremes, and counts in equal bins over [-limit, limit]."""

    low: float
    high: float
    counts: NDArray[np.int64]  # (2 · BINS,); empty without a histogram

    @property
    def limit(self) -> float:
        """The largest |x|."""
        return max(abs(self.low), abs(self.high))

    @property
    def magnitudes(self) -> NDArray[np.int64]:
        """Counts of |x| in equal bins over [0, limit]."""
        half = len(self.counts) // 2
        return np.asarray(self.counts[half:] + self.counts[:half][::-1])


Method: TypeAlias = Callable[[Seen], Grid]


def minmax(seen: Seen) -> Grid:
    """The grid over everything that was seen."""
    return grid_over(seen.low, seen.high)


def percentile(seen: Seen) -> Grid:
    """The grid over what was seen, clipped to ±T, the percentile of |x|."""
    counts = seen.magnitudes
    total = int(counts.sum())
    if total == 0:
        return grid_over(seen.low, seen.high)
    share = np.cumsum(counts) / total
    bins = int(np.searchsorted(share, PERCENTILE / 100)) + 1
    threshold = seen.limit * min(bins, len(counts)) / len(counts)
    return grid_over(max(seen.low, -threshold), min(seen.high, threshold))


def two_sided_percentile(seen: Seen) -> Grid:
    """The grid without the outermost 0.01 % of the values at each end."""
    total = int(seen.counts.sum())
    if total == 0 or seen.high <= seen.low:
        return grid_over(seen.low, seen.high)
    share = np.concatenate([[0.0], np.cumsum(seen.counts) / total])
    edges = np.linspace(-seen.limit, seen.limit, len(seen.counts) + 1)
    cut = 1.0 - EITHER_END / 100
    # An edge is left out only if fewer than `cut` of the values lie beyond it.
    first = int(np.searchsorted(share, cut, side="right")) - 1
    last = int(np.searchsorted(share, 1.0 - cut, side="left"))
    return grid_over(max(seen.low, float(edges[first])), min(seen.high, float(edges[last])))


def entropy(seen: Seen) -> Grid:
    """The symmetric grid up to T, where 128 levels up to T tell the most of the distribution of |x|.

    The search of TensorRT's entropy calibrator, with the details of NVIDIA's pytorch-quantization.
    """
    counts = seen.magnitudes.astype(np.float64)
    if counts.sum() == 0 or seen.limit == 0:
        return symmetric_grid(seen.limit)
    counts[0] = counts[1]  # zeros of ReLU and padding say nothing about the range
    sizes = range(LEVELS, len(counts) + 1, STEP)
    kept = min(sizes, key=lambda size: (_divergence(counts, size), -size))
    return symmetric_grid(seen.limit * kept / len(counts))


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


METHODS: dict[str, Method] = {
    "min-max": minmax,
    "percentile": percentile,
    "entropy": entropy,
    "two-sided percentile": two_sided_percentile,
}
