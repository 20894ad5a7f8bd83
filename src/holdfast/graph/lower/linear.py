"""Sums, differences and products with constants: Scale, Total, Product."""

from collections.abc import Mapping
from functools import reduce

import numpy as np

from holdfast.graph.ir import Activation, Array, Product, ScaleShift, WeightedSum
from holdfast.graph.lower.values import Lowering, Node, StepBuilder, Value, View, as_view


def scaled(build: StepBuilder, value: Value, factor: Array | float, offset: Array | float) -> Value:
    """The value times factor plus offset, both broadcast with it."""
    shape = np.broadcast_shapes(value.shape, np.shape(factor), np.shape(offset))
    factor, offset = (np.broadcast_to(np.asarray(v, np.float64), shape) for v in (factor, offset))
    view = _broadcast(as_view(value), shape)
    if (factor == 1).all() and (offset == 0).all():
        return view
    if (factor == 0).any():  # independent of the input there
        view = View(np.where(factor == 0, -1, view.index), view.filled())
    if view.fill is not None and (view.index < 0).all() and not (build.as_evaluated and factor.any()):
        return (factor * view.fill + offset).astype(build.dtype)
    index = view.index
    step, place = build.step_covering(view)
    live = place >= 0
    fill = None if view.fill is None or live.all() else factor * view.fill + offset
    factors, offsets = _spread(place, live, factor, offset, build.steps[step].shape)
    pairs = ((factors, factor), (offsets, offset))
    if not all((every.ravel()[place[live]] == own[live]).all() for every, own in pairs):
        # one element appears twice with different factors
        step = build.step_holding(view if live.all() else View(index[live]))
        place = np.full(shape, -1, np.int64)
        place[live] = np.arange(int(live.sum()))
        factors, offsets = _spread(place, live, factor, offset, build.steps[step].shape)
    result = build.emit(ScaleShift(step, factors, offsets, build.steps[step].shape))
    return build.placed(result, place, fill)


def _spread(
    place: np.ndarray, live: np.ndarray, factor: Array, offset: Array, shape: tuple[int, ...]
) -> tuple[Array, Array]:
    factors, offsets = np.ones(shape), np.zeros(shape)
    factors.reshape(-1)[place[live]] = factor[live]
    offsets.reshape(-1)[place[live]] = offset[live]
    return factors, offsets


def total(
    build: StepBuilder,
    left: Value,
    right: Value,
    weights: tuple[float, float] = (1.0, 1.0),
    roundings: int = 0,
) -> Value:
    """weights[0] * left + weights[1] * right, broadcast."""
    if not isinstance(right, View):
        return scaled(build, left, weights[0], weights[1] * np.asarray(right, np.float64))
    if not isinstance(left, View):
        return scaled(build, right, weights[1], weights[0] * np.asarray(left, np.float64))
    shape = np.broadcast_shapes(left.shape, right.shape)
    first, second, place = aligned(build, left, right, shape)
    if first == second:
        result = build.emit(WeightedSum((first,), (weights[0] + weights[1],), build.steps[first].shape))
    else:
        result = build.emit(WeightedSum((first, second), weights, build.steps[first].shape, roundings))
    return build.placed(result, place)


def aligned(
    build: StepBuilder, left: View, right: View, shape: tuple[int, ...]
) -> tuple[int, int, np.ndarray]:
    """Two steps of one shape that hold the elements of both views side by side, and where those are."""
    left, right = _broadcast(left, shape), _broadcast(right, shape)
    size = left.index.size
    straight = np.arange(size, dtype=np.int64).reshape(shape)
    for one, other, swapped in ((left, right, False), (right, left, True)):
        if one.fill is not None or not size:
            continue
        order = np.argsort(one.index, axis=None, kind="stable")
        step = build.identical(one.index.ravel()[order])
        if step is None:
            continue
        # `one` is a whole step in some order: the other is brought into that step's order
        fill = None if other.fill is None else other.fill.ravel()[order]
        second = build.step_holding(View(other.index.ravel()[order], fill), build.steps[step].shape)
        place = np.empty(size, np.int64)
        place[order] = straight.ravel()
        return (second, step, place.reshape(shape)) if swapped else (step, second, place.reshape(shape))
    first = build.step_holding(left)
    return first, build.step_holding(right, build.steps[first].shape), straight


def _broadcast(view: View, shape: tuple[int, ...]) -> View:
    return view if view.shape == shape else view.moved(lambda a: np.broadcast_to(a, shape))


def product(build: StepBuilder, left: Value, right: Value) -> Value:
    """The product of both, broadcast."""
    if not isinstance(right, View):
        return scaled(build, left, np.asarray(right, np.float64), 0.0)
    if not isinstance(left, View):
        return scaled(build, right, np.asarray(left, np.float64), 0.0)
    shape = np.broadcast_shapes(left.shape, right.shape)
    first, second, place = aligned(build, left, right, shape)
    size = build.steps[first].shape
    step = Activation(first, "square", size) if first == second else Product(first, second, size)
    return build.placed(build.emit(step), place)


def _div(node: Node, build: StepBuilder) -> list[Value]:
    left, right = node.value(0), node.value(1)
    if isinstance(right, View):
        return [product(build, left, build.curve(right, "reciprocal"))]
    if not np.all(right != 0):
        raise node.fail("it divides by a constant 0")
    return [scaled(build, left, 1.0 / np.asarray(right, np.float64), 0.0)]


def _sum(node: Node, build: StepBuilder) -> list[Value]:
    def added(left: Value, right: Value) -> Value:
        if isinstance(left, View) or isinstance(right, View):
            return total(build, left, right)
        return left + right

    return [reduce(added, (node.value(i) for i in range(len(node.inputs))))]


def _pow(node: Node, build: StepBuilder) -> list[Value]:
    power = node.constant(1, "exponent")
    base = node.view()
    exponent = float(power.ravel()[0]) if power is not None and power.size == 1 else 0.0
    if power is None or abs(exponent) not in (0.5, 1.0, 2.0, 3.0, 4.0):
        raise node.fail(f"expected one of the exponents 0.5, 1, 2, 3, 4 or their negatives, got {power}")
    result: Value = _broadcast(base, np.broadcast_shapes(base.shape, power.shape))
    if abs(exponent) == 0.5:
        result = build.curve(result, "sqrt")
    elif abs(exponent) > 1:
        squared = product(build, result, result)
        other = {2.0: None, 3.0: result, 4.0: squared}[abs(exponent)]
        result = squared if other is None else product(build, squared, other)
    return [build.curve(result, "reciprocal") if exponent < 0 else result]


def _normalised(node: Node, build: StepBuilder) -> list[Value]:
    """Batch normalisation as it is at inference: factor * x + offset, channel by channel."""
    x = node.view()
    trains = not node.attributes.get("is_test", 0) if node.opset < 7 else node.attributes.get("training_mode")
    if trains or node.outputs > 1:
        raise node.fail("it is in training mode; export the model for inference")
    if not node.attributes.get("spatial", 1):
        raise node.fail("spatial = 0 is not supported")
    scale, shift, mean, variance = (
        np.asarray(node.constant(i, "parameters"), np.float64) for i in (1, 2, 3, 4)
    )
    factor = scale / np.sqrt(variance + node.number("epsilon", 1e-5))
    shape = (-1,) + (1,) * (len(x.shape) - 2)
    # Two sums, as runtimes have them: the second may cancel most of the first.
    centred = scaled(build, x, factor.reshape(shape), (-mean * factor).reshape(shape))
    return [scaled(build, centred, 1.0, shift.reshape(shape))]


OPERATORS: Mapping[str, Lowering] = {
    "Add": lambda node, build: [total(build, node.value(0), node.value(1))],
    "Sub": lambda node, build: [total(build, node.value(0), node.value(1), (1.0, -1.0))],
    "Mul": lambda node, build: [product(build, node.value(0), node.value(1))],
    "Div": _div,
    "Neg": lambda node, build: [scaled(build, node.view(), -1.0, 0.0)],
    "Sum": _sum,
    "Mean": lambda node, build: [scaled(build, _sum(node, build)[0], 1.0 / len(node.inputs), 0.0)],
    "Pow": _pow,
    "BatchNormalization": _normalised,
}
