"""Resize and Upsample: nearest moves values, linear and cubic are matrix products along each axis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from holdfast.graph.ir import Array
from holdfast.graph.lower.fold import run
from holdfast.graph.lower.matrix import matmul
from holdfast.graph.lower.moves import moved, ridden
from holdfast.graph.lower.values import Build, Lowering, Node, Value, View, as_view


def _resize(node: Node, build: Build) -> list[Value]:
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
    wanted = run(node, (np.zeros(view.shape, np.float32), *node.inputs[1:]))[0].shape
    scales = per_axis(node, view.shape, "scales", 1 if node.opset < 11 else 2)
    changed = [a for a, n in enumerate(view.shape) if wanted[a] != n or scales.get(a, 1.0) != 1.0]
    still = [a for a in range(len(wanted)) if a not in changed]
    if changed and not still:
        raise node.fail("expected at least one axis that keeps its size")
    for axis in changed:
        weight = along(node, view.shape, axis, still)
        turned = as_view(moved(view, lambda a, axis=axis: np.moveaxis(a, axis, -1)))  # type: ignore[misc]
        made = as_view(matmul(build, node, turned, weight))
        view = View(np.moveaxis(made.index, -1, axis))
    return [view]


def per_axis(node: Node, shape: tuple[int, ...], name: str, at: int) -> dict[int, float]:
    """The scales or sizes that are given, by axis."""
    found = node.attributes.get(name)
    if found is None:
        found = node.constant(at, name)
    if found is None or not np.size(found):
        return {}
    axes = node.ints("axes") or tuple(range(len(shape)))
    return {a % len(shape): float(v) for a, v in zip(axes, found, strict=True)}


def along(node: Node, shape: tuple[int, ...], axis: int, still: list[int]) -> Array:
    """The interpolation matrix (n, m) along one axis: what ONNX Runtime makes of the unit vectors.

    They lie along the first of the axes that keep their size; every other axis has length 1.
    """
    length, host = shape[axis], still[0]
    units = np.zeros([length if a in (axis, host) else 1 for a in range(len(shape))], np.float32)
    at = np.arange(length)
    units[tuple(at if a in (axis, host) else 0 for a in range(len(shape)))] = 1.0
    inputs: list[Any] = [units, *node.inputs[1:]]
    at_scales = 1 if node.opset < 11 else 2
    if len(inputs) > at_scales and inputs[at_scales] is not None and np.size(inputs[at_scales]):
        axes = [a % len(shape) for a in node.ints("axes") or range(len(shape))]
        # by a scale below 1 an axis of length 1 would vanish
        inputs[at_scales] = np.array(
            [v if a == axis else 1.0 for a, v in zip(axes, inputs[at_scales], strict=True)], np.float32
        )
    if len(inputs) > 3 and inputs[3] is not None and np.size(inputs[3]):
        axes = [a % len(shape) for a in node.ints("axes") or range(len(shape))]
        sizes = np.array(inputs[3])
        for place, a in enumerate(axes):
            sizes[place] = units.shape[a] if a in still else sizes[place]
        inputs[3] = sizes
    out = run(node, tuple(inputs))[0]
    return np.moveaxis(out, (host, axis), (0, 1)).reshape(length, out.shape[axis], -1)[:, :, 0].astype(float)


OPERATORS: Mapping[str, Lowering] = {"Resize": _resize, "Upsample": _resize}
