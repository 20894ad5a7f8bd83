"""The ONNX nodes of a darknet network as they are written, and darknet's activations in ONNX."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import ArrayLike
from onnx import helper, numpy_helper

from holdfast.core.errors import ModelError


@dataclass
class NodeBuilder:
    """The nodes so far; mutable, because it grows by one layer after the other."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, onnx.TensorProto] = field(default_factory=dict)

    def add(self, op: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        """The name of the output of a new node, which is also the node's name."""
        self.nodes.append(helper.make_node(op, list(inputs), [output], name=output, **attributes))
        return output

    def constant(self, name: str, value: ArrayLike, dtype: Any = np.float32) -> str:
        """The name of a constant; one name may be given again with the same value."""
        tensor = numpy_helper.from_array(np.asarray(value, dtype), name)
        if self.constants.setdefault(name, tensor) != tensor:
            raise ModelError(f"constant {name!r}: expected the value it already has, got another one")
        return name

    def number(self, value: float) -> str:
        """The name of a scalar constant, shared by all that need the same number."""
        return self.constant(f"number_{value:g}", value)

    def times(self, x: str, factor: float, out: str) -> str:
        """The map times a number."""
        return self.add("Mul", [x, self.number(factor)], out)

    def clip(self, x: str, low: float, high: float, out: str) -> str:
        """The map clipped to [low, high]."""
        return self.add("Clip", [x, self.number(low), self.number(high)], out)

    def channels(self, x: str, start: int, count: int, out: str) -> str:
        """`count` channels of a map from `start` on."""
        axis = 1
        bounds = [self.constant(f"integer_{v}", [v], np.int64) for v in (start, start + count, axis)]
        return self.add("Slice", [x, *bounds], out)

    def activate(self, activation: str, x: str, out: str) -> str:
        """The map x activated; "linear" costs no node, x has the name `out` already then (`linear_name`)."""
        return out if activation == "linear" else ACTIVATE[activation](self, x, out)


def linear_name(activation: str, out: str) -> str:
    """The name of a map before it is activated as `out`."""
    return out if activation == "linear" else f"{out}_linear"


def _single(op: str, **attributes: float) -> Callable[[NodeBuilder, str, str], str]:
    return lambda nodes, x, out: nodes.add(op, [x], out, **attributes)


def _mish(nodes: NodeBuilder, x: str, out: str) -> str:
    soft = nodes.add("Softplus", [x], f"{out}_softplus")  # ONNX has Mish itself only from opset 18 on
    return nodes.add("Mul", [x, nodes.add("Tanh", [soft], f"{out}_tanh")], out)


def _ramp(nodes: NodeBuilder, x: str, out: str) -> str:
    """Relu(x) + x / 10."""
    relu = nodes.add("Relu", [x], f"{out}_relu")
    return nodes.add("Add", [relu, nodes.times(x, 0.1, f"{out}_tenth")], out)


def _lhtan(nodes: NodeBuilder, x: str, out: str) -> str:
    """X within 0..1 and a slope of 1/1000 outside = 0.999 · clip(x, 0, 1) + x / 1000."""
    inner = nodes.times(nodes.clip(x, 0.0, 1.0, f"{out}_clip"), 0.999, f"{out}_inner")
    return nodes.add("Add", [inner, nodes.times(x, 0.001, f"{out}_outer")], out)


def _plse(nodes: NodeBuilder, x: str, out: str) -> str:
    """X / 8 + 1/2 within −4..4 and a slope of 1/100 outside = 0.115 · clip(x, −4, 4) + x / 100 + 1/2."""
    inner = nodes.times(nodes.clip(x, -4.0, 4.0, f"{out}_clip"), 0.115, f"{out}_inner")
    sloped = nodes.add("Add", [inner, nodes.times(x, 0.01, f"{out}_outer")], f"{out}_sloped")
    return nodes.add("Add", [sloped, nodes.number(0.5)], out)


ACTIVATE: Mapping[str, Callable[[NodeBuilder, str, str], str]] = {
    "elu": _single("Elu", alpha=1.0),
    "hardtan": lambda nodes, x, out: nodes.clip(x, -1.0, 1.0, out),
    "leaky": _single("LeakyRelu", alpha=0.1),
    "lhtan": _lhtan,
    "linear": _single("Identity"),
    "loggy": lambda nodes, x, out: nodes.add("Tanh", [nodes.times(x, 0.5, f"{out}_half")], out),  # 2σ(x) − 1
    "logistic": _single("Sigmoid"),
    "mish": _mish,
    "plse": _plse,
    "ramp": _ramp,
    "relie": _single("LeakyRelu", alpha=0.01),
    "relu": _single("Relu"),
    "relu6": lambda nodes, x, out: nodes.clip(x, 0.0, 6.0, out),
    "revleaky": _single("LeakyRelu", alpha=0.1),
    "selu": _single("Selu", alpha=1.6732, gamma=1.0507),
    "swish": lambda nodes, x, out: nodes.add("Mul", [x, nodes.add("Sigmoid", [x], f"{out}_sigmoid")], out),
    "tanh": _single("Tanh"),
}
