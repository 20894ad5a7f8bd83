"""Matrix products: MatMul, Gemm, Einsum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from holdfast.graph.lower.values import Lowering, Node
from holdfast.train.onnx.tape import Run, recorded


def _gemm(node: Node) -> Run:
    turn_a, turn_b = bool(node.attributes.get("transA")), bool(node.attributes.get("transB"))
    alpha, beta = node.number("alpha", 1.0), node.number("beta", 1.0)
    plain = not turn_a and turn_b and alpha == 1 and beta == 1

    def run(net: Any, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
        if plain and (c is None or c.ndim == 1):
            return functional.linear(a, b, c)
        made = (a.t() if turn_a else a) @ (b.t() if turn_b else b)
        made = made if alpha == 1 else made * alpha
        return made if c is None else made + (c if beta == 1 else c * beta)

    return run


def _einsum(node: Node) -> Run:
    equation = str(node.attributes["equation"])
    return lambda net, *values: torch.einsum(equation, *values)


OPERATORS: Mapping[str, Lowering] = recorded(
    {"Gemm": _gemm, "MatMul": lambda node: lambda net, a, b: torch.matmul(a, b), "Einsum": _einsum}
)
