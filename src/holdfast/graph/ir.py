"""A network as a short row of steps over flat tensors: what gradients, bounds and fine-tuning share.

Every ONNX operator is lowered to one of the steps below. A tensor has no batch dimension here; `shape` is
the rest of its shape. Operators that only move values about (Reshape, Transpose, Slice, Split, Squeeze,
Gather, Pad, Concat, nearest Resize) all become one `Take`. MaxPool, Clip, Abs, Min and Max become
sums of `Activation("relu")`, exactly: max(a, b) = a + relu(b - a).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]
Curve: TypeAlias = Literal[
    "relu", "leaky", "sigmoid", "tanh", "sign", "erf", "elu", "softplus", "square", "sqrt", "exp", "log",
    "reciprocal", "sin",
]  # fmt: skip


@dataclass(frozen=True, eq=False)
class Start:
    """The free inputs, flat: step 0 of every net."""

    shape: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Take:
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
class Scale:
    """out = factor * source + offset, element by element (both of shape `shape`)."""

    source: int
    factor: Array
    offset: Array
    shape: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Total:
    """out = sum of weights[i] * source i, all of one shape.

    `roundings` counts what a runtime rounds beyond the sum itself.
    """

    sources: tuple[int, ...]
    weights: tuple[float, ...]
    shape: tuple[int, ...]
    roundings: int = 0


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


Step: TypeAlias = Start | Take | Dense | Conv | Scale | Total | Activation | Product


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
    if isinstance(step, Start):
        return ()
    if isinstance(step, Take | Total):
        return step.sources
    if isinstance(step, Product):
        return (step.left, step.right)
    return (step.source,)
