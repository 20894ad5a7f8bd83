"""Curves, arithmetic, comparisons and reductions: operators that compute with values in place."""

import operator
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional

from holdfast.graph.lower.values import Lowering, Node
from holdfast.train.onnx.net import OperatorRun, plain, record_operators


def _curve(function: Callable[..., Tensor], **defaults: float) -> OperatorRun:
    """A function of one tensor and of the node's numbers, which have these defaults."""

    def run(net: Any, node: Node, x: Tensor) -> Tensor:
        return function(x, *(node.number(name, default) for name, default in defaults.items()))

    return run


def _clip(net: Any, node: Node, x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    bottom = node.attributes.get("min") if low is None else low
    top = node.attributes.get("max") if high is None else high
    x = x if bottom is None else x.clamp(min=bottom)
    return x if top is None else x.clamp(max=top)


def _softmax(net: Any, node: Node, x: Tensor) -> Tensor:
    axis = int(node.attributes.get("axis", 1 if node.opset < 13 else -1))
    squash = torch.log_softmax if node.operator == "LogSoftmax" else torch.softmax
    if node.opset >= 13:
        return squash(x, axis)
    return squash(x.flatten(axis), -1).reshape(x.shape) if x.ndim else x  # over all following axes together


def _product(x: Tensor, axes: tuple[int, ...], keepdim: bool) -> Tensor:
    for axis in sorted(axes, reverse=True):
        x = x.prod(axis, keepdim=keepdim)
    return x


def _reduction(function: Callable[..., Tensor]) -> OperatorRun:
    def run(net: Any, node: Node, x: Tensor, axes: Tensor | None = None) -> Tensor:
        stated = node.attributes.get("axes") or () if axes is None else axes.tolist()
        if not stated and node.attributes.get("noop_with_empty_axes"):
            return x
        over = tuple(int(a) % x.ndim for a in stated) or tuple(range(x.ndim))
        return function(x, over, keepdim=bool(node.attributes.get("keepdims", 1)))

    return run


_WITH_ATTRIBUTES: Final[Mapping[str, OperatorRun]] = {
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
    "Gelu": lambda net, node, x: functional.gelu(x, approximate=node.attributes.get("approximate", "none")),
    "Clip": _clip,
    "Softmax": _softmax,
    "LogSoftmax": _softmax,
    "Mod": lambda net, node, a, b: (torch.fmod if node.attributes.get("fmod") else torch.remainder)(a, b),
    "ReduceMean": _reduction(torch.mean),
    "ReduceSum": _reduction(torch.sum),
    "ReduceMax": _reduction(torch.amax),
    "ReduceMin": _reduction(torch.amin),
    "ReduceProd": _reduction(_product),
    "ReduceL1": _reduction(lambda x, axes, keepdim: x.abs().sum(axes, keepdim=keepdim)),
    "ReduceL2": _reduction(lambda x, axes, keepdim: torch.linalg.vector_norm(x, dim=axes, keepdim=keepdim)),
    "ReduceSumSquare": _reduction(lambda x, axes, keepdim: x.square().sum(axes, keepdim=keepdim)),
    "ReduceLogSum": _reduction(lambda x, axes, keepdim: x.sum(axes, keepdim=keepdim).log()),
    "ReduceLogSumExp": _reduction(torch.logsumexp),
}
_PLAIN: Final[Mapping[str, Callable[..., Tensor]]] = {
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
    "Softplus": lambda x: torch.logaddexp(x, torch.zeros_like(x)),
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    # integers are truncated, as in C
    "Div": lambda a, b: a / b if a.is_floating_point() else torch.div(a, b, rounding_mode="trunc"),
    "Pow": lambda a, b: torch.pow(a, b.to(a.dtype) if a.is_floating_point() else b).to(a.dtype),
    "PRelu": lambda x, slope: torch.where(x < 0, x * slope, x),
    "Equal": operator.eq,
    "Less": operator.lt,
    "LessOrEqual": operator.le,
    "Greater": operator.gt,
    "GreaterOrEqual": operator.ge,
    "And": torch.logical_and,
    "Or": torch.logical_or,
    "Sum": lambda *values: reduce(torch.add, values),
    "Max": lambda *values: reduce(torch.maximum, values),
    "Min": lambda *values: reduce(torch.minimum, values),
    "Mean": lambda *values: reduce(torch.add, values) / len(values),
    "Where": lambda condition, a, b: torch.where(condition.bool(), a, b),
}
OPERATORS: Mapping[str, Lowering] = record_operators(
    {**_WITH_ATTRIBUTES, **{name: plain(function) for name, function in _PLAIN.items()}}
)
