"""Operators that only move or select values, and those that compute indices and sizes."""

from collections.abc import Mapping
from functools import partial
from math import prod
from typing import Any

import numpy as np
import torch
from onnx import helper
from torch import Tensor
from torch.nn import functional

from holdfast.graph.lower.values import Lowering, Node, StepBuilder, Value
from holdfast.train.onnx.net import is_batched, plain, record_operators, tape_of

_CASTS = ("float32", "float64", "int64", "int32", "bool", "uint8", "int8", "float16")
_PAD_MODES = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}


def _int_list(node: Node, name: str, given: Tensor | None) -> list[int] | None:
    """Integers of an input or, in older opsets, of an attribute; None if neither exists."""
    values: Any = node.attributes.get(name) if given is None else given.tolist()
    return None if values is None else [int(value) for value in values]


def _same(node: Node, build: StepBuilder) -> list[Value]:
    if node.outputs > 1:
        raise node.fail("its second output (which values were kept) is not supported")
    return [node.value()]


def _reshape(node: Node, build: StepBuilder) -> list[Value]:
    computed = len(node.inputs) > 1 and is_batched(node.inputs[1])  # from our own batch
    run = partial(_reshaped, batched=is_batched(node.value()), computed=computed)
    return tape_of(build).record(node, run)


def _reshaped(
    net: Any, node: Node, x: Tensor, shape: Tensor | None = None, *, batched: bool, computed: bool
) -> Tensor:
    target = _int_list(node, "shape", shape) or []
    zero = bool(node.attributes.get("allowzero"))
    shape_out = [x.shape[i] if d == 0 and not zero else d for i, d in enumerate(target)]
    fixed = net.plan.fixed
    if batched and fixed and net.count != fixed and shape_out and target[0] > 0:
        known = prod(d for d in shape_out if d != -1)
        # the shape contains the batch of the file, not ours
        if (-1 in shape_out and not computed) or (-1 not in shape_out and known != x.numel()):
            shape_out[0] = shape_out[0] * net.count // fixed
    return x.reshape(shape_out)


def _flatten(net: Any, node: Node, x: Tensor) -> Tensor:
    axis = int(node.attributes.get("axis", 1))
    return x.reshape(prod(x.shape[: axis % x.ndim if axis < 0 else axis]), -1)


def _squeeze(net: Any, node: Node, x: Tensor, axes: Tensor | None = None) -> Tensor:
    listed = _int_list(node, "axes", axes)
    return x.squeeze() if listed is None else x.squeeze(tuple(listed))


def _unsqueeze(net: Any, node: Node, x: Tensor, axes: Tensor | None = None) -> Tensor:
    listed = _int_list(node, "axes", axes) or []
    rank = x.ndim + len(listed)
    for axis in sorted(a % rank for a in listed):
        x = x.unsqueeze(axis)
    return x


def _concat(net: Any, node: Node, *values: Tensor) -> Tensor:
    axis = int(node.attributes["axis"])
    many = max(len(v) if v.ndim else 0 for v in values)
    if net.plan.fixed == 1 and axis % max(values[0].ndim, 1) and any(len(v) != many for v in values):
        values = tuple(v.expand(many, *v.shape[1:]) for v in values)  # a token for one image
    return torch.cat(values, axis)


def _pad(
    net: Any, node: Node, x: Tensor, pads: Tensor | None = None, fill: Tensor | None = None,
    axes: Tensor | None = None,
) -> Tensor:  # fmt: skip
    mode = str(node.attributes.get("mode", "constant"))
    if mode not in _PAD_MODES:
        raise node.fail(f"its mode {mode!r} is not known")
    sizes = _int_list(node, "pads", pads) or _int_list(node, "paddings", None) or []
    padded_axes = list(range(x.ndim)) if axes is None else [int(a) % x.ndim for a in axes.tolist()]
    widths = [(0, 0)] * x.ndim
    for i, axis in enumerate(padded_axes):
        widths[axis] = (sizes[i], sizes[i + len(padded_axes)])
    if mode == "constant":
        flat = [size for pair in reversed(widths) for size in pair]
        value = float(node.attributes.get("value", 0.0)) if fill is None else float(fill)
        return functional.pad(x, flat, value=value)
    for axis, (before, after) in enumerate(widths):
        if before or after:
            turned = x.movedim(axis, -1)
            rows = turned.reshape(1, -1, turned.shape[-1])
            border = functional.pad(rows, (before, after), mode=_PAD_MODES[mode])
            x = border.reshape(*turned.shape[:-1], -1).movedim(-1, axis)
    return x


def _cast(net: Any, node: Node, x: Tensor) -> Tensor:
    kind = helper.tensor_dtype_to_np_dtype(int(node.attributes["to"])).name
    if kind not in _CASTS:
        raise node.fail(f"a cast to {kind} is not supported")
    return x.to(getattr(torch, kind))


def _depth_to_space(net: Any, node: Node, x: Tensor) -> Tensor:
    side = int(node.attributes["blocksize"])
    if str(node.attributes.get("mode", "DCR")) == "CRD":
        return functional.pixel_shuffle(x, side)
    n, c, h, w = x.shape
    split = x.reshape(n, side, side, c // side**2, h, w).permute(0, 3, 4, 1, 5, 2)
    return split.reshape(n, c // side**2, h * side, w * side)


def _space_to_depth(net: Any, node: Node, x: Tensor) -> Tensor:
    side = int(node.attributes["blocksize"])
    n, c, h, w = x.shape
    split = x.reshape(n, c, h // side, side, w // side, side).permute(0, 3, 5, 1, 2, 4)
    return split.reshape(n, c * side**2, h // side, w // side)


def _slice(net: Any, node: Node, x: Tensor, *given: Tensor | None) -> Tensor:
    pairs = zip(("starts", "ends", "axes", "steps"), (*given, *[None] * 4), strict=False)
    starts, ends, axes, steps = (_int_list(node, *pair) or [] for pair in pairs)
    axes, steps = axes or list(range(len(starts))), steps or [1] * len(starts)
    for axis, *cut in zip(axes, starts, ends, steps, strict=True):
        x = _cut(x, axis, slice(*cut))
    return x


def _cut(x: Tensor, axis: int, cut: slice) -> Tensor:
    if cut.step > 0:
        return x[(slice(None),) * (axis % x.ndim) + (cut,)]
    positions = range(x.shape[axis])[cut.start : None if cut.stop < -x.shape[axis] else cut.stop : cut.step]
    return x.index_select(axis, torch.tensor(list(positions), dtype=torch.int64))


def _split(net: Any, node: Node, x: Tensor, split: Tensor | None = None) -> tuple[Tensor, ...]:
    axis, parts = int(node.attributes.get("axis", 0)), int(node.attributes.get("num_outputs", node.outputs))
    sizes = _int_list(node, "split", split)
    if sizes is None:
        length = x.shape[axis]
        each = -(-length // parts)
        sizes = [max(min(each, length - i * each), 0) for i in range(parts)]
    return tuple(torch.split(x, sizes, axis))


def _gather(net: Any, node: Node, x: Tensor, indices: Tensor) -> Tensor:
    axis = int(node.attributes.get("axis", 0)) % x.ndim
    index = torch.where(indices < 0, indices + x.shape[axis], indices)
    picked = x.index_select(axis, index.reshape(-1))
    return picked.reshape((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))


def _gather_elements(net: Any, node: Node, x: Tensor, indices: Tensor) -> Tensor:
    axis = int(node.attributes.get("axis", 0))
    return torch.gather(x, axis, torch.where(indices < 0, indices + x.shape[axis], indices))


def _trilu(net: Any, node: Node, x: Tensor, k: Tensor | None = None) -> Tensor:
    cut = torch.triu if node.attributes.get("upper", 1) else torch.tril
    return cut(x, 0 if k is None else int(k))


def _shape(net: Any, node: Node, x: Tensor) -> Tensor:
    part = slice(node.attributes.get("start"), node.attributes.get("end"))
    return torch.tensor(x.shape[part], dtype=torch.int64)


def _constant_of_shape(net: Any, node: Node, shape: Tensor) -> Tensor:
    value = torch.from_numpy(np.array(node.attributes.get("value", np.zeros(1, np.float32))))
    return value.expand(tuple(shape.tolist())).clone()


OPERATORS: Mapping[str, Lowering] = {
    "Identity": _same,
    "Dropout": _same,
    "Reshape": _reshape,
    **record_operators(
        {
            "Cast": _cast,
            "Flatten": _flatten,
            "Transpose": lambda net, node, x: x.permute(node.ints("perm") or tuple(range(x.ndim))[::-1]),
            "Squeeze": _squeeze,
            "Unsqueeze": _unsqueeze,
            "Expand": plain(lambda x, shape: x.expand(torch.broadcast_shapes(x.shape, shape.tolist()))),
            "Tile": plain(lambda x, times: x.repeat(times.tolist())),
            "Concat": _concat,
            "Pad": _pad,
            "DepthToSpace": _depth_to_space,
            "SpaceToDepth": _space_to_depth,
            "Slice": _slice,
            "Split": _split,
            "Gather": _gather,
            "GatherElements": _gather_elements,
            "Trilu": _trilu,
            "Shape": _shape,
            "Size": plain(lambda x: torch.tensor(x.numel(), dtype=torch.int64)),
            "ConstantOfShape": _constant_of_shape,
            "Range": plain(lambda *ends: torch.arange(*(end.item() for end in ends), dtype=ends[0].dtype)),
        }
    ),
}
