"""Operators that only move values about: numpy on element numbers, no step."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import helper

from holdfast.graph.lower.values import Lowering, Node, StepBuilder, Value, View, as_view, moved, run
from holdfast.graph.nodes import dropout_trains


def _reshape(node: Node, build: StepBuilder) -> list[Value]:
    value = node.value()
    target = node.ints("shape", 1)
    if target is None:
        raise node.fail("expected a shape")
    zero_is_zero = bool(node.attributes.get("allowzero"))
    shape = [value.shape[i] if d == 0 and not zero_is_zero else d for i, d in enumerate(target)]
    fixed = int(np.prod([d for d in shape if d != -1]))
    size = int(np.prod(value.shape))
    if fixed and -1 not in shape and fixed != size and shape and size and fixed % size == 0:
        shape[0] = shape[0] * size // fixed or shape[0]  # a batch written into the file; ours is 1
    try:
        return [moved(value, lambda a: a.reshape(shape))]
    except ValueError:
        raise node.fail(f"expected {fixed} values for shape {tuple(shape)}, got {value.shape}") from None


def _flatten(node: Node, build: StepBuilder) -> list[Value]:
    value = node.value()
    axis = int(node.attributes.get("axis", 1))
    first = int(np.prod(value.shape[:axis])) if axis else 1
    return [moved(value, lambda a: a.reshape(first, -1))]


def _unsqueeze(node: Node, build: StepBuilder) -> list[Value]:
    axes = node.ints("axes", 1)
    if axes is None:
        raise node.fail("expected axes")
    return [moved(node.value(), lambda a: np.expand_dims(a, axes))]


def _dropout(node: Node, build: StepBuilder) -> list[Value]:
    """The value itself: nothing is dropped at inference."""
    if dropout_trains(node.opset, node.attributes, node.constant(2, "training_mode")):
        raise node.fail("it is in training mode; export the model for inference")
    return [node.value()]


def _cast(node: Node, build: StepBuilder) -> list[Value]:
    dtype = helper.tensor_dtype_to_np_dtype(int(node.attributes["to"]))
    value = node.value()
    if not isinstance(value, View):
        return [value.astype(dtype)]
    if dtype.kind != "f" or dtype.itemsize < 4:
        raise node.fail(f"a cast to {dtype.name} of a value that depends on the network's input rounds")
    return [value]


def _slice(node: Node, build: StepBuilder) -> list[Value]:
    value = node.value()
    starts, ends = node.ints("starts", 1), node.ints("ends", 2)
    if starts is None or ends is None:
        raise node.fail("expected starts and ends")
    axes = node.ints("axes", 3) or tuple(range(len(starts)))
    steps = node.ints("steps", 4) or (1,) * len(starts)
    cuts: list[slice] = [slice(None)] * len(value.shape)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        cuts[axis] = slice(start, end, step)
    return [moved(value, lambda a: a[tuple(cuts)])]


def _split(node: Node, build: StepBuilder) -> list[Value]:
    value = node.value()
    axis = int(node.attributes.get("axis", 0))
    sizes = node.ints("split", 1)
    if sizes is None:
        length, parts = value.shape[axis], int(node.attributes.get("num_outputs", node.outputs))
        each = -(-length // parts)
        sizes = tuple(max(min(each, length - i * each), 0) for i in range(parts))
    places = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    return [moved(value, partial(np.take, indices=each, axis=axis)) for each in places]


def _gather(node: Node, build: StepBuilder) -> list[Value]:
    at, axis = node.required_constant(1, "indices"), int(node.attributes.get("axis", 0))
    return [moved(node.value(), lambda a: np.take(a, at, axis=axis))]


def _expand(node: Node, build: StepBuilder) -> list[Value]:
    full = np.broadcast_shapes(node.value().shape, node.ints("shape", 1) or ())
    return [moved(node.value(), lambda a: np.broadcast_to(a, full))]


def _shape(node: Node, build: StepBuilder) -> list[Value]:
    shape = node.value().shape
    return [np.array(shape[node.attributes.get("start") : node.attributes.get("end")], np.int64)]


def _concat(node: Node, build: StepBuilder) -> list[Value]:
    axis = int(node.attributes.get("axis", 1))
    values = node.values()
    arrays = [v for v in values if not isinstance(v, View)]
    if len(arrays) == len(values):
        return [np.concatenate(arrays, axis=axis)]
    views = [as_view(v) for v in values]
    plain = all(v.fill is None for v in views)
    fill = None if plain else np.concatenate([v.filled() for v in views], axis=axis)
    return [View(np.concatenate([v.index for v in views], axis=axis), fill)]


def _where(node: Node, build: StepBuilder) -> list[Value]:
    condition = node.required_constant(0, "condition")
    left, right = as_view(node.value(1)), as_view(node.value(2))
    fill = np.where(condition, left.filled(), right.filled())
    return [View(np.where(condition, left.index, right.index), fill)]


def _pad(node: Node, build: StepBuilder) -> list[Value]:
    value = as_view(node.value())
    pads = node.ints("pads", 1) or node.ints("paddings")
    mode = node.attributes.get("mode", "constant")
    if pads is None:
        raise node.fail("expected pads")
    value_input = node.constant(2, "value")
    fill = float(node.attributes.get("value", 0.0)) if value_input is None else float(value_input.ravel()[0])
    rank = len(value.shape)
    axes = node.ints("axes", 3) or tuple(range(rank))
    widths = [(0, 0)] * rank
    for i, axis in enumerate(axes):
        widths[axis] = (pads[i], pads[i + len(axes)])
    crop = tuple(slice(max(-a, 0), n - max(-b, 0)) for (a, b), n in zip(widths, value.shape, strict=True))
    grow = [(max(a, 0), max(b, 0)) for a, b in widths]
    index, constants = value.index[crop], value.filled()[crop]
    if mode == "constant":
        return [View(np.pad(index, grow, constant_values=-1), np.pad(constants, grow, constant_values=fill))]
    if mode not in ("reflect", "edge", "wrap"):
        raise node.fail(f"its mode {mode!r} is not known")
    return [View(index, constants).moved(lambda a: np.pad(a, grow, mode=mode))]


def ridden(dtype: type[np.generic], many: tuple[int, ...] = (0,)) -> Lowering:
    """A lowering that lets ONNX Runtime move the numbers of the elements: its rounding, its corner cases.

    The numbers ride one higher, so that an element that comes out as 0 is a constant.
    """

    def lower(node: Node, build: StepBuilder) -> list[Value]:
        if all(not isinstance(v, View) for v in node.inputs):
            return list(run(node, node.inputs))
        if node.attributes.get("reduction", "none") != "none":
            raise node.fail("a reduction of scattered values is not supported")
        for at, value in enumerate(node.inputs):
            if isinstance(value, View) and at not in many:
                raise node.fail(f"its input {at} depends on the network's input; expected a constant")
        views = {at: as_view(node.value(at)) for at in many}

        def through(arrays: dict[int, NDArray[Any]]) -> NDArray[Any]:
            return run(node, tuple(arrays.get(at, value) for at, value in enumerate(node.inputs)))[0]

        index = through({at: (v.index + 1).astype(dtype) for at, v in views.items()}).astype(np.int64) - 1
        if (index >= 0).all():
            return [View(index)]
        kind = np.float32 if dtype is np.int32 else np.float64
        fill = through({at: v.filled().astype(kind) for at, v in views.items()})
        return [View(index, fill.astype(np.float64))]

    return lower


OPERATORS: Mapping[str, Lowering] = {
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Transpose": lambda node, build: [moved(node.value(), lambda a: a.transpose(node.ints("perm")))],
    "Squeeze": lambda node, build: [moved(node.value(), lambda a: np.squeeze(a, axis=node.ints("axes", 1)))],
    "Unsqueeze": _unsqueeze,
    "Identity": lambda node, build: [node.value()],
    "Dropout": _dropout,
    "Cast": _cast,
    "Slice": _slice,
    "Split": _split,
    "Gather": _gather,
    "Expand": _expand,
    "Shape": _shape,
    "Size": lambda node, build: [np.array(int(np.prod(node.value().shape)), np.int64)],
    "Concat": _concat,
    "Where": _where,
    "Pad": _pad,
    "Tile": ridden(np.int64),
    "GatherND": ridden(np.int64),
    "GatherElements": ridden(np.int64),
    "ScatterND": ridden(np.int64, (0, 2)),
    "ScatterElements": ridden(np.int64, (0, 2)),
    "Trilu": ridden(np.int64),
    "DepthToSpace": ridden(np.float64),
    "SpaceToDepth": ridden(np.float64),
}
