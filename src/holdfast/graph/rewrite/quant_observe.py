"""Calibration: what images that are not tested on make of the tensors inside a graph.

One image at a time and counts in bins: memory does not grow with the number of images.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.types import Tensor
from holdfast.graph.inspect import condense, runtime
from holdfast.graph.rewrite.quant_ranges import BINS, Seen
from holdfast.graph.rewrite.types import CannotRewrite, ModelProto


@dataclass(frozen=True)
class Observed:
    """What was seen of each tensor, mean and variance of its channels (axis 1), and on how many images."""

    seen: dict[str, Seen]
    means: dict[str, NDArray[np.float64]]
    variances: dict[str, NDArray[np.float64]]
    images: int


def observe(
    model: ModelProto, tensors: Sequence[str], images: Callable[[], Iterable[Tensor]], bins: int = BINS
) -> Observed:
    """Extremes, channel means and counts of the named tensors; `bins` 0 leaves out the counts."""
    run = _opened(model, tensors)
    low = dict.fromkeys(tensors, np.inf)
    high = dict.fromkeys(tensors, -np.inf)
    sums: dict[str, Any] = {}
    squares: dict[str, Any] = {}
    number = 0
    for values in _run_all(run, images):
        number += 1
        for name, value in zip(tensors, values, strict=True):
            if not value.size:
                continue
            low[name] = min(low[name], float(value.min()))
            high[name] = max(high[name], float(value.max()))
            sums[name] = sums.get(name, 0.0) + _channel_means(value)
            squares[name] = squares.get(name, 0.0) + _channel_means(np.square(value))
    if not number:
        raise CannotRewrite("no calibration image could be read; give some that are not tested on")
    bad = [n for n in tensors if not (np.isfinite(low[n]) and np.isfinite(high[n]))]
    if bad:
        raise CannotRewrite(f"tensor {bad[0]!r} is NaN or infinite on a calibration image")
    means = {name: total / number for name, total in sums.items()}
    variances = {name: np.maximum(squares[name] / number - means[name] ** 2, 0.0) for name in means}
    counts = {name: np.zeros(bins, np.int64) for name in tensors}
    for values in _run_all(run, images) if bins else ():
        for name, value in zip(tensors, values, strict=True):
            counts[name] += _binned(value, low[name], high[name], bins)
    return Observed({n: Seen(low[n], high[n], counts[n]) for n in tensors}, means, variances, number)


def _channel_means(value: Tensor) -> NDArray[np.float64]:
    axes = tuple(a for a in range(value.ndim) if a != 1)
    return np.asarray(value.mean(axis=axes, dtype=np.float64) if value.ndim > 1 else value.mean())


def _binned(value: Tensor, low: float, high: float, bins: int) -> NDArray[np.int64]:
    """How many values lie in each of the equal bins of [low, high]."""
    if high <= low:
        return np.bincount([0], weights=[value.size], minlength=bins).astype(np.int64)
    place = ((value.ravel() - np.float32(low)) * np.float32(bins / (high - low))).astype(np.int32)
    return np.bincount(np.clip(place, 0, bins - 1), minlength=bins)


def _opened(model: ModelProto, tensors: Sequence[str]) -> Callable[[Tensor], list[Tensor]]:
    """A function that runs one input and gives the named tensors."""
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
    entry = session.get_inputs()[0].name
    asked = [n for n in tensors if n != entry]

    def run(tensor: Tensor) -> list[Tensor]:
        try:
            found = dict(zip(asked, session.run(asked, {entry: tensor}), strict=True)) if asked else {}
        except Exception as problem:
            raise CannotRewrite(f"the model cannot run a calibration image: {condense(problem)}") from problem
        return [np.asarray(found.get(n, tensor), np.float32) for n in tensors]

    return run


def _run_all(
    run: Callable[[Tensor], list[Tensor]], images: Callable[[], Iterable[Tensor]]
) -> Iterator[list[Tensor]]:
    for tensor in images():
        yield run(tensor)
