"""Calibration for 8-bit integers: tensor statistics over images or texts, and the resulting grids.

Equations (9) and (10) of the SysNoise paper; ⌊·⌉ rounds halves to the even integer, as QuantizeLinear does:

    X̄ = clip(⌊X / s⌉ + z, N_min, N_max)      (9)
    X̂ = s · (X̄ − z)                          (10)

The ranges of activations come from one of these METHODS:

    min-max                all observed values, asymmetric (ONNX Runtime, TensorFlow Lite)
    percentile             all observed values, clipped to ±T with 99.999 % of |x| below T (ONNX Runtime)
    entropy                ±T, where clipping loses the least information, symmetric (TensorRT)
    two-sided percentile   all but the outermost 0.01 % at each end, asymmetric

Inputs are run one at a time and counted in bins, so memory does not grow with their number.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from holdfast.core.types import Tensor
from holdfast.graph.rewrite.types import CannotRewrite, Feeds, ModelProto
from holdfast.graph.session import condense, open_session

LOW, HIGH = -128, 127  # N_min, N_max of signed 8-bit integers
SMALLEST = 2.0**-126  # the least normal float32: a scale must not be 0
Floats: TypeAlias = NDArray[np.floating[Any]]
Integers: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True)
class QuantGrid:
    """The scale s and the zero point z of a tensor: the real numbers that an 8-bit integer can stand for."""

    scale: float
    zero: int


def quantise(
    x: Floats, scale: float | Floats, zero: int | Integers = 0, low: int = LOW, high: int = HIGH
) -> Integers:
    """The integers X̄ of equation (9); scale and zero may be arrays that broadcast (one per channel)."""
    return np.asarray(np.clip(np.rint(x / scale).astype(np.int64) + zero, low, high))


def dequantise(integers: Integers, scale: float | Floats, zero: int | Integers = 0) -> Floats:
    """The real numbers X̂ of equation (10), in the precision of the scale."""
    return np.asarray(scale * (integers - zero))


def grid_over(low: float, high: float) -> QuantGrid:
    """The grid that covers [low, high], widened to hold 0 exactly: padding and ReLU must stay exact."""
    low, high = min(float(low), 0.0), max(float(high), 0.0)
    # float32, as the model stores it: the zero point must fit the scale that is used
    scale = float(np.float32(max((high - low) / (HIGH - LOW), SMALLEST)))
    zero = int(np.clip(np.rint(LOW - low / scale), LOW, HIGH))
    return QuantGrid(scale, zero)


def symmetric_grid(largest: float) -> QuantGrid:
    """The grid of zero point 0 that covers ±largest, as TensorRT has it for activations."""
    return QuantGrid(float(np.float32(max(float(largest) / HIGH, SMALLEST))), 0)


def symmetric_scale(largest: Floats) -> NDArray[np.float32]:
    """The scales of weights up to ±largest: z = 0 and integers −127…127, so that no sign is favoured."""
    return np.maximum(np.asarray(largest, np.float64) / HIGH, 1e-12).astype(np.float32)


BINS = 2048  # of either sign
PERCENTILE = 99.999  # of |x|; ONNX Runtime's default
EITHER_END = 99.99  # of the values, at each end
LEVELS = 128  # integers of one sign: what TensorRT's calibrator merges the bins into
STEP = 8  # entropy tries every STEP-th clipping


@dataclass(frozen=True)
class TensorStatistics:
    """Calibration statistics of a tensor: its extremes, and counts in equal bins over [-limit, limit]."""

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


def percentile(statistics: TensorStatistics) -> QuantGrid:
    """The grid over the observed range, clipped to ±T, the percentile of |x|."""
    counts = statistics.magnitudes
    total = int(counts.sum())
    if total == 0:
        return grid_over(statistics.low, statistics.high)
    bins = int(np.searchsorted(np.cumsum(counts) / total, PERCENTILE / 100)) + 1
    threshold = statistics.limit * min(bins, len(counts)) / len(counts)
    return grid_over(max(statistics.low, -threshold), min(statistics.high, threshold))


def two_sided_percentile(statistics: TensorStatistics) -> QuantGrid:
    """The grid without the outermost 0.01 % of the values at each end."""
    total = int(statistics.counts.sum())
    if total == 0 or statistics.high <= statistics.low:
        return grid_over(statistics.low, statistics.high)
    share = np.concatenate([[0.0], np.cumsum(statistics.counts) / total])
    edges = np.linspace(-statistics.limit, statistics.limit, len(statistics.counts) + 1)
    tail = 1.0 - EITHER_END / 100
    # An edge is excluded only if fewer than `tail` of the values lie outside it.
    first = int(np.searchsorted(share, tail, side="right")) - 1
    last = int(np.searchsorted(share, 1.0 - tail, side="left"))
    return grid_over(max(statistics.low, float(edges[first])), min(statistics.high, float(edges[last])))


def entropy(statistics: TensorStatistics) -> QuantGrid:
    """The symmetric grid up to T, where 128 levels up to T preserve most of the distribution of |x|.

    The search of TensorRT's entropy calibrator, with the details of NVIDIA's pytorch-quantization.
    """
    counts = statistics.magnitudes.astype(np.float64)
    if counts.sum() == 0 or statistics.limit == 0:
        return symmetric_grid(statistics.limit)
    counts[0] = counts[1]  # zeros of ReLU and padding say nothing about the range
    sizes = range(LEVELS, len(counts) + 1, STEP)
    bins = min(sizes, key=lambda size: (_divergence(counts, size), -size))
    return symmetric_grid(statistics.limit * bins / len(counts))


def _divergence(counts: NDArray[np.float64], size: int) -> float:
    """KL(P ‖ Q): P the first `size` bins with the tail added to the last, Q those bins in 128 levels."""
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
    q = np.maximum(q, 1e-12)  # a bin that Q leaves empty costs its count against the least there is
    filled_p = p > 0
    return float((p[filled_p] * np.log(p[filled_p] / q[filled_p])).sum())


METHODS: dict[str, Callable[[TensorStatistics], QuantGrid]] = {
    "min-max": lambda statistics: grid_over(statistics.low, statistics.high),
    "percentile": percentile,
    "entropy": entropy,
    "two-sided percentile": two_sided_percentile,
}


CONVOLUTIONS = ("Conv", "ConvTranspose")
TINY = 1e-30  # below it BINS / limit overflows float32, and all values count as 0


@dataclass(frozen=True)
class CalibrationStatistics:
    """Statistics of each tensor, mean and variance of its channels, and on how many images (or texts).

    Channels lie along axis 1 of a picture's tensors and of what enters a convolution, and along the last axis
    of a text's. A tensor whose channels are as many as a text is long has none: it counts as one.
    """

    statistics: dict[str, TensorStatistics]
    means: dict[str, NDArray[np.float64]]
    variances: dict[str, NDArray[np.float64]]
    images: int
    histogram: bool = True


def observe(
    model: ModelProto,
    tensors: Sequence[str],
    images: Callable[[], Iterable[Tensor | Feeds]],
    unit: str = "image",
    *,
    histogram: bool = True,
) -> CalibrationStatistics:
    """Extremes, channel means and, with `histogram`, counts of the named tensors."""
    run = _open(model, tensors, unit)
    low, high = dict.fromkeys(tensors, np.inf), dict.fromkeys(tensors, -np.inf)
    sums, squares = dict[str, Any](), dict[str, Any]()
    convolved = {node.input[0] for node in model.graph.node if node.op_type in CONVOLUTIONS}
    number = 0
    for feed in images():
        number += 1
        for name, value in zip(tensors, run(feed), strict=True):
            if not value.size:
                continue
            axis = 1 if isinstance(feed, np.ndarray) or name in convolved else -1
            low[name] = min(low[name], float(value.min()))
            high[name] = max(high[name], float(value.max()))
            _add(sums, name, _channel_means(value, axis))
            with np.errstate(over="ignore"):  # masks hold float32's lowest number
                _add(squares, name, _channel_means(np.square(value), axis))
    if not number:
        raise CannotRewrite(f"no calibration {unit} could be read; give others with --calibration")
    bad = [n for n in tensors if not (np.isfinite(low[n]) and np.isfinite(high[n]))]
    if bad:
        raise CannotRewrite(f"tensor {bad[0]!r} is NaN or infinite on a calibration {unit}")
    means = {name: total / number for name, total in sums.items()}
    variances = {name: np.maximum(squares[name] / number - means[name] ** 2, 0.0) for name in means}
    bins = 2 * BINS if histogram else 0
    statistics = {n: TensorStatistics(low[n], high[n], np.zeros(bins, np.int64)) for n in tensors}
    for feed in images() if histogram else ():
        for name, value in zip(tensors, run(feed), strict=True):
            statistics[name].counts[:] += _binned(value, statistics[name].limit)
    return CalibrationStatistics(statistics, means, variances, number, histogram)


def _add(sums: dict[str, Any], name: str, more: NDArray[np.float64]) -> None:
    """Add the channels to those before, or their mean if the number of channels differs."""
    before = sums.get(name, 0.0)
    if np.shape(before) not in ((), more.shape):
        before = before.mean()
    sums[name] = before + (more if np.ndim(before) or name not in sums else more.mean())


def _channel_means(value: Tensor, axis: int) -> NDArray[np.float64]:
    axes = tuple(a for a in range(value.ndim) if a != axis % value.ndim)
    return np.asarray(value.mean(axis=axes or None, dtype=np.float64))


def _binned(value: Tensor, limit: float) -> NDArray[np.int64]:
    """How many values lie in each of the 2 · BINS equal bins of [-limit, limit]."""
    if limit < TINY:
        return np.bincount([BINS], weights=[value.size], minlength=2 * BINS).astype(np.int64)
    place = np.floor(value.ravel() * np.float32(BINS / limit)).astype(np.int32) + BINS
    return np.bincount(np.clip(place, 0, 2 * BINS - 1), minlength=2 * BINS)


def _open(model: ModelProto, tensors: Sequence[str], unit: str) -> Callable[[Tensor | Feeds], list[Tensor]]:
    """Open a session; return a function that gives the named tensors for one image or text."""
    probe = onnx.ModelProto()
    probe.CopyFrom(model)
    own = {o.name for o in probe.graph.output} | {i.name for i in probe.graph.input}
    kind = onnx.TensorProto.FLOAT
    probe.graph.output.extend(helper.make_tensor_value_info(n, kind, None) for n in tensors if n not in own)
    session = open_session(probe.SerializeToString(), threads=1)  # the same sums on any number of cores
    entries = [entry.name for entry in session.get_inputs()]
    fetched = [n for n in tensors if n not in entries]

    def run(feed: Tensor | Feeds) -> list[Tensor]:
        feeds: Feeds = {entries[0]: feed} if isinstance(feed, np.ndarray) else feed
        try:
            values = dict(zip(fetched, session.run(fetched, dict(feeds)), strict=True)) if fetched else {}
        except Exception as problem:
            why = condense(problem)
            raise CannotRewrite(f"the model cannot run a calibration {unit}: {why}") from problem
        return [np.asarray(values[n] if n in values else feeds[n], np.float32) for n in tensors]

    return run
