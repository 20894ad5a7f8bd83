"""Preparation of a graph for precision rewrites, and the structural choice of tensors to quantise.

A weighted node (Conv, Gemm, MatMul by a constant) gets 8-bit weights and an 8-bit input. Nodes that add,
multiply or average get 8-bit inputs if a weighted node follows. Everything after the last weighted
nodes stays in float32: their outputs, and the sigmoids, boxes and concatenations of the heads.
An activation runs in the precision of its input, as in engines that fuse it; a node that only moves
values keeps the grid of its input.
"""

import dataclasses
import tempfile
from collections import defaultdict
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from onnx import numpy_helper, version_converter

from holdfast.graph.inspect import STANDARD, opset_of
from holdfast.graph.nodes import attributes_of
from holdfast.graph.rewrite.types import CannotRewrite, ModelProto
from holdfast.graph.session import condense, open_session

OPSET = 13  # the first in which QuantizeLinear has an axis and Cast knows bfloat16


def tidy(model: ModelProto) -> ModelProto:
    """The same function with constants folded and batch norms merged, as every deployed engine does first.

    ONNX Runtime's basic optimisations do it: they leave only standard operators.
    """
    plain = onnx.ModelProto()
    plain.CopyFrom(model)
    weights = {w.name for w in model.graph.initializer}
    del plain.graph.input[:]
    plain.graph.input.extend(i for i in model.graph.input if i.name not in weights)
    with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
        file = Path(folder) / "tidy.onnx"
        try:
            open_session(plain.SerializeToString(), optimise="basic", save=file)
        except Exception as problem:
            raise CannotRewrite(f"ONNX Runtime cannot load the model: {condense(problem)}") from problem
        done = onnx.load(file)
    used = {n.domain for n in done.graph.node}.union(STANDARD)
    for unused in [o for o in done.opset_import if o.domain not in used]:
        done.opset_import.remove(unused)  # other runtimes refuse a model that names domains they do not know
    _name_nodes(done)
    return done


def at_opset(model: ModelProto) -> ModelProto:
    """The model in an opset that is new enough, converted by onnx if it is not; CannotRewrite otherwise."""
    version = opset_of(model)
    if version >= OPSET:
        return model
    try:
        done = version_converter.convert_version(model, OPSET)
        open_session(done.SerializeToString())
    except Exception as problem:
        needs = f"the model is of opset {version}, this precision needs {OPSET} and the conversion failed"
        advice = f"export the model with opset {OPSET} or newer"
        raise CannotRewrite(f"{needs}: {condense(problem)}; {advice}") from problem
    _name_nodes(done)
    return done


def _name_nodes(model: Any) -> None:
    used: set[str] = set()
    for place, node in enumerate(model.graph.node):
        if not node.name or node.name in used:
            node.name = f"{node.op_type}_{place}"
        used.add(node.name)


WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")
COMBINING = ("Add", "Sub", "Mul", "Sum", "MatMul")
AVERAGING = ("AveragePool", "GlobalAveragePool", "ReduceMean")
MOVING = (
    *("MaxPool", "Reshape", "Transpose", "Slice", "Gather", "Split", "Flatten", "Squeeze", "Unsqueeze"),
    *("Pad", "Identity", "DepthToSpace", "SpaceToDepth", "Expand", "Tile"),
)
# Operators in the second factor of an activation x · g(x): SiLU, Mish, GELU, hard swish
GATE = ("Sigmoid", "HardSigmoid", "Tanh", "Softplus", "Erf", "Clip", "Relu", "Add", "Mul", "Div")
LONGEST_GATE = 4


@dataclass(frozen=True)
class QuantLayer:
    """A weighted node: its place, the tensor whose grid its input lies on, and its constants."""

    place: int
    source: str
    weight: str
    bias: str | None


@dataclass(frozen=True)
class QuantPlan:
    """What is quantised: layers, and for each tensor the (node, input) pairs that read it in 8 bits."""

    layers: tuple[QuantLayer, ...]
    readers: dict[str, tuple[tuple[int, int], ...]]
    in_float32: tuple[str, ...]  # operators that compute and stay in float32
    last: frozenset[int]  # places of layers that no other layer follows
    served: dict[str, frozenset[int]]  # tensor -> the nodes that compute with it in 8 bits


@dataclass(frozen=True)
class _Graph:
    nodes: Any
    makers: dict[str, int]  # tensor -> the node that makes it
    constants: dict[str, Any]
    floats: set[str]  # float32 tensors that are not constant

    def maker(self, name: str) -> Any:
        place = self.makers.get(name)
        return None if place is None else self.nodes[place]


def plan_of(model: ModelProto) -> QuantPlan:
    """The plan for a tidy graph; without layers there is nothing to quantise."""
    constants = {w.name: w for w in model.graph.initializer}
    makers = {name: place for place, node in enumerate(model.graph.node) for name in node.output if name}
    graph = _Graph(model.graph.node, makers, constants, float_tensors(model))
    weighted = {place for place, node in enumerate(graph.nodes) if _is_weighted(graph, node)}
    before: set[int] = set()  # the nodes from which a weighted one can be reached
    waiting = list(weighted)
    while waiting:
        inputs = graph.nodes[waiting.pop()].input
        sources = {makers[name] for name in inputs if name in makers} - before
        before |= sources
        waiting += sources
    readers: dict[str, list[tuple[int, int]]] = defaultdict(list)
    served: dict[str, set[int]] = defaultdict(set)
    layers: list[QuantLayer] = []
    for place, node in enumerate(graph.nodes):
        for index in _quantised_inputs(graph, node, place in weighted, place in before):
            source, reader = _origin(graph, node.input[index], (place, index))
            served[source].add(place)
            if reader not in readers[source]:
                readers[source].append(reader)
            if place in weighted:
                bias = node.input[2] if len(node.input) == 3 and node.input[2] in graph.constants else None
                layers.append(QuantLayer(place, source, node.input[1], bias))
    behind = [n.op_type for p, n in enumerate(graph.nodes) if p not in weighted and p not in before]
    return QuantPlan(
        tuple(layers),
        {k: tuple(v) for k, v in readers.items()},
        tuple(op for op in behind if op not in (*MOVING, "Concat", "Constant", "Shape", "Cast")),
        frozenset(weighted - before),
        {k: frozenset(v) for k, v in served.items()},
    )


def without(plan: QuantPlan, tensors: Container[str], places: Container[int] = ()) -> QuantPlan:
    """The plan in which these tensors, the layers that read them and those at these places are in float32."""
    layers = tuple(x for x in plan.layers if x.source not in tensors and x.place not in places)
    idle = {name for name, served in plan.served.items() if all(place in places for place in served)}
    readers = {k: v for k, v in plan.readers.items() if k not in tensors and k not in idle}
    return dataclasses.replace(plan, layers=layers, readers=readers)


def float_tensors(model: ModelProto) -> set[str]:
    """The float32 tensors of a model that are not constants."""
    inferred = onnx.shape_inference.infer_shapes(model).graph
    values = (*inferred.value_info, *inferred.input, *inferred.output)
    floats = {v.name for v in values if v.type.tensor_type.elem_type == onnx.TensorProto.FLOAT}
    return floats - {w.name for w in model.graph.initializer}


def _is_weighted(graph: _Graph, node: Any) -> bool:
    if node.op_type not in WEIGHTED or node.domain not in STANDARD or node.input[0] not in graph.floats:
        return False
    return node.input[1] in graph.constants and len(graph.constants[node.input[1]].dims) >= 2


def _quantised_inputs(graph: _Graph, node: Any, weighted: bool, before: bool) -> tuple[int, ...]:
    if weighted:
        return (0,)
    if not before or node.domain not in STANDARD or not node.input or node.input[0] not in graph.floats:
        return ()
    if node.op_type in COMBINING:
        both = len(node.input) > 1 and all(name in graph.floats for name in node.input)
        return tuple(range(len(node.input))) if both and not _is_activation(graph, node) else ()
    return (0,) if node.op_type in AVERAGING or _blends(node) else ()


def _blends(node: Any) -> bool:
    """Whether a Resize makes new values of its neighbours."""
    nearest = attributes_of(node).get("mode", b"nearest") == b"nearest"
    return node.op_type in ("Resize", "Upsample") and not nearest


def _is_activation(graph: _Graph, node: Any) -> bool:
    """Whether a Mul is x · g(x): one activation written as several nodes."""
    if node.op_type != "Mul":
        return False
    for x, gate in (node.input[:2], node.input[1::-1]):
        name = gate
        for _ in range(LONGEST_GATE):
            maker = graph.maker(name)
            if maker is None or maker.op_type not in GATE:
                break
            name = next((n for n in maker.input if n in graph.floats), "")
            if name == x:
                return True
    return False


def _origin(graph: _Graph, name: str, reader: tuple[int, int]) -> tuple[str, tuple[int, int]]:
    """The tensor whose values arrive here through nodes that only move them, and its first reader."""
    while (maker := graph.maker(name)) is not None and _moves(graph, maker):
        if maker.input[0] not in graph.floats:  # rows of a constant: an embedding, whose table stays as it is
            break
        reader = (graph.makers[name], 0)
        name = maker.input[0]
    return name, reader


def _moves(graph: _Graph, node: Any) -> bool:
    """Whether all values that come out went in, or are a zero, which every grid holds."""
    if node.op_type == "Resize":
        return not _blends(node)
    if node.op_type != "Pad" or len(node.input) < 3 or not node.input[2]:
        return node.op_type in MOVING
    value = graph.constants.get(node.input[2])
    return value is not None and not numpy_helper.to_array(value).any()
