"""Operators that pick values by place, and those that compute places and sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.graph.lower.values import Lowering, Node
from holdfast.train.onnx.tape import Run, recorded


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


OPERATORS: Mapping[str, Lowering] = recorded(
    {
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
)
