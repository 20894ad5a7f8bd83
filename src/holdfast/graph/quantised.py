"""Models that are quantised already: which nodes compute in integers, and the same graph in float.

Two forms occur. In QDQ form an ordinary node reads DequantizeLinear nodes. In integer form nodes such as
QLinearConv take integers, scales and zero points. Language models have a third one, weights only.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

QDQ = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear")
FLOAT_LAYERS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
# Operators on integers: the float operator, and the places of its inputs.
INTEGER_LAYERS: dict[str, tuple[str, tuple[int, ...]]] = {
    "QLinearConv": ("Conv", (0, 3, 8)),
    "QLinearMatMul": ("MatMul", (0, 3)),
    "QGemm": ("Gemm", (0, 3, 6)),
    "ConvInteger": ("Conv", (0, 1)),
    "MatMulInteger": ("MatMul", (0, 1)),
    "MatMulIntegerToFloat": ("MatMul", (0, 1)),
    "DynamicQuantizeMatMul": ("MatMul", (0, 1)),
    "MatMulNBits": ("MatMul", (0, 1)),
}
_PREFIX = "QLinear"  # com.microsoft.QLinearAdd and others: x, its scale and zero point, …
_PAIRS = ("Add", "Mul")


@dataclass(frozen=True)
class Quantisation:
    """How many of the layers (convolutions and products with weights) have integer weights, and the nodes."""

    layers: int
    of: int
    nodes: dict[str, int]  # of integer arithmetic and conversion, by operator

    def __str__(self) -> str:
        listed = ", ".join(f"{count} {operator}" for operator, count in self.nodes.items())
        return f"{self.layers} of {self.of} layers ({listed} nodes)"

    @property
    def reason(self) -> str:
        """Why no precision option applies to the model."""
        first, count = next(iter(self.nodes.items()))
        nodes = f"{count} {first} node{'s' * (count != 1)}"
        return f"the model is already quantised ({nodes}; {self.layers} of {self.of} layers)"


def quantisation_of(proto: Any) -> Quantisation | None:
    """How the layers of a parsed ONNX file are quantised; None if none of them is."""
    sources = {name: node for node in proto.graph.node for name in node.output}
    constants = {w.name for w in proto.graph.initializer}
    layers = of = 0
    for node in proto.graph.node:
        if node.op_type in INTEGER_LAYERS:
            layers, of = layers + 1, of + 1
        elif node.op_type in FLOAT_LAYERS:
            maker = sources.get(node.input[1])
            converted = maker is not None and maker.op_type == "DequantizeLinear"
            stored = node.input[1] in constants or (maker is not None and maker.op_type == "Constant")
            weighted = stored or (converted and _is_constant(maker, sources, constants))
            layers, of = layers + (weighted and converted), of + weighted
    if not layers:
        return None
    counts = Counter(n.op_type for n in proto.graph.node if _in_integers(n.op_type))
    ranked = sorted(counts, key=lambda op: (QDQ.index(op) if op in QDQ else len(QDQ), -counts[op]))
    return Quantisation(layers, of, {op: counts[op] for op in ranked})


def _in_integers(operator: str) -> bool:
    return operator in QDQ or operator in INTEGER_LAYERS or operator.startswith(_PREFIX)


def _is_constant(node: Any, sources: dict[str, Any], constants: set[str]) -> bool:
    """Whether a DequantizeLinear reads weights, stored as integers or quantised in the graph."""
    while node is not None and node.op_type in QDQ:
        if node.input[0] in constants:
            return True
        node = sources.get(node.input[0])
    return node is not None and node.op_type == "Constant"


def settings_of(proto: Any) -> set[str]:
    """The tensors that are only scales or zero points of integers, not parameters."""
    scales: set[str] = set()
    read: set[str] = set()
    for node in proto.graph.node:
        data = _data_inputs(node) if _in_integers(node.op_type) else range(len(node.input))
        read |= {node.input[place] for place in data if place < len(node.input)}
        scales |= set(node.input)
    return scales - read


def _data_inputs(node: Any) -> Sequence[int]:
    """The places of a node's inputs that are values; the others are scales and zero points."""
    if node.op_type in INTEGER_LAYERS:
        return INTEGER_LAYERS[node.op_type][1]
    if node.op_type == f"{_PREFIX}Concat":
        return range(2, len(node.input), 3)
    return (0, 3) if node.op_type.removeprefix(_PREFIX) in _PAIRS else (0,)


def in_float(proto: Any) -> Any:
    """The graph with float operators in the place of those on integers, to read its structure.

    Conversions become Identity nodes, and short constants behind them float constants. Its weights stay
    integers, so that it cannot be run. A graph without integers is returned as it is.
    """
    import onnx

    if not any(_in_integers(node.op_type) for node in proto.graph.node):
        return proto
    plain = onnx.ModelProto()
    plain.CopyFrom(proto)
    _short_constants(plain.graph)
    for node in plain.graph.node:
        if not _in_integers(node.op_type):
            continue
        inputs = [node.input[place] for place in _data_inputs(node) if place < len(node.input)]
        name = INTEGER_LAYERS.get(node.op_type, (node.op_type.removeprefix(_PREFIX), ()))[0]
        if node.op_type in QDQ:
            name = "Identity"
            del node.output[1:]
            del node.attribute[:]
        node.op_type, node.domain = name, ""
        del node.input[:]
        node.input.extend(inputs)
    return plain


_SHORT = 64  # values: means, factors and thresholds, not weights


def _short_constants(graph: Any) -> None:
    """Replace DequantizeLinear nodes of short constants with one scale by their values."""
    from onnx import numpy_helper

    stored = {w.name: w for w in graph.initializer if prod(w.dims) <= _SHORT and not w.external_data}
    for node in [n for n in graph.node if n.op_type == "DequantizeLinear"]:
        arrays = [numpy_helper.to_array(stored[name]) for name in node.input if name in stored]
        if len(arrays) == len(node.input) and all(array.size == 1 for array in arrays[1:]):
            zero = arrays[2].astype(np.float32).item() if len(arrays) > 2 else 0.0
            value = (arrays[0].astype(np.float32) - zero) * arrays[1].item()
            graph.initializer.append(numpy_helper.from_array(value.astype(np.float32), node.output[0]))
            graph.node.remove(node)
