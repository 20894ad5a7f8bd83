"""How each operator carries the batch on: its place in what comes out, the node changed to fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from holdfast.patchbench.positions.batch import Follow, NotBatched, Place, Rule, attributes, set_attribute


def _refuse(node: Any, why: str) -> NotBatched:
    return NotBatched(f"{node.op_type} {node.output[0]!r}: {why}")


def _same(walk: Follow, node: Any, place: Place) -> Place:
    """One tensor in, one of the same layout out."""
    return place


def _spatial(walk: Follow, node: Any, place: Place) -> Place:
    """A filter over rows and columns: the batch must be in front."""
    if place != Place(0) or node.input[0] not in walk.places:
        raise _refuse(node, "the batch is not its first axis")
    return place


def _resize(walk: Follow, node: Any, place: Place) -> Place:
    """Sizes that hold the batch become factors."""
    _spatial(walk, node, place)
    if len(node.input) > 3 and node.input[3]:
        before, after = walk.shape(node.input[0]), walk.constant(node, 3)
        walk.put(node, 2, (after / np.array(before)).astype(np.float32))
        del node.input[3:]
    return place


def _elementwise(walk: Follow, node: Any, place: Place) -> Place:
    """Aligned from the right: the batch must be equally far from the end in all that have it."""
    ranks, far = [], set()
    for name in node.input:
        at, rank = walk.places.get(name), len(walk.shape(name))
        ranks.append(rank + (at is not None and at.extra))
        if at is not None:
            far.add(ranks[-1] - at.axis)
    distance = far.pop()
    for name, rank in zip(node.input, ranks, strict=True):
        alone = name not in walk.places and rank >= distance
        if far or (alone and walk.shape(name)[rank - distance] != 1):
            raise _refuse(node, "its inputs have the batch at different places")
    widest = max(ranks)
    if max(len(walk.shape(name)) for name in node.input) == widest:
        return Place(widest - distance)
    if widest != distance:
        raise _refuse(node, "the batch would lie behind another axis")
    return Place(0, extra=True)


def _moved(place: Place, axis: int, rank: int) -> int:
    """An axis of the file's tensor as one of the tensor with the batch."""
    return axis % rank + place.extra


def _other_axis(walk: Follow, node: Any, place: Place, default: int) -> int:
    """The axis a node works along, set for the tensor with the batch; it must not be the batch's."""
    rank = len(walk.shape(node.input[0]))
    axis = _moved(place, int(attributes(node).get("axis", default)), rank)
    if axis == place.axis:
        raise _refuse(node, "it works along the batch")
    set_attribute(node, "axis", axis)
    return axis


def _along(default: int) -> Rule:
    def rule(walk: Follow, node: Any, place: Place) -> Place:
        if any(walk.places.get(name) != place for name in node.input if name not in walk.constants):
            raise _refuse(node, "not all its inputs have the batch at one place")
        _other_axis(walk, node, place, default)
        return place

    return rule


def _softmax(walk: Follow, node: Any, place: Place) -> Place:
    """Before opset 13 a softmax is over all axes from its own on, by default from the second."""
    return _along(-1 if walk.opset >= 13 else 1)(walk, node, place)  # type: ignore[return-value]


def _concat(walk: Follow, node: Any, place: Place) -> Place:
    if any(name in walk.constants for name in node.input):
        raise _refuse(node, "it joins the pictures with a constant")
    return _along(0)(walk, node, place)  # type: ignore[return-value]


def _reduced(walk: Follow, node: Any, place: Place) -> Place:
    """ArgMax and ArgMin: one axis less, unless it is kept."""
    axis = _other_axis(walk, node, place, 0)
    kept = int(attributes(node).get("keepdims", 1))
    return place if kept or axis > place.axis else Place(place.axis - 1, place.extra)


def _slice(walk: Follow, node: Any, place: Place) -> Place:
    rank = len(walk.shape(node.input[0]))
    if walk.opset < 10:
        raise _refuse(node, "of an opset before 10")
    starts = walk.constant(node, 1)
    axes = walk.constant(node, 3) if len(node.input) > 3 and node.input[3] else np.arange(len(starts))
    moved = np.array([_moved(place, int(a), rank) for a in axes], np.int64)
    if (moved == place.axis).any():
        raise _refuse(node, "it cuts the batch")
    walk.put(node, 3, moved)
    return place


def _transpose(walk: Follow, node: Any, place: Place) -> Place:
    rank = len(walk.shape(node.input[0]))
    order = list(attributes(node).get("perm", range(rank)[::-1]))
    if place.extra:
        set_attribute(node, "perm", [0, *(p + 1 for p in order)])
        return place
    return Place(order.index(place.axis))


def _reshape(walk: Follow, node: Any, place: Place) -> Place:
    """The batch is the outermost part of its axis, and lies in front of as many numbers afterwards."""
    before, after = walk.shape(node.input[0]), walk.shape(node.output[0])
    if place.extra:
        before = (1, *before)
    ahead = int(np.prod(before[: place.axis]))
    fits = [i for i in range(len(after)) if int(np.prod(after[:i])) == ahead]
    axis = next((i for i in fits if after[i] == 1), fits[0] if fits else None)
    if axis is None and ahead != 1:
        raise _refuse(node, "it tears the batch apart")
    fixed = node.op_type == "Flatten" or node.input[1] in walk.constants
    # A batch of one flattened away with all the rest: the file goes on without it, so it becomes a new axis.
    lost = len(after) == 1 < len(before) and before[place.axis] == 1 and not place.axis
    if axis is None or ((place.extra or lost) and after[axis] != 1):
        target, axis, extra = [-1, *after], 0, True
    else:
        target, extra = [*after[:axis], -1, *after[axis + 1 :]], False
    if fixed:
        node.op_type = "Reshape"
        del node.attribute[:]
        walk.put(node, 1, np.array(target, np.int64))
    return Place(axis, extra)


def _axes_of(walk: Follow, node: Any) -> list[int]:
    told = attributes(node).get("axes")
    return list(told) if told is not None else [int(a) for a in walk.constant(node, 1)]


def _set_axes(walk: Follow, node: Any, axes: Sequence[int]) -> None:
    if not axes:
        node.op_type = "Identity"
        del node.input[1:], node.attribute[:]
    elif walk.opset < 13:
        set_attribute(node, "axes", list(axes))
    else:
        walk.put(node, 1, np.array(axes, np.int64))


def _squeeze(walk: Follow, node: Any, place: Place) -> Place:
    shape = walk.shape(node.input[0])
    told = attributes(node).get("axes") is not None or len(node.input) > 1
    axes = [a % len(shape) for a in _axes_of(walk, node)] if told else np.flatnonzero(
        np.array(shape) == 1
    ).tolist()  # fmt: skip
    if place.extra:
        _set_axes(walk, node, [a + 1 for a in axes])
        return place
    gone = place.axis in axes
    _set_axes(walk, node, [a for a in axes if a != place.axis])
    axis = place.axis - sum(a < place.axis for a in axes)
    if gone and axis:
        raise _refuse(node, "the batch would lie behind another axis")
    return Place(axis, extra=gone)


def _unsqueeze(walk: Follow, node: Any, place: Place) -> Place:
    rank = len(walk.shape(node.output[0]))
    axes = sorted(a % rank for a in _axes_of(walk, node))
    if place.extra:
        _set_axes(walk, node, [a + 1 for a in axes])
        return place
    axis = place.axis
    for a in axes:
        axis += a <= axis
    return Place(axis)


def _gather(walk: Follow, node: Any, place: Place) -> Place:
    """Taking the first of a batch of one means taking all of many."""
    if node.input[0] not in walk.places:
        raise _refuse(node, "it is told by the picture where to look")
    index, rank = walk.constant(node, 1), len(walk.shape(node.input[0]))
    axis = _moved(place, int(attributes(node).get("axis", 0)), rank)
    if axis == place.axis:
        if index.ndim or int(index) not in (0, -1) or axis or walk.shape(node.input[0])[0] != 1:
            raise _refuse(node, "it picks from the batch")
        node.op_type = "Identity"
        del node.input[1:], node.attribute[:]
        return Place(0, extra=True)
    set_attribute(node, "axis", axis)
    return place if axis > place.axis else Place(place.axis + index.ndim - 1, place.extra)


def _product(walk: Follow, node: Any, place: Place) -> Place:
    if node.input[0] not in walk.places or node.input[1] in walk.places or place != Place(0):
        raise _refuse(node, "the batch is not the first axis of its first input")
    if attributes(node).get("transA"):
        raise _refuse(node, "it turns the batch")
    return place


def _shape(walk: Follow, node: Any, place: Place) -> None:
    """A shape is computed anew from the data; what is made of it follows by itself."""


_ONE_TO_ONE = (
    *("Relu", "LeakyRelu", "Sigmoid", "HardSigmoid", "HardSwish", "Tanh", "Clip", "Cast", "Identity", "Neg"),
    *(
        "Abs",
        "Exp",
        "Log",
        "Sqrt",
        "Floor",
        "Ceil",
        "Round",
        "Sign",
        "Not",
        "Softplus",
        "Elu",
        "Erf",
        "Dropout",
    ),
)
_FILTERS = (
    *("Conv", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "BatchNormalization"),
    *("InstanceNormalization", "LRN", "Pad", "DepthToSpace", "SpaceToDepth", "ConvTranspose"),
)
_PAIRS = (
    *("Add", "Sub", "Mul", "Div", "Pow", "Min", "Max", "Sum", "PRelu", "Where", "Equal", "Less", "Greater"),
    *("LessOrEqual", "GreaterOrEqual", "And", "Or", "Xor"),
)
RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_ONE_TO_ONE, _same),
    **dict.fromkeys(_FILTERS, _spatial),
    **dict.fromkeys(_PAIRS, _elementwise),
    **dict.fromkeys(("ArgMax", "ArgMin"), _reduced),
    **dict.fromkeys(("MatMul", "Gemm"), _product),
    **dict.fromkeys(("Reshape", "Flatten"), _reshape),
    **dict.fromkeys(("Softmax", "LogSoftmax"), _softmax),
    "Split": _along(0),
    "Concat": _concat,
    "Resize": _resize,
    "Slice": _slice,
    "Transpose": _transpose,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Gather": _gather,
    "Shape": _shape,
}
