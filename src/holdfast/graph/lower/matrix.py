"""Matrix products: with a constant a Dense for one row, a 1x1 Conv for many; of two tensors by Product."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.graph.ir import Array, Conv, Dense
from holdfast.graph.lower.linear import product, scaled, total
from holdfast.graph.lower.values import Build, Lowering, Node, Value, View, as_view

LARGEST_PRODUCT = 1 << 21  # elementwise products for one matrix product of two tensors


def dense(build: Build, source: int, weight: Array) -> int:
    """The number of a new Dense step."""
    weight = np.ascontiguousarray(weight, np.float64)
    return build.emit(Dense(source, weight, np.zeros(len(weight)), (len(weight),)))


def swapped(value: Value) -> Value:
    """The value with its last two axes exchanged."""
    if not isinstance(value, View):
        return np.swapaxes(value, -1, -2)
    fill = None if value.fill is None else np.swapaxes(value.fill, -1, -2)
    return View(np.swapaxes(value.index, -1, -2), fill)


def reshaped(value: Value, shape: tuple[int, ...]) -> Value:
    """The value in another shape."""
    if not isinstance(value, View):
        return value.reshape(shape)
    return View(value.index.reshape(shape), None if value.fill is None else value.fill.reshape(shape))


def matmul(build: Build, node: Node, left: Value, right: Value) -> Value:
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


def _by_constant(build: Build, x: View, weight: Array) -> View:
    """The product x (..., r, n) @ weight (..., n, m)."""
    batch = np.broadcast_shapes(x.shape[:-2], weight.shape[:-2])
    rows, inner, columns = x.shape[-2], x.shape[-1], weight.shape[-1]
    if prod(x.shape[:-1]) == 1 and prod(weight.shape[:-2]) == 1:
        made = dense(build, build.held(x), weight.reshape(inner, columns).T)
        return build.whole(made, (*batch, rows, columns))
    if prod(weight.shape[:-2]) == 1:  # one matrix for all rows
        groups, many = 1, prod(batch) * rows
        weight = weight.reshape(1, inner, columns)
    else:
        groups, many = prod(batch), rows
        weight = np.broadcast_to(weight, (*batch, inner, columns)).reshape(groups, inner, columns)

    def channels_first(values: NDArray[Any]) -> NDArray[Any]:
        full = np.broadcast_to(values, (*batch, rows, inner)).reshape(groups, many, inner)
        return np.moveaxis(full, 2, 1).reshape(groups * inner, 1, many)

    source = View(channels_first(x.index), None if x.fill is None else channels_first(x.fill))
    step = build.held(source, (groups * inner, 1, many))
    kernel = np.moveaxis(weight, 2, 1).reshape(groups * columns, inner, 1, 1)
    conv = Conv(
        step,
        np.ascontiguousarray(kernel),
        np.zeros(groups * columns),
        (1, 1),
        (0, 0, 0, 0),
        (1, 1),
        groups,
        (groups * columns, 1, many),
    )
    index = build.whole(build.emit(conv), (groups, columns, many)).index
    return View(np.moveaxis(index, 1, 2).reshape(*batch, rows, columns))


def _both(build: Build, node: Node, left: View, right: View) -> Value:
    """A product of two tensors that both depend on the input, by element-wise products and sums."""
    batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    rows, inner, columns = left.shape[-2], left.shape[-1], right.shape[-1]
    if prod(batch) * rows * inner * columns > LARGEST_PRODUCT:
        raise node.fail("it multiplies two large tensors that both depend on the network's input")
    one = _expanded(left, -2)  # (..., r, 1, n)
    other = _expanded(as_view(swapped(right)), -3)
    both = as_view(product(build, one, other))  # (..., r, m, n)
    summed = _by_constant(build, both, np.ones((inner, 1)))
    return View(summed.index.reshape(*batch, rows, columns))


def _expanded(view: View, axis: int) -> View:
    fill = None if view.fill is None else np.expand_dims(view.fill, axis)
    return View(np.expand_dims(view.index, axis), fill)


def _gemm(node: Node, build: Build) -> list[Value]:
    left, right = node.value(0), node.value(1)
    if node.attributes.get("transA"):
        left = swapped(left)
    if node.attributes.get("transB"):
        right = swapped(right)
    alpha, beta = node.number("alpha", 1.0), node.number("beta", 1.0)
    result = (
        matmul(build, node, left, right)
        if isinstance(left, View) or isinstance(right, View)
        else np.asarray(left, np.float64) @ np.asarray(right, np.float64)
    )
    result = scaled(build, as_view(result), alpha, 0.0)
    third = node.inputs[2] if len(node.inputs) > 2 else None
    if third is None:
        return [result]
    return [total(build, result, third, (1.0, beta))]


OPERATORS: Mapping[str, Lowering] = {
    "MatMul": lambda node, build: [matmul(build, node, node.value(0), node.value(1))],
    "Gemm": _gemm,
}
