"""A lowered network's outputs, in numpy and float64: the plain reference for everything faster."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from holdfast.graph.ir import (
    Activation,
    Array,
    Conv,
    Curve,
    Dense,
    Net,
    Scale,
    Start,
    Step,
    Take,
    Total,
    sources_of,
)


def evaluate(net: Net, points: NDArray[Any]) -> Array:
    """The flat outputs (b, k) for free inputs (b, n)."""
    last_use = {source: at for at, step in enumerate(net.steps) for source in sources_of(step)}
    held: dict[int, Array] = {}
    for at, step in enumerate(net.steps):
        if isinstance(step, Start):
            held[at] = np.asarray(points, np.float64).reshape(len(points), -1)
        else:
            held[at] = step_values(step, [held[s] for s in sources_of(step)], net)
        for source in set(sources_of(step)):
            if last_use[source] == at:
                del held[source]
    return held[len(net.steps) - 1]


def step_values(step: Step, inputs: list[Array], net: Net) -> Array:
    """A step's flat values (b, size) from its sources' ones, in order."""
    first = inputs[0]
    if isinstance(step, Take):
        return _taken(step, inputs)
    if isinstance(step, Dense):
        return first @ step.weight.T + step.bias
    if isinstance(step, Conv):
        return _convolved(step, first.reshape(len(first), *net.steps[step.source].shape))
    if isinstance(step, Scale):
        return first * step.factor.ravel() + step.offset.ravel()
    if isinstance(step, Total):
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
    return CURVES[step.curve](values)


def sigmoid(values: Array) -> Array:
    """1 / (1 + exp(-x)) without overflow."""
    small = np.exp(-np.abs(values))
    return np.where(values >= 0, 1.0 / (1.0 + small), small / (1.0 + small))


def _undefined(curve: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """The curve, silently infinite or not a number where it is not defined: as runtimes have it."""

    def applied(values: Array) -> Array:
        with np.errstate(all="ignore"):
            return curve(values)

    return applied


_erf = np.frompyfunc(math.erf, 1, 1)

CURVES: Mapping[Curve, Callable[[Array], Array]] = {
    "tanh": np.tanh,
    "sign": np.sign,
    "sigmoid": sigmoid,
    "erf": lambda values: np.asarray(_erf(values), np.float64),
    "softplus": lambda values: np.maximum(values, 0.0) + np.log1p(np.exp(-np.abs(values))),
    "sin": np.sin,
    "square": np.square,
    "exp": _undefined(np.exp),
    "log": _undefined(np.log),
    "sqrt": _undefined(np.sqrt),
    "reciprocal": _undefined(np.reciprocal),
}


def _taken(step: Take, inputs: list[Array]) -> Array:
    index = step.index.ravel()
    joined = np.concatenate(inputs, axis=1)
    if step.fill is None:
        return joined[:, index]
    if not joined.shape[1]:
        return np.repeat(step.fill.reshape(1, -1), len(joined), axis=0)
    return np.where(index < 0, step.fill.ravel(), joined[:, np.maximum(index, 0)])


def _convolved(step: Conv, source: Array) -> Array:
    """A convolution as one matrix product per group over the windows."""
    top, left, bottom, right = step.pads
    padded = np.pad(source, ((0, 0), (0, 0), (top, bottom), (left, right)))
    out, inner, kh, kw = step.weight.shape
    reach = (step.dilation[0] * (kh - 1) + 1, step.dilation[1] * (kw - 1) + 1)
    windows = sliding_window_view(padded, reach, axis=(2, 3))
    windows = windows[:, :, :: step.stride[0], :: step.stride[1], :: step.dilation[0], :: step.dilation[1]]
    windows = windows[:, :, : step.shape[1], : step.shape[2]]
    batch, each = len(source), out // step.groups
    parts = []
    for group in range(step.groups):
        seen = windows[:, group * inner : (group + 1) * inner]
        weight = step.weight[group * each : (group + 1) * each]
        parts.append(np.tensordot(seen, weight, axes=([1, 4, 5], [1, 2, 3])))
    joined = np.moveaxis(np.concatenate(parts, axis=3), 3, 1) + step.bias[:, None, None]
    return joined.reshape(batch, prod(step.shape))
