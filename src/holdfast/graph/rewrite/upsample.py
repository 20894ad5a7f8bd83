"""Upsampling: replace nearest-neighbour by bilinear interpolation, and vice versa.

Each option is one convention for enlarging all maps. A node that already follows it is unchanged, and so
is one where both conventions give the same numbers (nearest neighbours at an integer factor, a 1×1 map).
Nodes that shrink a map, or use cubic interpolation, are unchanged.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import helper

from holdfast.core.registry import F, stage
from holdfast.core.types import Floats
from holdfast.graph.inspect import STANDARD
from holdfast.graph.nodes import attributes_of, drop_attributes, set_attribute
from holdfast.graph.rewrite.follow.walk import GraphWalk, cannot, counted, proven, title, walk_graph
from holdfast.graph.rewrite.types import ModelProto, RewriteContext, RewriteResult


@dataclass(frozen=True)
class Convention:
    """How a runtime resizes: by what, and where the centre of a new cell lies among the old ones."""

    mode: str  # nearest or linear
    place: str  # coordinate_transformation_mode
    rounding: str = "round_prefer_floor"  # nearest_mode


SAME = 1e-6  # weights that differ by less are the same


def _upsampling(**facts: Any) -> Callable[[F], F]:
    return stage("rewrite", family="upsample", **facts)


@_upsampling(
    paper=True,
    systems="PyTorch bilinear with align_corners=False, ONNX Resize linear half_pixel, TensorFlow 2",
)
def upsample_bilinear(model: ModelProto, context: RewriteContext) -> RewriteResult:
    """Maps enlarged bilinearly, pixel centres aligned: x = (x′ + ½)/s − ½."""
    return _all(model, context, Convention("linear", "half_pixel"))


@_upsampling(
    systems="PyTorch bilinear with align_corners=True, ONNX Resize align_corners, Caffe forks' Interp"
)
def upsample_bilinear_corners(model: ModelProto, context: RewriteContext) -> RewriteResult:
    """Maps enlarged bilinearly, corner pixels aligned: x = x′·(W − 1)/(W′ − 1)."""
    return _all(model, context, Convention("linear", "align_corners"))


@_upsampling(
    systems="TensorFlow 1 and TFLite without half_pixel_centers, ONNX Upsample linear (opset 7 to 10)"
)
def upsample_bilinear_asymmetric(model: ModelProto, context: RewriteContext) -> RewriteResult:
    """Maps enlarged bilinearly, counted from the corner: x = x′/s."""
    return _all(model, context, Convention("linear", "asymmetric"))


@_upsampling(paper=True, systems="PyTorch nearest, ONNX Resize asymmetric floor and Upsample, darknet")
def upsample_nearest(model: ModelProto, context: RewriteContext) -> RewriteResult:
    """Maps enlarged by nearest neighbours counted from the corner: x = ⌊x′/s⌋."""
    return _all(model, context, Convention("nearest", "asymmetric", "floor"))


@_upsampling(
    default=False,
    systems="PyTorch nearest-exact, ONNX Resize's default but for ties; differs at broken factors only",
)
def upsample_nearest_exact(model: ModelProto, context: RewriteContext) -> RewriteResult:
    """Maps enlarged by the neighbour nearest to the pixel centre: x = ⌊(x′ + ½)/s⌋."""
    return _all(model, context, Convention("nearest", "half_pixel", "round_prefer_ceil"))


def _all(model: ModelProto, context: RewriteContext, target: Convention) -> RewriteResult:
    """The model with every enlarging node converted to `target`; the same model if none differs."""
    if not any(_resizes(node) for node in model.graph.node):
        return RewriteResult(model, ())
    walk = walk_graph(model, context.picture, {})
    nodes = list(walk.nodes)
    indices = [i for i, node in enumerate(nodes) if _resizes(node) and _differs(walk, node, target)]
    if not indices:
        return RewriteResult(model, ())
    changed = {i: _convert(walk, nodes[i], target) for i in indices}
    names = tuple(title(nodes[i]) for i in indices)
    how = counted("Products" if len(new) > 1 else new[0].op_type for new in changed.values())
    del model.graph.node[:]
    model.graph.node.extend(new for i, node in enumerate(nodes) for new in changed.get(i, (node,)))
    proven(walk)
    return RewriteResult(model, names, f"{how}: {target.mode}, {target.place}")


def _resizes(node: Any) -> bool:
    return node.op_type in ("Resize", "Upsample") and node.domain in STANDARD


def convention(node: Any, opset: int) -> Convention:
    """How a node resizes now; before opset 11 cells are counted from the corner."""
    attributes = {a.name: a.s.decode() for a in node.attribute if a.s}
    mode = attributes.get("mode", "nearest")
    mode = "linear" if mode == "bilinear" else mode
    if node.op_type == "Upsample" or opset < 11:
        return Convention(mode, "asymmetric", "floor")
    place = attributes.get("coordinate_transformation_mode", "half_pixel")
    return Convention(mode, place, attributes.get("nearest_mode", "round_prefer_floor"))


def _differs(walk: GraphWalk, node: Any, target: Convention) -> bool:
    """Whether a node enlarges, by nearest neighbours or linearly, and its weights differ from `target`'s."""
    now = convention(node, walk.opset)
    if now.mode not in ("nearest", "linear") or now.place == "tf_crop_and_resize":
        return False
    source, out = (walk.value(name).old_shape for name in (node.input[0], node.output[0]))
    if not source or len(source) != len(out):
        raise cannot(node, "has a size that depends on the image")
    if source == out or any(b < a for a, b in zip(source, out, strict=True)):
        return False
    for cells, size, scale in zip(source, out, _scales(walk, node), strict=True):
        old, new = (weights(cells, size, scale, how) for how in (now, target))
        if old is None or new is None or np.abs(old - new).max() > SAME:
            return True
    return False


def _scales(walk: GraphWalk, node: Any) -> list[float]:
    """The factor of each axis: the one the node states, else new size over old."""
    source, out = (walk.value(name).old_shape for name in (node.input[0], node.output[0]))
    plain = [b / a for a, b in zip(source, out, strict=True)]
    at = 2 if node.op_type == "Resize" and walk.opset >= 11 else 1
    value = walk.value(node.input[at]).old if at < len(node.input) else None
    stated = attributes_of(node).get("scales", () if value is None else value)
    return [float(v) for v in stated] if len(stated) == len(plain) else plain


def _convert(walk: GraphWalk, node: Any, target: Convention) -> list[Any]:
    """The node with other attributes; before opset 11, which has only one convention, the products A·X·Bᵀ."""
    old = node.op_type == "Upsample" or walk.opset < 11
    if old and target.place != "asymmetric":
        return _products(walk, node, target)
    drop_attributes(node, "coordinate_transformation_mode", "nearest_mode", "antialias")
    set_attribute(node, "mode", target.mode)
    if not old:
        set_attribute(node, "coordinate_transformation_mode", target.place)
    if not old and target.mode == "nearest":
        set_attribute(node, "nearest_mode", target.rounding)
    return [node]


def _products(walk: GraphWalk, node: Any, target: Convention) -> list[Any]:
    source, out = (walk.value(name).old_shape for name in (node.input[0], node.output[0]))
    if len(source) != 4 or source[:2] != out[:2]:
        raise cannot(node, f"resizes {source} to {out}, which opset {walk.opset} can do in one way only")
    scales = _scales(walk, node)
    sides = (weights(source[i], out[i], scales[i], target) for i in (2, 3))
    rows, columns = (np.asarray(side, np.float32) for side in sides)
    del node.input[1:]
    walk.replace_input(node, 1, rows)
    walk.replace_input(node, 2, np.ascontiguousarray(columns.T))
    image, first, second = node.input
    between, name = f"{node.output[0]}/rows", title(node)
    return [
        helper.make_node("MatMul", [first, image], [between], name=f"{name}/rows"),
        helper.make_node("MatMul", [between, second], list(node.output), name=name),
    ]


def centres(cells: int, size: int, scale: float, place: str) -> Floats | None:
    """Position of each of `size` new cells among `cells` old ones, in cells; None for another convention.

    half_pixel: (x + ½)/s − ½ · asymmetric: x/s · align_corners: x·(W − 1)/(W′ − 1)
    """
    at = np.arange(size, dtype=np.float64)
    if place == "asymmetric":
        return np.asarray(at / scale)
    if place == "align_corners":
        return np.asarray(at * (cells - 1) / (size - 1) if size > 1 else 0.0 * at)
    if place == "pytorch_half_pixel" and size == 1:
        return 0.0 * at
    if place in ("half_pixel", "pytorch_half_pixel"):
        return np.asarray((at + 0.5) / scale - 0.5)
    if place == "half_pixel_symmetric":
        whole = scale * cells
        return np.asarray(cells / 2 * (1 - size / whole) + (at + 0.5) / scale - 0.5)
    return None


def weights(cells: int, size: int, scale: float, how: Convention) -> Floats | None:
    """The matrix (size, cells) that resizes an axis; None for a convention this does not know."""
    at = centres(cells, size, scale, how.place)
    if at is None or how.mode not in ("nearest", "linear"):
        return None
    rows = np.arange(size)
    matrix = np.zeros((size, cells))
    if how.mode == "nearest":
        at = np.round(at, 6)  # 2.9999999 is 3: quotients of whole numbers are not exact
        half = 0.5 if how.rounding.startswith("round") else 0.0
        down = how.rounding in ("floor", "round_prefer_ceil")
        nearest = (np.floor(at + half) if down else np.ceil(at - half)).astype(np.int64)
        matrix[rows, np.clip(nearest, 0, cells - 1)] = 1.0
        return matrix
    at = np.clip(at, 0.0, cells - 1.0)
    first = np.minimum(np.floor(at).astype(np.int64), cells - 1)
    share = at - first
    np.add.at(matrix, (rows, first), 1.0 - share)
    np.add.at(matrix, (rows, np.minimum(first + 1, cells - 1)), share)
    return matrix
