"""8-bit integers without calibration: each activation is put on a grid of its own range as it comes.

    x ─DynamicQuantizeLinear─► 8 bits ─MatMulInteger─► 32 bits ─× scales─► y

The weights have 8 bits and a scale a channel.

Done to fully connected layers: MatMul by a constant, and Gemm. Everything else stays in float32, embeddings
(rows gathered from a table) and convolutions too.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from holdfast.core.registry import stage
from holdfast.graph.inspect import STANDARD
from holdfast.graph.nodes import add_constant, attributes_of, drop_unused, subgraphs
from holdfast.graph.rewrite.calibration import HIGH, quantise, symmetric_scale
from holdfast.graph.rewrite.quant_plan import at_opset, tidy
from holdfast.graph.rewrite.types import Context, ModelProto, Rewritten

# Weights as unsigned integers about 128: kernels for signed ones may saturate on CPUs without VNNI, where
# the sum of two products must fit 16 bits, and the number would depend on the machine.
MIDDLE = 128


@dataclass(frozen=True)
class _Dense:
    """A fully connected layer y = x · weight + bias; the weight is (inputs, outputs)."""

    place: int
    weight: NDArray[np.float32]
    bias: str  # "" without one
    factor: float  # of the bias


@stage(
    "rewrite",
    "int8-dynamic",
    family="precision",
    default=False,
    systems="ONNX Runtime and PyTorch dynamic quantisation: language models on CPUs",
)
def int8_dynamic(model: ModelProto, context: Context) -> Rewritten:
    """Dynamic 8 bits: fully connected layers, a scale a channel of weights, ranges from each input itself."""
    original, model = model, at_opset(tidy(model))
    layers = _layers(model)
    if not layers:
        return Rewritten(original, ())
    changed = tuple(model.graph.node[layer.place].name for layer in layers)
    count = f"{len(layers)} fully connected layer{'s' if len(layers) > 1 else ''}"
    how = f"no calibration, per channel, {count} in 8 bits{_left(model, layers)}"
    _exchange(model, {layer.place: layer for layer in layers})
    return Rewritten(model, changed, how)


def _layers(model: ModelProto) -> list[_Dense]:
    constants = {w.name: w for w in model.graph.initializer if w.data_type == onnx.TensorProto.FLOAT}
    found = []
    for place, node in enumerate(model.graph.node):
        if node.op_type not in ("MatMul", "Gemm") or node.domain not in STANDARD:
            continue
        stored = constants.get(node.input[1])
        if stored is None or len(stored.dims) != 2 or node.input[0] in constants:
            continue
        options = attributes_of(node)
        if options.get("transA"):
            continue
        weight = numpy_helper.to_array(stored)
        turned = weight.T if options.get("transB") else weight
        scaled = turned * np.float32(options.get("alpha", 1.0))
        bias = node.input[2] if len(node.input) > 2 else ""
        found.append(_Dense(place, scaled, bias, float(options.get("beta", 1.0))))
    return found


def _exchange(model: ModelProto, layers: dict[int, _Dense]) -> None:
    """Change the graph in place; layers that read the same tensor share its grid."""
    seen: dict[str, tuple[str, str, str]] = {}
    order: list[Any] = []
    for place, node in enumerate(model.graph.node):
        if place not in layers:
            order.append(node)
            continue
        source = node.input[0]
        if source not in seen:
            seen[source] = (f"{source}:8-bit", f"{source}:8-bit-scale", f"{source}:8-bit-zero")
            name = f"{source}:quantise"
            order.append(helper.make_node("DynamicQuantizeLinear", [source], list(seen[source]), name=name))
        order += _integer_layer(model, node, layers[place], seen[source])
    del model.graph.node[:]
    model.graph.node.extend(order)
    drop_unused(model.graph)


def _integer_layer(model: ModelProto, node: Any, layer: _Dense, entering: tuple[str, str, str]) -> list[Any]:
    """The nodes that take the layer's place."""
    integers, step, zero = entering
    scale = symmetric_scale(np.abs(layer.weight).max(axis=0))
    weight = (quantise(layer.weight, scale, low=-HIGH) + MIDDLE).astype(np.uint8)
    own = node.name
    added = {"weight": weight, "middle": np.array([MIDDLE], np.uint8), "scale": scale}
    matrix, middle, scales = (add_constant(model.graph, f"{own}:{name}", v) for name, v in added.items())
    end = f"{own}:product" if layer.bias else node.output[0]
    sums, floats, steps = f"{own}:sums", f"{own}:floats", f"{own}:step"
    made = [
        helper.make_node("MatMulInteger", [integers, matrix, zero, middle], [sums], name=own),
        helper.make_node("Cast", [sums], [floats], name=f"{own}:cast", to=TensorProto.FLOAT),
        helper.make_node("Mul", [step, scales], [steps], name=f"{own}:scales"),
        helper.make_node("Mul", [floats, steps], [end], name=f"{own}:scaled"),
    ]
    if layer.bias:
        bias = layer.bias
        if layer.factor != 1.0:
            factor = add_constant(model.graph, f"{own}:beta", np.array([layer.factor], np.float32))
            bias = f"{own}:scaled-bias"
            made.append(helper.make_node("Mul", [layer.bias, factor], [bias], name=bias))
        made.append(helper.make_node("Add", [end, bias], [node.output[0]], name=f"{own}:bias"))
    return made


def _left(model: ModelProto, layers: list[_Dense]) -> str:
    """Which nodes with weights stay in float32, embeddings among them, and what is inside other graphs."""
    stored = [w for w in model.graph.initializer if w.data_type == onnx.TensorProto.FLOAT]
    tables = {w.name for w in stored if len(w.dims) == 2}
    done = {layer.place for layer in layers}
    kinds: Counter[str] = Counter()
    for place, node in enumerate(model.graph.node):
        if place in done:
            continue
        if node.op_type in ("Conv", "ConvTranspose"):
            kinds[node.op_type] += 1
        elif node.op_type in ("MatMul", "Gemm"):
            kinds[f"{node.op_type} without a weight"] += 1
        elif node.op_type == "Gather" and node.input[0] in tables:
            kinds["embedding table"] += 1
        elif subgraphs(node):
            kinds[f"graph inside {node.op_type}"] += 1
    told = ", ".join(f"{count} × {kind}" for kind, count in sorted(kinds.items()))
    return f", in float32: {told}" if told else ""
