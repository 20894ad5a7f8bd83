"""Nodes of a parsed ONNX graph: what depends on what, attributes, and whether one of them is random."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, ValueInfoProto, helper, numpy_helper

from holdfast.core.errors import ModelError
from holdfast.graph.inspect import STANDARD, opset_of

_DRAWS = ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
RANDOM = ("Bernoulli", "Multinomial", *_DRAWS)  # operators that draw random numbers


def needed(graph: Any, outputs: Iterable[str] | None = None, inputs: Iterable[str] = ()) -> list[Any]:
    """The nodes on which `outputs` (default: the graph's) depend, back to `inputs`, in order."""
    available = set(inputs)
    required = ({o.name for o in graph.output} if outputs is None else set(outputs)) - available
    nodes = []
    for node in reversed(graph.node):
        if required.intersection(node.output):
            nodes.append(node)
            required |= _reads(node) - available
    return nodes[::-1]


def subgraphs(node: Any) -> list[Any]:
    """The graphs inside a node, such as the branches of an If."""
    return [g for a in node.attribute for g in (*([a.g] if a.HasField("g") else []), *a.graphs)]


def _reads(node: Any) -> set[str]:
    """The tensors that a node reads; a graph inside it may read any tensor around it."""
    return set(node.input).union(*map(names_in, subgraphs(node)))


def names_in(graph: Any) -> set[str]:
    """The tensors that the nodes of a graph, graphs inside of them, or its outputs read."""
    return {output.name for output in graph.output}.union(*map(_reads, graph.node))


def add_constant(graph: Any, name: str, value: Any) -> str:
    """The name of a new weight of a graph."""
    graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    return name


def drop_unused(graph: Any) -> None:
    """Drop the weights of a graph that no node reads, not even inside another's graph."""
    read = names_in(graph)
    used = [w for w in graph.initializer if w.name in read]
    del graph.initializer[:]
    graph.initializer.extend(used)


def part_of(
    model: Any,
    inputs: Mapping[str, NDArray[Any]],
    outputs: Iterable[str],
    constants: Mapping[str, NDArray[Any]] | None = None,
) -> Any:
    """The part of a model from `inputs` (examples by name) to `outputs`; `constants` get a fixed value."""
    names, fixed = list(outputs), constants or {}
    nodes = needed(model.graph, names, inputs)
    read = set(names).union(*map(_reads, nodes))
    infos = _value_infos({name: value for name, value in inputs.items() if name in read})
    weights = [w for w in model.graph.initializer if w.name in read and w.name not in fixed]
    weights += [numpy_helper.from_array(value, name) for name, value in fixed.items() if name in read]
    output_infos = [ValueInfoProto(name=name) for name in names]  # onnxruntime infers their types
    return helper.make_model(
        helper.make_graph(nodes, "part", infos, output_infos, weights),
        opset_imports=model.opset_import,
        functions=model.functions,
        ir_version=max(model.ir_version, 4),  # from 4 on a weight need not be an input
    )


def node_alone(node: Any, inputs: Mapping[str, NDArray[Any]], **facts: Any) -> Any:
    """A model of one node with inputs like these arrays; `facts` are arguments of make_model."""
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
    return helper.make_model(helper.make_graph([node], "alone", _value_infos(inputs), outputs), **facts)


def _value_infos(examples: Mapping[str, NDArray[Any]]) -> list[Any]:
    kinds = {name: helper.np_dtype_to_tensor_dtype(value.dtype) for name, value in examples.items()}
    return [helper.make_tensor_value_info(name, kinds[name], value.shape) for name, value in examples.items()]


def set_attribute(node: Any, name: str, value: Any) -> None:
    """Give a node an attribute, in place of one of the same name."""
    drop_attributes(node, name)
    node.attribute.append(helper.make_attribute(name, value))


def attributes_of(node: Any) -> dict[str, Any]:
    """The values of a node's attributes by name, texts as bytes."""
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def drop_attributes(node: Any, *names: str) -> None:
    """Remove attributes from a node."""
    for attribute in [a for a in node.attribute if a.name in names]:
        node.attribute.remove(attribute)


def check_deterministic(proto: Any, where: str) -> None:
    """Raise ModelError if an output of a parsed ONNX file depends on a node that draws random numbers."""
    for node in needed(proto.graph):
        if reason := _random(node, proto):
            what = f"{node.op_type} {reason}, so one input has many outputs; export the model for inference"
            raise ModelError(f"{where}: node {node.name or node.output[0]!r}: {what}")


def dropout_trains(opset: int, attributes: Any, training_mode: Any) -> bool:
    """Whether a Dropout node drops values; `training_mode` is its third input's value, None if omitted."""
    if opset < 7:
        return not attributes.get("is_test", 0)
    return opset >= 12 and training_mode is not None and bool(training_mode)


def _random(node: Any, proto: Any) -> str:
    """In which way a node is random, or may be; empty if it is not."""
    if node.op_type in RANDOM and node.domain in STANDARD:
        return "draws random numbers"
    if node.op_type == "Dropout" and node.domain in STANDARD:
        mode, constant = _constant(proto.graph, node.input[2] if len(node.input) > 2 else "")
        if not constant:
            return "has a training_mode that is not a constant"
        attributes = {attribute.name: attribute.i for attribute in node.attribute}
        return "is in training mode" if dropout_trains(opset_of(proto), attributes, mode) else ""
    inside = [inner.op_type for inner in _inside(node, proto) if inner.op_type in (*RANDOM, "Dropout")]
    return f"may run {inside[0]} in a subgraph" if inside else ""


def _inside(node: Any, proto: Any) -> Iterator[Any]:
    """Every node that runs inside a node: in its own graphs, and in the functions of the file it calls."""
    todo, called = [node], set()
    while todo:
        current = todo.pop()
        inside = [inner for graph in subgraphs(current) for inner in graph.node]
        name = (current.domain, current.op_type)
        if name not in called:
            called.add(name)
            inside += [inner for f in proto.functions if (f.domain, f.name) == name for inner in f.node]
        todo += inside
        yield from inside


def _constant(graph: Any, name: str) -> tuple[Any, bool]:
    """The value of a constant tensor, None without a name, and whether it is known."""
    if not name:
        return None, True
    constants = [node for node in graph.node if node.op_type == "Constant" and name in node.output]
    tensors = [a.t for node in constants for a in node.attribute if a.name == "value"]
    for tensor in (*(w for w in graph.initializer if w.name == name), *tensors):
        if tensor.data_location != TensorProto.EXTERNAL:
            return numpy_helper.to_array(tensor), True
    return None, False
