"""Curves, element by element, and softmax."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional

from holdfast.graph.lower.values import Lowering, Node
from holdfast.train.onnx.tape import Run, recorded

_PLAIN: Final[Mapping[str, Callable[[Tensor], Tensor]]] = {
    "Relu": functional.relu,
    "Sigmoid": torch.sigmoid,
    "Tanh": torch.tanh,
    "Erf": torch.erf,
    "Exp": torch.exp,
    "Log": torch.log,
    "Sqrt": torch.sqrt,
    "Reciprocal": torch.reciprocal,
    "Abs": torch.abs,
    "Neg": torch.neg,
    "Sign": torch.sign,
    "Floor": torch.floor,
    "Ceil": torch.ceil,
    "Round": torch.round,
    "Not": torch.logical_not,
    "Softsign": functional.softsign,
    "Sin": torch.sin,
    "Cos": torch.cos,
    "Mish": functional.mish,
    "HardSwish": functional.hardswish,
}


def _plain(curve: Callable[[Tensor], Tensor]) -> Callable[[Node], Run]:
    return lambda node: lambda net, x: curve(x)


def _leaky(node: Node) -> Run:
    slope = node.number("alpha", 0.01)
    return lambda net, x: functional.leaky_relu(x, slope)


def _thresholded(node: Node) -> Run:
    limit = node.number("alpha", 1.0)
    return lambda net, x: torch.where(x > limit, x, torch.zeros_like(x))


def _elu(node: Node) -> Run:
    alpha = node.number("alpha", 1.0)
    return lambda net, x: functional.elu(x, alpha)


def _selu(node: Node) -> Run:
    alpha = node.number("alpha", 1.6732632423543772)
    gamma = node.number("gamma", 1.0507009873554805)
    return lambda net, x: gamma * functional.elu(x, alpha)


def _celu(node: Node) -> Run:
    alpha = node.number("alpha", 1.0)
    return lambda net, x: functional.celu(x, alpha)


def _gelu(node: Node) -> Run:
    how = str(node.attributes.get("approximate", "none"))
    return lambda net, x: functional.gelu(x, approximate=how)


def _swish(node: Node) -> Run:
    alpha = node.number("alpha", 1.0)
    return lambda net, x: x * torch.sigmoid(alpha * x)


def _hard_sigmoid(node: Node) -> Run:
    alpha, beta = node.number("alpha", 0.2), node.number("beta", 0.5)
    return lambda net, x: (alpha * x + beta).clamp(0, 1)


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


OPERATORS: Mapping[str, Lowering] = recorded(
    {
        **{operator: _plain(curve) for operator, curve in _PLAIN.items()},
        "LeakyRelu": _leaky,
        "PRelu": lambda node: lambda net, x, slope: torch.where(x < 0, x * slope, x),
        "ThresholdedRelu": _thresholded,
        "Elu": _elu,
        "Selu": _selu,
        "Celu": _celu,
        "Gelu": _gelu,
        "Swish": _swish,
        "HardSigmoid": _hard_sigmoid,
        "Softplus": lambda node: lambda net, x: torch.logaddexp(x, torch.zeros_like(x)),
        "Clip": _clip,
        "Softmax": _softmax,
        "LogSoftmax": _softmax,
    }
)
