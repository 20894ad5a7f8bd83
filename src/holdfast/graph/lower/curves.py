"""Curves, element by element: what is no curve of the steps is a sum of relus."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from holdfast.graph.ir import Array
from holdfast.graph.lower.linear import product, scaled, total
from holdfast.graph.lower.values import Build, Lowering, Node, Value, View, as_view

LARGEST = float(np.finfo(np.float32).max)  # exporters write "no limit" so
WIDEST = 1e15  # of a bound: x - bound must keep digits of x


def relu(build: Build, value: Value) -> Value:
    """max(value, 0)."""
    if not isinstance(value, View):
        return np.maximum(value, 0)
    return build.curved(value, "relu", lambda c: np.maximum(c, 0.0))


def at_least(build: Build, view: View, low: Array | float) -> Value:
    """max(view, low) for a constant."""
    return _bounded(build, view, np.asarray(low, np.float64), 1.0)


def at_most(build: Build, view: View, high: Array | float) -> Value:
    """min(view, high) for a constant."""
    return _bounded(build, view, np.asarray(high, np.float64), -1.0)


def _bounded(build: Build, view: View, bound: Array, sign: float) -> Value:
    """The view bounded from below as bound + relu(view - bound), with sign -1 from above.

    Elements beyond the range of float32 are no bound.
    """
    shape = np.broadcast_shapes(view.shape, bound.shape)
    view, bound = as_view(scaled(build, view, np.ones(shape), 0.0)), np.broadcast_to(bound, shape)
    live = sign * bound > -LARGEST
    if not live.all():
        part = View(view.index[live], None if view.fill is None else view.fill[live])
        found = as_view(_bounded(build, part, bound[live], sign)) if live.any() else part
        index, fill = view.index.copy(), view.filled().copy()
        index[live], fill[live] = found.index, found.filled()
        return View(index, fill)
    if sign > 0 and not bound.any():
        return relu(build, view)
    if not (np.abs(bound) <= WIDEST).all():
        raise ValueError(f"expected bounds up to {WIDEST:g}, or beyond float32 for none")
    beyond = relu(build, scaled(build, view, sign, -sign * bound))
    return scaled(build, as_view(beyond), sign, bound)


def clipped(build: Build, view: View, low: float, high: float) -> Value:
    """min(max(view, low), high); the relus in a row keep the bounds inside [low, high]."""
    return at_most(build, as_view(at_least(build, view, low)), high)


def leaky(build: Build, view: View, slope: float) -> Value:
    """The view where positive, slope times it where negative."""
    if slope == 0:
        return relu(build, view)
    if not 0 < slope < 1:  # the step's relaxations expect a slope between
        above = scaled(build, as_view(relu(build, view)), 1.0 - slope, 0.0)
        return total(build, scaled(build, view, slope, 0.0), above)
    return build.curved(view, "leaky", lambda c: np.where(c < 0, slope * c, c), slope)


def _prelu(node: Node, build: Build) -> list[Value]:
    """The sum slope * x + (1 - slope) * relu(x), or leaky relu where all slopes are one."""
    slope = node.constant(1, "slope")
    view = node.view()
    if slope is None:
        raise node.fail("expected a slope")
    slope = slope.astype(np.float64)
    if slope.size and (slope == slope.flat[0]).all():
        return [leaky(build, view, float(slope.flat[0]))]
    above = scaled(build, as_view(relu(build, view)), 1.0 - slope, 0.0)
    return [total(build, scaled(build, view, slope, 0.0), above)]


def _hard_sigmoid(node: Node, build: Build) -> list[Value]:
    alpha, beta = node.number("alpha", 0.2), node.number("beta", 0.5)
    return [clipped(build, as_view(scaled(build, node.view(), alpha, beta)), 0.0, 1.0)]


def _hard_swish(node: Node, build: Build) -> list[Value]:
    gate = clipped(build, as_view(scaled(build, node.view(), 1 / 6, 0.5)), 0.0, 1.0)
    return [product(build, node.view(), gate)]


def _clip(node: Node, build: Build) -> list[Value]:
    low, high = (node.attributes.get(n) for n in ("min", "max"))
    given = (node.constant(1, "minimum"), node.constant(2, "maximum"))
    low = given[0].item() if given[0] is not None else (-np.inf if low is None else low)
    high = given[1].item() if given[1] is not None else (np.inf if high is None else high)
    if low > high:
        raise node.fail(f"its minimum {low} is above its maximum {high}")
    return [clipped(build, node.view(), float(low), float(high))]


OPERATORS: Mapping[str, Lowering] = {
    "Relu": lambda node, build: [relu(build, node.view())],
    "LeakyRelu": lambda node, build: [leaky(build, node.view(), node.number("alpha", 0.01))],
    "PRelu": _prelu,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
    "Clip": _clip,
    "Abs": lambda node, build: [total(build, relu(build, node.view()), node.view(), (2.0, -1.0))],
}
