"""Sums and products: by constants, of two tensors, of matrices, over axes; linear and cubic Resize."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import reduce
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import ModelError
from holdfast.graph.ir import Activation, Array, Conv, Dense, Product, ScaleShift, WeightedSum
from holdfast.graph.lower.moves import ridden
from holdfast.graph.lower.values import Index, Lowering, Node, StepBuilder, Value, View, as_view, moved, run

LARGEST_PRODUCT = 1 << 21  # elementwise products for one matrix product of two tensors


def scaled(build: StepBuilder, value: Value, factor: Array | float, offset: Array | float) -> Value:
    """The value times factor plus offset, both broadcast with it."""
    shape = np.broadcast_shapes(value.shape, np.shape(factor), np.shape(offset))
    factor, offset = (np.broadcast_to(np.asarray(v, np.float64), shape) for v in (factor, offset))
    view = _broadcast(as_view(value), shape)
    if (factor == 1).all() and (offset == 0).all():
        return view
    if build.as_evaluated and not factor.any() and (view.index >= 0).any():
        raise ModelError("a product with 0 makes a value constant; the rounding after it is not bounded")
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
    place: Index, live: NDArray[np.bool_], factor: Array, offset: Array, shape: tuple[int, ...]
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


def aligned(build: StepBuilder, left: View, right: View, shape: tuple[int, ...]) -> tuple[int, int, Index]:
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

    return [reduce(added, node.values())]


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
    parameters = (np.asarray(node.constant(i, "parameters"), np.float64) for i in (1, 2, 3, 4))
    scale, shift, mean, variance = parameters
    factor = scale / np.sqrt(variance + node.number("epsilon", 1e-5))
    shape = (-1,) + (1,) * (len(x.shape) - 2)
    # Two sums, as runtimes have them: the second may cancel most of the first.
    centred = scaled(build, x, factor.reshape(shape), (-mean * factor).reshape(shape))
    return [scaled(build, centred, 1.0, shift.reshape(shape))]


def swapped(value: Value) -> Value:
    """The value with its last two axes exchanged."""
    return moved(value, lambda a: np.swapaxes(a, -1, -2))


def reshaped(value: Value, shape: tuple[int, ...]) -> Value:
    """The value in another shape."""
    return moved(value, lambda a: a.reshape(shape))


def matmul(build: StepBuilder, node: Node, left: Value, right: Value) -> Value:
    """The matrix product as numpy and ONNX define it; at least one is a view."""
    vector_left, vector_right = len(left.shape) == 1, len(right.shape) == 1
    if vector_left:
        left = reshaped(left, (1, *left.shape))
    if vector_right:
        right = reshaped(right, (*right.shape, 1))
    if isinstance(left, View) and isinstance(right, View):
        result: Value = _both(build, node, left, right)
    elif isinstance(left, View):
        result = _by_constant(build, left, np.asarray(right, np.float64))
    else:
        turned = as_view(swapped(right))
        result = swapped(_by_constant(build, turned, np.swapaxes(left, -1, -2).astype(np.float64)))
    shape = list(result.shape)
    if vector_left:
        del shape[-2]
    if vector_right:
        del shape[-1]
    return reshaped(result, tuple(shape))


def _by_constant(build: StepBuilder, x: View, weight: Array) -> View:
    """The product x (..., r, n) @ weight (..., n, m)."""
    batch = np.broadcast_shapes(x.shape[:-2], weight.shape[:-2])
    rows, inner, columns = x.shape[-2], x.shape[-1], weight.shape[-1]
    if prod(x.shape[:-1]) == 1 and prod(weight.shape[:-2]) == 1:
        matrix = np.ascontiguousarray(weight.reshape(inner, columns).T, np.float64)
        dense = Dense(build.step_holding(x), matrix, np.zeros(columns), (columns,))
        return build.all_of(build.emit(dense), (*batch, rows, columns))
    if prod(weight.shape[:-2]) == 1:  # one matrix for all rows
        groups, many = 1, prod(batch) * rows
        weight = weight.reshape(1, inner, columns)
    else:
        groups, many = prod(batch), rows
        weight = np.broadcast_to(weight, (*batch, inner, columns)).reshape(groups, inner, columns)

    def channels_first(values: NDArray[Any]) -> NDArray[Any]:
        full = np.broadcast_to(values, (*batch, rows, inner)).reshape(groups, many, inner)
        return np.moveaxis(full, 2, 1).reshape(groups * inner, 1, many)

    step = build.step_holding(x.moved(channels_first), (groups * inner, 1, many))
    channels = groups * columns
    kernel = np.ascontiguousarray(np.moveaxis(weight, 2, 1).reshape(channels, inner, 1, 1))
    conv = Conv(
        step,
        kernel,
        np.zeros(channels),
        (1, 1),
        (0, 0, 0, 0),
        dilation=(1, 1),
        groups=groups,
        shape=(channels, 1, many),
    )
    index = build.all_of(build.emit(conv), (groups, columns, many)).index
    return View(np.moveaxis(index, 1, 2).reshape(*batch, rows, columns))


def _both(build: StepBuilder, node: Node, left: View, right: View) -> Value:
    """A product of two tensors that both depend on the input, by element-wise products and sums."""
    batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    inner = left.shape[-1]
    if prod(batch) * left.shape[-2] * inner * right.shape[-1] > LARGEST_PRODUCT:
        raise node.fail("it multiplies two large tensors that both depend on the network's input")
    one = left.moved(lambda a: np.expand_dims(a, -2))  # (..., r, 1, n)
    other = right.moved(lambda a: np.expand_dims(np.swapaxes(a, -1, -2), -3))
    both = as_view(product(build, one, other))  # (..., r, m, n)
    return View(_by_constant(build, both, np.ones((inner, 1))).index[..., 0])


def _gemm(node: Node, build: StepBuilder) -> list[Value]:
    turns = enumerate(("transA", "transB"))
    left, right = (swapped(node.value(i)) if node.attributes.get(t) else node.value(i) for i, t in turns)
    if isinstance(left, View) or isinstance(right, View):
        result = matmul(build, node, left, right)
    else:
        result = np.asarray(left, np.float64) @ np.asarray(right, np.float64)
    result = scaled(build, result, node.number("alpha", 1.0), 0.0)
    third = node.inputs[2] if len(node.inputs) > 2 else None
    return [result if third is None else total(build, result, third, (1.0, node.number("beta", 1.0)))]


def summed(node: Node, build: StepBuilder, mean: bool) -> Value:
    """The sum or the mean over the node's axes."""

    def over_last(view: View) -> View:
        weight = np.full((view.shape[-1], 1), 1.0 / view.shape[-1] if mean else 1.0)
        return View(as_view(matmul(build, node, view, weight)).index[..., 0])

    return reduced(node, over_last)


def _sum_of_squares(node: Node, build: StepBuilder) -> list[Value]:
    squares = product(build, node.view(), node.view())
    return [summed(replace(node, inputs=(squares, *node.inputs[1:])), build, mean=False)]


def reduced(node: Node, of_last: Callable[[View], View]) -> Value:
    """A reduction over the node's axes by a function that reduces the last axis of a view."""
    view = node.view()
    rank = len(view.shape)
    requested = node.ints("axes", 1)
    if not requested and node.attributes.get("noop_with_empty_axes"):
        return view
    axes = sorted(a % rank for a in requested or range(rank))
    others = [a for a in range(rank) if a not in axes]
    shape = tuple(view.shape[a] for a in others)
    result = of_last(view.moved(lambda a: a.transpose(*others, *axes).reshape(*shape, -1)))
    full = tuple(1 if a in axes else view.shape[a] for a in range(rank))
    return reshaped(result, full if node.attributes.get("keepdims", 1) else shape)


def _resize(node: Node, build: StepBuilder) -> list[Value]:
    for at in range(1, len(node.inputs)):
        node.constant(at, "scales or sizes")
    if node.attributes.get("extrapolation_value"):
        raise node.fail("an extrapolation_value other than 0 is not supported")
    if node.attributes.get("mode", "nearest") == "nearest":
        return ridden(np.int32)(node, build)
    if node.attributes.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise node.fail("keep_aspect_ratio_policy is supported only for nearest")
    if node.attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        raise node.fail("tf_crop_and_resize is not supported")
    view = node.view()
    target = run(node, (np.zeros(view.shape, np.float32), *node.inputs[1:]))[0].shape
    scales = per_axis(node, view.shape, "scales", 1 if node.opset < 11 else 2)
    changed = [a for a, n in enumerate(view.shape) if target[a] != n or scales.get(a, 1.0) != 1.0]
    still = [a for a in range(len(target)) if a not in changed]
    if changed and not still:
        raise node.fail("expected at least one axis that keeps its size")
    for axis in changed:
        weight = along(node, view.shape, axis, still)
        turned = as_view(moved(view, lambda a, axis=axis: np.moveaxis(a, axis, -1)))  # type: ignore[misc]
        resized = as_view(matmul(build, node, turned, weight))
        view = View(np.moveaxis(resized.index, -1, axis))
    return [view]


def per_axis(node: Node, shape: tuple[int, ...], name: str, at: int) -> dict[int, float]:
    """The scales or sizes that are given, by axis."""
    values = node.attributes[name] if name in node.attributes else node.constant(at, name)
    if values is None or not np.size(values):
        return {}
    axes = node.ints("axes") or tuple(range(len(shape)))
    return {a % len(shape): float(v) for a, v in zip(axes, values, strict=True)}


def along(node: Node, shape: tuple[int, ...], axis: int, still: list[int]) -> Array:
    """The interpolation matrix (n, m) along one axis: what ONNX Runtime makes of the unit vectors.

    They lie along the first of the axes that keep their size; every other axis has length 1.
    """
    length, host = shape[axis], still[0]
    units = np.zeros([length if a in (axis, host) else 1 for a in range(len(shape))], np.float32)
    at = np.arange(length)
    units[tuple(at if a in (axis, host) else 0 for a in range(len(shape)))] = 1.0
    inputs: list[Any] = [units, *node.inputs[1:]]
    axes = [a % len(shape) for a in node.ints("axes") or range(len(shape))]
    present = [at for at, value in enumerate(inputs) if value is not None and np.size(value)]
    scales = 1 if node.opset < 11 else 2
    if scales in present:  # by one below 1 an axis of length 1 would vanish
        own = [v if a == axis else 1.0 for a, v in zip(axes, inputs[scales], strict=True)]
        inputs[scales] = np.array(own, np.float32)
    if 3 in present:
        sizes = [units.shape[a] if a in still else n for a, n in zip(axes, inputs[3], strict=True)]
        inputs[3] = np.array(sizes, np.int64)
    out = run(node, tuple(inputs))[0]
    return np.moveaxis(out, (host, axis), (0, 1)).reshape(length, out.shape[axis], -1)[:, :, 0].astype(float)


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
    "MatMul": lambda node, build: [matmul(build, node, node.value(0), node.value(1))],
    "Gemm": _gemm,
    "ReduceSum": lambda node, build: [summed(node, build, mean=False)],
    "ReduceSumSquare": _sum_of_squares,
    "Resize": _resize,
    "Upsample": _resize,
}
