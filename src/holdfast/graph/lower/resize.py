"""Resize and Upsample: nearest moves values, linear and cubic are matrix products along each axis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.graph.ir import Array
from holdfast.graph.lower.fold import run
from holdfast.graph.lower.matrix import matmul
from holdfast.graph.lower.moves import ridden
from holdfast.graph.lower.values import Build, Lowering, Node, Value, View, as_view


def _resize(node: Node, build: Build) -> list[Value]:
    for at in range(1, len(node.inputs)):
        node.constant(at, "scales or sizes")
    if node.attributes.get("mode", "nearest") == "nearest":
        return ridden(np.int32)(node, build)
    view: Value = node.view()
    shape = _out_shape(node, view.shape)
    for axis, (length, wanted) in enumerate(zip(view.shape, shape, strict=True)):
        if length == wanted and _scale(node, axis) in (None, 1.0):
            continue
        weight = _along(node, view.shape, axis)
        view = as_view(view)
        turned = View(
            np.moveaxis(view.index, axis, -1), None if view.fill is None else np.moveaxis(view.fill, axis, -1)
        )
        made = as_view(matmul(build, node, turned, weight))
        view = View(np.moveaxis(made.index, -1, axis))
    return [view]


def _scales(node: Node) -> NDArray[Any] | None:
    if "scales" in node.attributes:
        return np.asarray(node.attributes["scales"], np.float32)
    found = node.constant(1 if node.opset < 11 else 2, "scales")
    return None if found is None or not found.size else found


def _scale(node: Node, axis: int) -> float | None:
    scales = _scales(node)
    if scales is None:
        return None
    axes = node.ints("axes")
    if axes is None:
        return float(scales[axis])
    return float(scales[axes.index(axis)]) if axis in axes else 1.0


def _out_shape(node: Node, shape: tuple[int, ...]) -> tuple[int, ...]:
    probe = run(node, (np.zeros(shape, np.float32), *node.inputs[1:]))[0]
    return probe.shape


def _along(node: Node, shape: tuple[int, ...], axis: int) -> Array:
    """The interpolation matrix (n, m) along one axis: what ONNX Runtime makes of each unit vector."""
    length = shape[axis]
    # the unit vectors lie along an axis that the node leaves alone, every other axis has length 1
    return _probed(node, shape, axis, length)


def _probed(node: Node, shape: tuple[int, ...], axis: int, length: int) -> Array:
    columns = []
    for at in range(length):
        unit = np.zeros(shape, np.float32)
        unit[(slice(None),) * axis + (at,)] = 1.0
        out = run(node, (unit, *node.inputs[1:]))[0]
        columns.append(np.moveaxis(out, axis, -1).reshape(-1, out.shape[axis])[0])
    return np.stack(columns).astype(np.float64)


OPERATORS: Mapping[str, Lowering] = {"Resize": _resize, "Upsample": _resize}
