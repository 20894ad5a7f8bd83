"""Curves, arithmetic, comparisons and reductions: operators that compute with values in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from holdfast.graph.lower.values import Lowering, Node
from holdfast.train.onnx.net import Run, recorded

Make: TypeAlias = Callable[[Node], Run]
Reduce: TypeAlias = Callable[[Tensor, tuple[int, ...], bool], Tensor]


def _curve(function: Callable[..., Tensor], **defaults: float) -> Make:
    """A function of one tensor and of the node's numbers, which have these defaults."""

    def make(node: Node) -> Run:
        numbers = [node.number(name, default) for name, default in defaults.items()]
        return lambda net, x: function(x, *numbers)

    return make


def _gelu(node: Node) -> Run:
    how = str(node.attributes.get("approximate", "none"))
    return lambda net, x: functional.gelu(x, approximate=how)


def _clip(node: Node) -> Run:
    least, most = node.attributes.get("min"), node.attributes.get("max")

    def run(net: Any, x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
        bottom = least if low is None else low
        top = most if high is None else high
        if bottom is not None:
            x = x.clamp(min=bottom)
        return x if top is None else x.clamp(max=top)

    return run


def _softmax(node: Node) -> Run:
    axis = int(node.attributes.get("axis", 1 if node.opset < 13 else -1))
    squash = torch.log_softmax if node.operator == "LogSoftmax" else torch.softmax

    def run(net: Any, x: Tensor) -> Tensor:
        if node.opset >= 13:
            return squash(x, axis)
        return squash(x.flatten(axis), -1).reshape(x.shape) if x.ndim else x  # one over all axes behind

    return run


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


def _reduction(function: Reduce) -> Make:
    def make(node: Node) -> Run:
        keep = bool(node.attributes.get("keepdims", 1))
        nothing = bool(node.attributes.get("noop_with_empty_axes"))
        stated = node.attributes.get("axes")

        def run(net: Any, x: Tensor, axes: Tensor | None = None) -> Tensor:
            found = list(stated or ()) if axes is None else axes.tolist()
            if not found and nothing:
                return x
            over = tuple(int(a) % x.ndim for a in found) or tuple(range(x.ndim))
            return function(x, over, keep)

        return run

    return make


_CURVES: Final[Mapping[str, Make]] = {
    "Relu": _curve(functional.relu),
    "Sigmoid": _curve(torch.sigmoid),
    "Tanh": _curve(torch.tanh),
    "Erf": _curve(torch.erf),
    "Exp": _curve(torch.exp),
    "Log": _curve(torch.log),
    "Sqrt": _curve(torch.sqrt),
    "Reciprocal": _curve(torch.reciprocal),
    "Abs": _curve(torch.abs),
    "Neg": _curve(torch.neg),
    "Sign": _curve(torch.sign),
    "Floor": _curve(torch.floor),
    "Ceil": _curve(torch.ceil),
    "Round": _curve(torch.round),
    "Not": _curve(torch.logical_not),
    "Softsign": _curve(functional.softsign),
    "Sin": _curve(torch.sin),
    "Cos": _curve(torch.cos),
    "Mish": _curve(functional.mish),
    "HardSwish": _curve(functional.hardswish),
    "Softplus": _curve(lambda x: torch.logaddexp(x, torch.zeros_like(x))),
    "LeakyRelu": _curve(functional.leaky_relu, alpha=0.01),
    "ThresholdedRelu": _curve(lambda x, limit: torch.where(x > limit, x, torch.zeros_like(x)), alpha=1.0),
    "Elu": _curve(functional.elu, alpha=1.0),
    "Selu": _curve(
        lambda x, alpha, gamma: gamma * functional.elu(x, alpha),
        alpha=1.6732632423543772,
        gamma=1.0507009873554805,
    ),
    "Celu": _curve(functional.celu, alpha=1.0),
    "Swish": _curve(lambda x, alpha: x * torch.sigmoid(alpha * x), alpha=1.0),
    "HardSigmoid": _curve(lambda x, alpha, beta: (alpha * x + beta).clamp(0, 1), alpha=0.2, beta=0.5),
    "Gelu": _gelu,
    "Clip": _clip,
    "Softmax": _softmax,
    "LogSoftmax": _softmax,
}
_ARITHMETIC: Final[Mapping[str, Make]] = {
    "Add": lambda node: lambda net, a, b: a + b,
    "Sub": lambda node: lambda net, a, b: a - b,
    "Mul": lambda node: lambda net, a, b: a * b,
    "Div": _divided,
    "Mod": _remainder,
    "Pow": _power,
    "PRelu": lambda node: lambda net, x, slope: torch.where(x < 0, x * slope, x),
    "Equal": lambda node: lambda net, a, b: a == b,
    "Less": lambda node: lambda net, a, b: a < b,
    "LessOrEqual": lambda node: lambda net, a, b: a <= b,
    "Greater": lambda node: lambda net, a, b: a > b,
    "GreaterOrEqual": lambda node: lambda net, a, b: a >= b,
    "And": lambda node: lambda net, a, b: torch.logical_and(a, b),
    "Or": lambda node: lambda net, a, b: torch.logical_or(a, b),
    "Sum": lambda node: lambda net, *values: reduce(torch.add, values),
    "Max": lambda node: lambda net, *values: reduce(torch.maximum, values),
    "Min": lambda node: lambda net, *values: reduce(torch.minimum, values),
    "Mean": lambda node: lambda net, *values: reduce(torch.add, values) / len(values),
    "Where": lambda node: lambda net, condition, a, b: torch.where(condition.bool(), a, b),
}
OPERATORS: Mapping[str, Lowering] = recorded(
    {**_CURVES, **_ARITHMETIC, **{name: _reduction(function) for name, function in _REDUCE.items()}}
)
