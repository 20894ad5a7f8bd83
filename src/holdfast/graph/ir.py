"""A network as a short sequence of steps over flat tensors, shared by gradients, bounds and fine-tuning.

Every ONNX operator is lowered to one of the steps below. A tensor has no batch dimension here; `shape` is
the rest of its shape. Operators that only move values about (Reshape, Transpose, Slice, Split, Squeeze,
Gather, Pad, Concat, nearest Resize) all become one `Selection`. MaxPool, Clip, Abs, Min and Max become
sums of `Activation("relu")`, exactly: max(a, b) = a + relu(b - a).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

T = TypeVar("T")
Array: TypeAlias = NDArray[np.float64]
Curve: TypeAlias = Literal[
    "relu", "leaky", "sigmoid", "tanh", "sign", "erf", "elu", "softplus", "square", "sqrt", "exp", "log",
    "reciprocal", "sin",
]  # fmt: skip


@dataclass(frozen=True, eq=False)
class FreeInputs:
    """The free inputs, flat: step 0 of every net."""

    shape: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Selection:
    """out[j] = concat(sources, flat)[index[j]], or fill[j] where index[j] is -1."""

    sources: tuple[int, ...]
    index: NDArray[np.int64]  # of shape `shape`
    fill: Array | None  # of shape `shape`; None when no index is -1
    shape: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Dense:
    """out = weight (m, n) @ flat source (n,) + bias (m,)."""

    source: int
    weight: Array
    bias: Array
    shape: tuple[int, ...]  # (m,)


@dataclass(frozen=True, eq=False)
class Conv:
    """A 2-D convolution of a (c, h, w) source; pads are (top, left, bottom, right)."""

    source: int
    weight: Array  # (out, in / groups, kh, kw)
    bias: Array  # (out,)
    stride: tuple[int, int]
    pads: tuple[int, int, int, int]
    dilation: tuple[int, int]
    groups: int
    shape: tuple[int, int, int]


@dataclass(frozen=True, eq=False)
class ScaleShift:
    """out = factor * source + offset, element by element (both of shape `shape`)."""

    source: int
    factor: Array
    offset: Array
    shape: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class WeightedSum:
    """out = sum of weights[i] * source i, all of one shape."""

    sources: tuple[int, ...]
    weights: tuple[float, ...]
    shape: tuple[int, ...]
    roundings: int = 0  # of a runtime, in addition to that of the sum


@dataclass(frozen=True, eq=False)
class Activation:
    """out = curve(source), element by element; `slope` is leaky relu's below zero, elu's factor there."""

    source: int
    curve: Curve
    shape: tuple[int, ...]
    slope: float = 0.0


@dataclass(frozen=True, eq=False)
class Product:
    """out = left * right, element by element: neither linear nor a curve of one value (x * x is one)."""

    left: int
    right: int
    shape: tuple[int, ...]


Step: TypeAlias = FreeInputs | Selection | Dense | Conv | ScaleShift | WeightedSum | Activation | Product


@dataclass(frozen=True, eq=False)
class Net:
    """Steps in order, each reading earlier ones; the last one is the flat output.

    `free` (n,) are the flat positions of the network's real input that step 0 holds; the others are fixed
    and were folded away. `template` is the whole input with the fixed values in place, of the ONNX shape.
    `roundoff` is the unit roundoff of the evaluation that bounds must cover, 0 for real arithmetic: 2**-24 if
    they are to hold for every float32 evaluation. Such a net has one step for each operation that rounds.
    """

    steps: tuple[Step, ...]
    free: NDArray[np.int64]
    template: NDArray[np.float64]
    roundoff: float = 0.0

    @property
    def inputs(self) -> int:
        """How many free inputs there are."""
        return len(self.free)

    @property
    def outputs(self) -> int:
        """How many flat outputs there are."""
        return prod(self.steps[-1].shape)


def sources_of(step: Step) -> tuple[int, ...]:
    """The earlier steps a step reads."""
    if isinstance(step, FreeInputs):
        return ()
    if isinstance(step, Selection | WeightedSum):
        return step.sources
    if isinstance(step, Product):
        return (step.left, step.right)
    return (step.source,)


def forward(net: Net, points: T, apply: Callable[[int, Step, list[T]], T]) -> T:
    """The value of the last step; `apply` gives that of a step, by its number, from those of its sources."""
    last_use = {source: at for at, step in enumerate(net.steps) for source in sources_of(step)}
    values = {0: points}
    for at, step in enumerate(net.steps[1:], 1):
        values[at] = apply(at, step, [values[s] for s in sources_of(step)])
        for source in set(sources_of(step)):
            if last_use[source] == at:
                del values[source]
    return values[len(net.steps) - 1]


def evaluate(net: Net, points: NDArray[Any]) -> Array:
    """The flat outputs (b, k) for free inputs (b, n)."""
    start = np.asarray(points, np.float64).reshape(len(points), -1)
    return forward(net, start, lambda at, step, inputs: step_values(step, inputs, net))


def step_values(step: Step, inputs: list[Array], net: Net) -> Array:
    """A step's flat values (b, size) from its sources' ones, in order."""
    first = inputs[0]
    if isinstance(step, Selection):
        return _select(step, inputs)
    if isinstance(step, Dense):
        return first @ step.weight.T + step.bias
    if isinstance(step, Conv):
        return _convolve(step, first.reshape(len(first), *net.steps[step.source].shape))
    if isinstance(step, ScaleShift):
        return first * step.factor.ravel() + step.offset.ravel()
    if isinstance(step, WeightedSum):
        return sum((w * v for w, v in zip(step.weights, inputs, strict=True)), np.zeros(first.shape))
    if isinstance(step, Activation):
        return curve_of(step, first)
    return first * inputs[1]


def curve_of(step: Activation, values: Array) -> Array:
    """The curve of every value."""
    if step.curve == "relu":
        return np.maximum(values, 0.0)
    if step.curve == "leaky":
        return np.where(values < 0, step.slope * values, values)
    if step.curve == "elu":
        return np.where(values < 0, step.slope * np.expm1(np.minimum(values, 0.0)), values)
    with np.errstate(all="ignore"):  # infinite or not a number where it is not defined, as runtimes have it
        return CURVES[step.curve](values)


def sigmoid(values: Array) -> Array:
    """1 / (1 + exp(-x)) without overflow."""
    small = np.exp(-np.abs(values))
    return np.where(values >= 0, 1.0 / (1.0 + small), small / (1.0 + small))


_erf = np.frompyfunc(math.erf, 1, 1)

CURVES: Mapping[Curve, Callable[[Array], Array]] = {
    "tanh": np.tanh,
    "sign": np.sign,
    "sigmoid": sigmoid,
    "erf": lambda values: np.asarray(_erf(values), np.float64),
    "softplus": lambda values: np.maximum(values, 0.0) + np.log1p(np.exp(-np.abs(values))),
    "sin": np.sin,
    "square": np.square,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "reciprocal": np.reciprocal,
}


def _select(step: Selection, inputs: list[Array]) -> Array:
    index = step.index.ravel()
    joined = np.concatenate(inputs, axis=1)
    if step.fill is None:
        return joined[:, index]
    if not joined.shape[1]:
        return np.repeat(step.fill.reshape(1, -1), len(joined), axis=0)
    return np.where(index < 0, step.fill.ravel(), joined[:, np.maximum(index, 0)])


def _convolve(step: Conv, source: Array) -> Array:
    """A convolution as one matrix product per group over the windows."""
    top, left, bottom, right = step.pads
    padded = np.pad(source, ((0, 0), (0, 0), (top, bottom), (left, right)))
    reach = [d * (k - 1) + 1 for d, k in zip(step.dilation, step.weight.shape[2:], strict=True)]
    windows = sliding_window_view(padded, reach, axis=(2, 3))
    windows = windows[:, :, :: step.stride[0], :: step.stride[1], :: step.dilation[0], :: step.dilation[1]]
    windows = windows[:, :, : step.shape[1], : step.shape[2]]
    groups = zip(np.split(windows, step.groups, axis=1), np.split(step.weight, step.groups), strict=True)
    parts = [np.tensordot(window, weight, axes=([1, 4, 5], [1, 2, 3])) for window, weight in groups]
    joined = np.moveaxis(np.concatenate(parts, axis=3), 3, 1) + step.bias[:, None, None]
    return joined.reshape(len(source), prod(step.shape))
