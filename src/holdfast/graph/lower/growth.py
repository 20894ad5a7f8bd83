"""Sizes of the results of operators that can make a large tensor from a small one."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from math import prod
from typing import Any

import numpy as np

from holdfast.core.limits import limit, too_large
from holdfast.graph.lower.values import Node

BYTES = 8  # that one value takes while the network is lowered


def check_size(node: Node) -> None:
    """Raise ModelError if the result of a node is above the limit `constant-mb`."""
    size = 0.0
    # A malformed node has its own message when it is lowered.
    with suppress(ValueError, IndexError, TypeError, KeyError, AttributeError, ZeroDivisionError):
        if node.operator in _SIZES:
            size = _SIZES[node.operator](node)
    if BYTES * size > limit("constant-mb") << 20:
        raise node.fail(too_large("constant-mb", f"its result has {size:.3g} values"))


def _numbers(value: Any) -> list[float]:
    return [float(number) for number in np.asarray(value).ravel()]


def _shape(node: Node, at: int = 0) -> tuple[int, ...]:
    value: Any = node.inputs[at]
    return tuple(value.shape)


def _broadcast(node: Node) -> float:
    shapes = [_shape(node, at) for at, value in enumerate(node.inputs) if value is not None]
    return float(prod(np.broadcast_shapes(*shapes)))


def _expanded(node: Node) -> float:
    sizes = _numbers(node.inputs[1])
    own = (1.0,) * (len(sizes) - len(_shape(node))) + _shape(node)
    return prod(max(a, b) for a, b in zip(own[-len(sizes) :], sizes, strict=True))


def _padded(node: Node) -> float:
    given = node.attributes.get("pads", node.attributes.get("paddings"))
    pads, shape = _numbers(node.inputs[1] if given is None else given), _shape(node)
    if len(pads) != 2 * len(shape):  # of the axes that another input names
        return prod(shape) * prod(1.0 + abs(pad) for pad in pads)
    return prod(n + a + b for n, a, b in zip(shape, pads[: len(shape)], pads[len(shape) :], strict=True))


def _resized(node: Node) -> float:
    if len(node.inputs) > 3 and node.inputs[3] is not None:
        return prod(_numbers(node.inputs[3]))
    scales = node.attributes.get("scales", node.inputs[-1])
    return prod(_shape(node)) * prod(_numbers(scales))


def _counted(node: Node) -> float:
    start, end, step = (_numbers(value)[0] for value in node.inputs)
    return (end - start) / step


_ELEMENTWISE = ("Add", "Sub", "Mul", "Div", "Pow", "Where", "Max", "Min", "Sum", "Mean", "Equal", "Less")
_SIZES: Mapping[str, Callable[[Node], float]] = {
    **dict.fromkeys(_ELEMENTWISE, _broadcast),
    "ConstantOfShape": lambda node: prod(_numbers(node.inputs[0])),
    "Range": _counted,
    "OneHot": lambda node: prod(_shape(node)) * _numbers(node.inputs[1])[0],
    "Tile": lambda node: prod(_shape(node)) * prod(_numbers(node.inputs[1])),
    "Expand": _expanded,
    "Pad": _padded,
    "Resize": _resized,
    "Upsample": _resized,
}
