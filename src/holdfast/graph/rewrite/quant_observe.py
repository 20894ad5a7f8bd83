"""Calibration: what images or texts that are not tested on make of the tensors inside a graph.

One at a time and counts in bins: memory does not grow with their number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.types import Tensor
from holdfast.graph.inspect import condense, runtime
from holdfast.graph.rewrite.quant_ranges import BINS, Seen
from holdfast.graph.rewrite.types import CannotRewrite, Feeds, ModelProto

CONVOLUTIONS = ("Conv", "ConvTranspose")
TINY = 1e-30  # below it BINS / limit overflows float32, and all values count as 0


@dataclass(frozen=True)
class Observed:
    """What was seen of each tensor, mean and variance of its channels, and on how many images (or texts).

    Channels lie along axis 1 of a picture's tensors and of what enters a convolution, and along the last axis
    of a text's. A tensor whose channels are as many as a text is long has none: it counts as one.
    """

    seen: dict[str, Seen]
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
) -> Observed:
    """Extremes, channel means and, with `histogram`, counts of the named tensors."""
    run = _opened(model, tensors, unit)
    low = dict.fromkeys(tensors, np.inf)
    high = dict.fromkeys(tensors, -np.inf)
    sums: dict[str, Any] = {}
    squares: dict[str, Any] = {}
    convolved = {node.input[0] for node in model.graph.node if node.op_type in CONVOLUTIONS}
    number = 0
    for given in images():
        number += 1
        for name, value in zip(tensors, run(given), strict=True):
            if not value.size:
                continue
            axis = 1 if isinstance(given, np.ndarray) or name in convolved else -1
            low[name] = min(low[name], float(value.min()))
            high[name] = max(high[name], float(value.max()))
            _add(sums, name, _channel_means(value, axis))
            with np.errstate(over="ignore"):  # masks hold float32's lowest number
                _add(squares, name, _channel_means(np.square(value), axis))
    if not number:
        raise CannotRewrite(f"no calibration {unit} could be read; give some that are not tested on")
    bad = [n for n in tensors if not (np.isfinite(low[n]) and np.isfinite(high[n]))]
    if bad:
        raise CannotRewrite(f"tensor {bad[0]!r} is NaN or infinite on a calibration {unit}")
    means = {name: total / number for name, total in sums.items()}
    variances = {name: np.maximum(squares[name] / number - means[name] ** 2, 0.0) for name in means}
    seen = {n: Seen(low[n], high[n], np.zeros(2 * BINS if histogram else 0, np.int64)) for n in tensors}
    for given in images() if histogram else ():
        for name, value in zip(tensors, run(given), strict=True):
            seen[name].counts[:] += _binned(value, seen[name].limit)
    return Observed(seen, means, variances, number, histogram)


def _add(sums: dict[str, Any], name: str, more: NDArray[np.float64]) -> None:
    """Add the channels to those before, or their mean if the number of channels differs."""
    before = sums.get(name, 0.0)
    if np.shape(before) not in ((), more.shape):
        before = before.mean()
    sums[name] = before + (more if np.ndim(before) or name not in sums else more.mean())


def _channel_means(value: Tensor, axis: int) -> NDArray[np.float64]:
    axes = tuple(a for a in range(value.ndim) if a != axis % value.ndim)
    return np.asarray(
        value.mean(axis=axes, dtype=np.float64) if value.ndim > 1 else value.mean(dtype=np.float64)
    )


def _binned(value: Tensor, limit: float) -> NDArray[np.int64]:
    """How many values lie in each of the 2 · BINS equal bins of [-limit, limit]."""
    if limit < TINY:
        return np.bincount([BINS], weights=[value.size], minlength=2 * BINS).astype(np.int64)
    place = np.floor(value.ravel() * np.float32(BINS / limit)).astype(np.int32) + BINS
    return np.bincount(np.clip(place, 0, 2 * BINS - 1), minlength=2 * BINS)


def _opened(model: ModelProto, tensors: Sequence[str], unit: str) -> Callable[[Tensor | Feeds], list[Tensor]]:
    """A function that runs one image or text and gives the named tensors."""
    import onnx
    from onnx import helper

    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    own = {o.name for o in shown.graph.output} | {i.name for i in shown.graph.input}
    kind = onnx.TensorProto.FLOAT
    shown.graph.output.extend(helper.make_tensor_value_info(n, kind, None) for n in tensors if n not in own)
    ort = runtime()
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1  # the same sums whatever the number of cores
    session = ort.InferenceSession(shown.SerializeToString(), options, providers=["CPUExecutionProvider"])
    entries = [entry.name for entry in session.get_inputs()]
    asked = [n for n in tensors if n not in entries]

    def run(given: Tensor | Feeds) -> list[Tensor]:
        feeds: Feeds = {entries[0]: given} if isinstance(given, np.ndarray) else given
        try:
            found = dict(zip(asked, session.run(asked, dict(feeds)), strict=True)) if asked else {}
        except Exception as problem:
            raise CannotRewrite(
                f"the model cannot run a calibration {unit}: {condense(problem)}"
            ) from problem
        return [np.asarray(found[n] if n in found else feeds[n], np.float32) for n in tensors]

    return run
