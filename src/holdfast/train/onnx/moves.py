"""Operators that only move or pick values, and those that compute places and sizes."""

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


def _stated(node: Node, name: str, given: Tensor | None) -> list[int] | None:
    """Whole numbers of an input or, in older opsets, of an attribute; None if in neither."""
    found: Any = node.attributes.get(name) if given is None else given.tolist()
    return None if found is None else [int(value) for value in found]


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
    wanted = _stated(node, "shape", shape) or []
    zero = bool(node.attributes.get("allowzero"))
    made = [x.shape[i] if d == 0 and not zero else d for i, d in enumerate(wanted)]
    fixed = net.plan.fixed
    if batched and fixed and net.count != fixed and made and wanted[0] > 0:
        known = prod(d for d in made if d != -1)
        # the batch of the file stands in the shape; ours is another
        if (-1 in made and not computed) or (-1 not in made and known != x.numel()):
            made[0] = made[0] * net.count // fixed
    return x.reshape(made)


def _flatten(net: Any, node: Node, x: Tensor) -> Tensor:
    axis = int(node.attributes.get("axis", 1))
    return x.reshape(prod(x.shape[: axis % x.ndim if axis < 0 else axis]), -1)


def _squeeze(net: Any, node: Node, x: Tensor, axes: Tensor | None = None) -> Tensor:
    found = _stated(node, "axes", axes)
    return x.squeeze() if found is None else x.squeeze(tuple(found))


def _unsqueeze(net: Any, node: Node, x: Tensor, axes: Tensor | None = None) -> Tensor:
    found = _stated(node, "axes", axes) or []
    rank = x.ndim + len(found)
    for axis in sorted(a % rank for a in found):
        x = x.unsqueeze(axis)
    return x


def _concat(net: Any, node: Node, *values: Tensor) -> Tensor:
    axis = int(node.attributes["axis"])
    many = max(len(v) if v.ndim else 0 for v in values)
    if net.plan.fixed == 1 and axis % max(values[0].ndim, 1) and any(len(v) != many for v in values):
        values = tuple(v.expand(many, *v.shape[1:]) for v in values)  # a token written for one image
    return torch.cat(values, axis)


def _pad(
    net: Any, node: Node, x: Tensor, pads: Tensor | None = None, fill: Tensor | None = None,
    axes: Tensor | None = None,
) -> Tensor:  # fmt: skip
    mode = str(node.attributes.get("mode", "constant"))
    if mode not in _PAD_MODES:
        raise node.fail(f"its mode {mode!r} is not known")
    sizes = _stated(node, "pads", pads) or _stated(node, "paddings", None) or []
    places = list(range(x.ndim)) if axes is None else [int(a) % x.ndim for a in axes.tolist()]
    widths = [(0, 0)] * x.ndim
    for i, axis in enumerate(places):
        widths[axis] = (sizes[i], sizes[i + len(places)])
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
    starts, ends, axes, steps = (_stated(node, *pair) or [] for pair in pairs)
    axes, steps = axes or list(range(len(starts))), steps or [1] * len(starts)
    for axis, *cut in zip(axes, starts, ends, steps, strict=True):
        x = _cut(x, axis, slice(*cut))
    return x


def _cut(x: Tensor, axis: int, cut: slice) -> Tensor:
    if cut.step > 0:
        return x[(slice(None),) * (axis % x.ndim) + (cut,)]
    at = range(x.shape[axis])[cut.start : None if cut.stop < -x.shape[axis] else cut.stop : cut.step]
    return x.index_select(axis, torch.tensor(list(at), dtype=torch.int64))


def _split(net: Any, node: Node, x: Tensor, split: Tensor | None = None) -> tuple[Tensor, ...]:
    axis, parts = int(node.attributes.get("axis", 0)), int(node.attributes.get("num_outputs", node.outputs))
    sizes = _stated(node, "split", split)
    if sizes is None:
        length = x.shape[axis]
        each = -(-length // parts)
        sizes = [max(min(each, length - i * each), 0) for i in range(parts)]
    return tuple(torch.split(x, sizes, axis))


def _gather(net: Any, node: Node, x: Tensor, at: Tensor) -> Tensor:
    place = int(node.attributes.get("axis", 0)) % x.ndim
    index = torch.where(at < 0, at + x.shape[place], at)
    picked = x.index_select(place, index.reshape(-1))
    return picked.reshape((*x.shape[:place], *at.shape, *x.shape[place + 1 :]))


def _gather_elements(net: Any, node: Node, x: Tensor, at: Tensor) -> Tensor:
    axis = int(node.attributes.get("axis", 0))
    return torch.gather(x, axis, torch.where(at < 0, at + x.shape[axis], at))


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
