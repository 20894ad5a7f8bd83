"""Arithmetic and comparison of two values or more, broadcast."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, Final

import torch
from torch import Tensor

from holdfast.graph.lower.values import Lowering, Node
from holdfast.train.onnx.tape import Run, recorded

_TWO: Final[Mapping[str, Callable[[Tensor, Tensor], Tensor]]] = {
    "Add": torch.add,
    "Sub": torch.sub,
    "Mul": torch.mul,
    "Equal": torch.eq,
    "Less": torch.lt,
    "LessOrEqual": torch.le,
    "Greater": torch.gt,
    "GreaterOrEqual": torch.ge,
    "And": torch.logical_and,
    "Or": torch.logical_or,
}


def _two(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Node], Run]:
    return lambda node: lambda net, a, b: function(a, b)


def _divided(node: Node) -> Run:
    def run(net: Any, a: Tensor, b: Tensor) -> Tensor:
        if a.is_floating_point():
            return a / b
        return torch.div(a, b, rounding_mode="trunc")  # whole numbers are cut off, as in C

    return run


def _remainder(node: Node) -> Run:
    modulo = torch.fmod if node.attributes.get("fmod") else torch.remainder
    return lambda net, a, b: modulo(a, b)


def _power(node: Node) -> Run:
    return lambda net, a, b: torch.pow(a, b.to(a.dtype) if a.is_floating_point() else b).to(a.dtype)


def _reduced(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Node], Run]:
    return lambda node: lambda net, *values: reduce(function, values)


OPERATORS: Mapping[str, Lowering] = recorded(
    {
        **{operator: _two(function) for operator, function in _TWO.items()},
        "Div": _divided,
        "Mod": _remainder,
        "Pow": _power,
        "Sum": _reduced(torch.add),
        "Max": _reduced(torch.maximum),
        "Min": _reduced(torch.minimum),
        "Mean": lambda node: lambda net, *values: reduce(torch.add, values) / len(values),
        "Where": lambda node: lambda net, condition, a, b: torch.where(condition.bool(), a, b),
    }
)
