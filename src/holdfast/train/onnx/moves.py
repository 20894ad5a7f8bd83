"""Operators that only move or pick values, and those that compute places and sizes."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from holdfast.graph.lower.values import Build, Lowering, Node, Value
from holdfast.train.onnx.net import Run, is_batched, recorded, tape_of


def _same(node: Node, build: Build) -> list[Value]:
    if node.outputs > 1:
        raise node.fail("its second output (which values were kept) is not supported")
    return [node.value()]


def _reshape(node: Node) -> Run:
    stated: Any = node.attributes.get("shape")
    zero = bool(node.attributes.get("allowzero"))
    batched = is_batched(node.value())
    computed = len(node.inputs) > 1 and is_batched(node.inputs[1])  # from our own batch

    def run(net: Any, x: Tensor, shape: Tensor | None = None) -> Tensor:
        wanted = [int(d) for d in (stated if shape is None else shape.tolist())]
        made = [x.shape[i] if d == 0 and not zero else d for i, d in enumerate(wanted)]
        fixed = net.plan.fixed
        if batched and fixed and net.count != fixed and made and wanted[0] > 0:
            known = prod(d for d in made if d != -1)
            # the batch of the file stands in the shape; ours is another
            if (-1 in made and not computed) or (-1 not in made and known != x.numel()):
                made[0] = made[0] * net.count // fixed
        return x.reshape(made)

    return run


def _flatten(node: Node) -> Run:
    axis = int(node.attributes.get("axis", 1))

    def run(net: Any, x: Tensor) -> Tensor:
        first = prod(x.shape[: axis % x.ndim if axis < 0 else axis])
        return x.reshape(first, -1)

    return run


def _transpose(node: Node) -> Run:
    order = node.ints("perm")
    return lambda net, x: x.permute(order or tuple(reversed(range(x.ndim))))


def _squeeze(node: Node) -> Run:
    stated: Any = node.attributes.get("axes")

    def run(net: Any, x: Tensor, axes: Tensor | None = None) -> Tensor:
        found = stated if axes is None else axes.tolist()
        return x.squeeze() if found is None else x.squeeze(tuple(int(a) for a in found))

    return run


def _unsqueeze(node: Node) -> Run:
    stated: Any = node.attributes.get("axes")

    def run(net: Any, x: Tensor, axes: Tensor | None = None) -> Tensor:
        found = [int(a) for a in (stated if axes is None else axes.tolist())]
        rank = x.ndim + len(found)
        for axis in sorted(a % rank for a in found):
            x = x.unsqueeze(axis)
        return x

    return run


def _expand(node: Node) -> Run:
    def run(net: Any, x: Tensor, shape: Tensor) -> Tensor:
        return x.expand(torch.broadcast_shapes(x.shape, tuple(int(d) for d in shape.tolist())))

    return run


def _concat(node: Node) -> Run:
    axis = int(node.attributes["axis"])

    def run(net: Any, *values: Tensor) -> Tensor:
        many = max(len(v) if v.ndim else 0 for v in values)
        if net.plan.fixed == 1 and axis % max(values[0].ndim, 1) and any(len(v) != many for v in values):
            values = tuple(v.expand(many, *v.shape[1:]) for v in values)  # a token written for one image
        return torch.cat(values, axis)

    return run


def _pad(node: Node) -> Run:
    mode = str(node.attributes.get("mode", "constant"))
    stated: Any = node.attributes.get("pads") or node.attributes.get("paddings")
    value = float(node.attributes.get("value", 0.0))
    names = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}
    if mode not in names:
        raise node.fail(f"its mode {mode!r} is not known")

    def run(
        net: Any,
        x: Tensor,
        pads: Tensor | None = None,
        fill: Tensor | None = None,
        axes: Tensor | None = None,
    ) -> Tensor:
        sizes = [int(p) for p in (stated if pads is None else pads.tolist())]
        places = list(range(x.ndim)) if axes is None else [int(a) % x.ndim for a in axes.tolist()]
        widths = [(0, 0)] * x.ndim
        for i, axis in enumerate(places):
            widths[axis] = (sizes[i], sizes[i + len(places)])
        if mode == "constant":
            flat = [size for pair in reversed(widths) for size in pair]
            return functional.pad(x, flat, value=value if fill is None else float(fill))
        return _mirrored(x, widths, names[mode])

    return run


def _mirrored(x: Tensor, widths: list[tuple[int, int]], mode: str) -> Tensor:
    """The tensor with borders made of its own values, axis by axis."""
    for axis, (before, after) in enumerate(widths):
        if not before and not after:
            continue
        turned = x.movedim(axis, -1)
        flat = functional.pad(turned.reshape(1, -1, turned.shape[-1]), (before, after), mode=mode)
        x = flat.reshape(*turned.shape[:-1], -1).movedim(-1, axis)
    return x


def _cast(node: Node, build: Build) -> list[Value]:
    from onnx import helper

    wanted = helper.tensor_dtype_to_np_dtype(int(node.attributes["to"]))
    kinds = {"float32": torch.float32, "float64": torch.float64, "int64": torch.int64, "int32": torch.int32}
    kinds |= {"bool": torch.bool, "uint8": torch.uint8, "int8": torch.int8, "float16": torch.float16}
    kind = kinds.get(wanted.name)
    if kind is None:
        raise node.fail(f"a cast to {wanted.name} is not supported")
    return tape_of(build).record(node, lambda net, x: x.to(kind))


def _depth_to_space(node: Node) -> Run:
    side, mode = int(node.attributes["blocksize"]), str(node.attributes.get("mode", "DCR"))

    def run(net: Any, x: Tensor) -> Tensor:
        if mode == "CRD":
            return functional.pixel_shuffle(x, side)
        n, c, h, w = x.shape
        split = x.reshape(n, side, side, c // side**2, h, w).permute(0, 3, 4, 1, 5, 2)
        return split.reshape(n, c // side**2, h * side, w * side)

    return run


def _space_to_depth(node: Node) -> Run:
    side = int(node.attributes["blocksize"])

    def run(net: Any, x: Tensor) -> Tensor:
        n, c, h, w = x.shape
        split = x.reshape(n, c, h // side, side, w // side, side).permute(0, 3, 5, 1, 2, 4)
        return split.reshape(n, c * side**2, h // side, w // side)

    return run


def _slice(node: Node) -> Run:
    stated: list[Any] = [node.attributes.get(name) for name in ("starts", "ends", "axes")]

    def run(net: Any, x: Tensor, *given: Tensor | None) -> Tensor:
        found: list[Any] = [None if v is None else v.tolist() for v in given] or stated
        starts, ends, axes, steps = [*found, None, None][:4]
        for place, (start, end) in enumerate(zip(starts, ends, strict=True)):
            axis = int(axes[place]) if axes is not None else place
            step = int(steps[place]) if steps is not None else 1
            x = _cut(x, axis, slice(int(start), int(end), step))
        return x

    return run


def _cut(x: Tensor, axis: int, cut: slice) -> Tensor:
    if cut.step > 0:
        return x[(slice(None),) * (axis % x.ndim) + (cut,)]
    at = range(x.shape[axis])[cut.start : None if cut.stop < -x.shape[axis] else cut.stop : cut.step]
    return x.index_select(axis, torch.tensor(list(at), dtype=torch.int64))


def _split(node: Node) -> Run:
    axis, stated = int(node.attributes.get("axis", 0)), node.attributes.get("split")
    parts = int(node.attributes.get("num_outputs", node.outputs))

    def run(net: Any, x: Tensor, split: Tensor | None = None) -> tuple[Tensor, ...]:
        sizes = stated if split is None else split.tolist()
        if sizes is None:
            length = x.shape[axis]
            each = -(-length // parts)
            sizes = [max(min(each, length - i * each), 0) for i in range(parts)]
        return tuple(torch.split(x, [int(s) for s in sizes], axis))

    return run


def _gather(node: Node) -> Run:
    axis = int(node.attributes.get("axis", 0))

    def run(net: Any, x: Tensor, at: Tensor) -> Tensor:
        place = axis % x.ndim
        index = torch.where(at < 0, at + x.shape[place], at)
        picked = x.index_select(place, index.reshape(-1))
        return picked.reshape((*x.shape[:place], *at.shape, *x.shape[place + 1 :]))

    return run


def _gather_elements(node: Node) -> Run:
    axis = int(node.attributes.get("axis", 0))
    return lambda net, x, at: torch.gather(x, axis, torch.where(at < 0, at + x.shape[axis], at))


def _trilu(node: Node) -> Run:
    cut = torch.triu if node.attributes.get("upper", 1) else torch.tril
    return lambda net, x, k=None: cut(x, 0 if k is None else int(k))


def _shape(node: Node) -> Run:
    part = slice(node.attributes.get("start"), node.attributes.get("end"))
    return lambda net, x: torch.tensor(x.shape[part], dtype=torch.int64)


def _constant_of_shape(node: Node) -> Run:
    value = torch.from_numpy(np.array(node.attributes.get("value", np.zeros(1, np.float32))))
    return lambda net, shape: value.expand(tuple(shape.tolist())).clone()


def _range(node: Node) -> Run:
    def run(net: Any, start: Tensor, limit: Tensor, step: Tensor) -> Tensor:
        return torch.arange(start.item(), limit.item(), step.item(), dtype=start.dtype)

    return run


OPERATORS: Mapping[str, Lowering] = {
    "Identity": _same,
    "Dropout": _same,
    "Cast": _cast,
    **recorded(
        {
            "Reshape": _reshape,
            "Flatten": _flatten,
            "Transpose": _transpose,
            "Squeeze": _squeeze,
            "Unsqueeze": _unsqueeze,
            "Expand": _expand,
            "Tile": lambda node: lambda net, x, times: x.repeat(times.tolist()),
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
            "Size": lambda node: lambda net, x: torch.tensor(x.numel(), dtype=torch.int64),
            "ConstantOfShape": _constant_of_shape,
            "Range": _range,
        }
    ),
}
