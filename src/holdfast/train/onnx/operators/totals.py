"""Reductions over axes: means, sums, extremes, lengths."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor

from holdfast.graph.lower.values import Lowering, Node
from holdfast.train.onnx.tape import Run, recorded

Reduce: TypeAlias = Callable[[Tensor, tuple[int, ...], bool], Tensor]


def _product(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    for axis in sorted(axes, reverse=True):
        x = x.prod(axis, keepdim=keep)
    return x


_REDUCE: Final[Mapping[str, Reduce]] = {
    "ReduceMean": lambda x, axes, keep: x.mean(axes, keepdim=keep),
    "ReduceSum": lambda x, axes, keep: x.sum(axes, keepdim=keep),
    "ReduceMax": lambda x, axes, keep: x.amax(axes, keepdim=keep),
    "ReduceMin": lambda x, axes, keep: x.amin(axes, keepdim=keep),
    "ReduceProd": _product,
    "ReduceL1": lambda x, axes, keep: x.abs().sum(axes, keepdim=keep),
    "ReduceL2": lambda x, axes, keep: torch.linalg.vector_norm(x, dim=axes, keepdim=keep),
    "ReduceSumSquare": lambda x, axes, keep: x.square().sum(axes, keepdim=keep),
    "ReduceLogSum": lambda x, axes, keep: x.sum(axes, keepdim=keep).log(),
    "ReduceLogSumExp": lambda x, axes, keep: torch.logsumexp(x, axes, keepdim=keep),
}


def _reduction(reduce: Reduce) -> Callable[[Node], Run]:
    def make(node: Node) -> Run:
        keep = bool(node.attributes.get("keepdims", 1))
        nothing = bool(node.attributes.get("noop_with_empty_axes"))
        stated = node.attributes.get("axes")

        def run(net: Any, x: Tensor, axes: Tensor | None = None) -> Tensor:
            found = list(stated or ()) if axes is None else axes.tolist()
            if not found and nothing:
                return x
            over = tuple(int(a) % x.ndim for a in found) or tuple(range(x.ndim))
            return reduce(x, over, keep)

        return run

    return make


OPERATORS: Mapping[str, Lowering] = recorded(
    {operator: _reduction(reduce) for operator, reduce in _REDUCE.items()}
)
