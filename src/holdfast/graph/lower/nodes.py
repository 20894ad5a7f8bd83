"""The nodes of an ONNX graph: those that an output needs, their attributes, and a part cut out of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import ModelError
from holdfast.graph.lower.values import Node, Value


def needed(graph: Any, outputs: Iterable[str] | None = None, given: Iterable[str] = ()) -> list[Any]:
    """The nodes on which tensors (default: the outputs) depend, back to the given ones, in order."""
    known = set(given)
    wanted = ({o.name for o in graph.output} if outputs is None else set(outputs)) - known
    kept = []
    for node in reversed(graph.node):
        if wanted.intersection(node.output):
            kept.append(node)
            wanted |= _reads(node) - known
    return kept[::-1]


def subgraphs(node: Any) -> list[Any]:
    """The graphs inside a node, such as the branches of an If."""
    return [g for a in node.attribute for g in (*([a.g] if a.HasField("g") else []), *a.graphs)]


def _reads(node: Any) -> set[str]:
    """The tensors that a node reads; a graph inside it may read any tensor around it."""
    names = set(node.input)
    for graph in subgraphs(node):
        names.update(output.name for output in graph.output)
        names.update(*map(_reads, graph.node))
    return names


def part_of(
    model: Any,
    given: Mapping[str, NDArray[Any]],
    outputs: Iterable[str],
    constants: Mapping[str, NDArray[Any]] | None = None,
) -> Any:
    """The part of a model from the given tensors (examples of them) to the outputs, as a model.

    `constants` are tensors that get a fixed value.
    """
    from onnx import ValueInfoProto, helper, numpy_helper

    names, fixed = list(outputs), constants or {}
    nodes = needed(model.graph, names, given)
    read = set(names).union(*map(_reads, nodes))
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in given.items()
        if name in read
    ]
    weights = [w for w in model.graph.initializer if w.name in read and w.name not in fixed]
    weights += [numpy_helper.from_array(value, name) for name, value in fixed.items() if name in read]
    found = [ValueInfoProto(name=name) for name in names]  # onnxruntime infers their types
    return helper.make_model(
        helper.make_graph(nodes, "part", inputs, found, weights),
        opset_imports=model.opset_import,
        functions=model.functions,
        ir_version=max(model.ir_version, 4),  # from 4 on a weight need not be an input
    )


def node_of(node: Any, inputs: tuple[Value | None, ...], opset: int, outputs: set[str]) -> Node:
    """A node of the file with its attributes read and the values of its inputs."""
    from onnx import AttributeProto, TensorProto, helper, numpy_helper

    name = node.name or (node.output[0] if node.output else node.op_type)
    attributes: dict[str, Any] = {}
    for attribute in node.attribute:
        value = helper.get_attribute_value(attribute)
        if attribute.type == AttributeProto.TENSOR:
            if value.data_location == TensorProto.EXTERNAL:
                raise ModelError(f"node {name!r}: expected {attribute.name!r} in the model's own file")
            value = numpy_helper.to_array(value)
        elif isinstance(value, bytes):
            value = value.decode(errors="replace")
        attributes[attribute.name] = value
    last = any(o in outputs for o in node.output)
    return Node(node.op_type, name, attributes, inputs, len(node.output), opset, last)


def constant_of(node: Node) -> NDArray[Any]:
    """The value of a Constant node."""
    kinds = {
        "value_float": np.float32,
        "value_floats": np.float32,
        "value_int": np.int64,
        "value_ints": np.int64,
    }
    for name, value in node.attributes.items():
        if name == "value":
            return np.asarray(value)
        if name in kinds:
            return np.asarray(value, kinds[name])
    raise node.fail(f"expected a numeric value, got {', '.join(node.attributes) or 'none'}")
