"""The nodes of an ONNX graph: those that matter, with their attributes read."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.graph.lower.values import Node, Value


def needed(graph: Any) -> list[Any]:
    """The nodes on which the outputs depend, in order."""
    wanted = {o.name for o in graph.output}
    kept = []
    for node in reversed(graph.node):
        if wanted.intersection(node.output):
            kept.append(node)
            wanted.update(node.input)
    return kept[::-1]


def node_of(node: Any, inputs: tuple[Value | None, ...], opset: int, outputs: set[str]) -> Node:
    """A node of the file with its attributes read and the values of its inputs."""
    from onnx import AttributeProto, helper, numpy_helper

    attributes: dict[str, Any] = {}
    for attribute in node.attribute:
        value = helper.get_attribute_value(attribute)
        if attribute.type == AttributeProto.TENSOR:
            value = numpy_helper.to_array(value)
        elif isinstance(value, bytes):
            value = value.decode(errors="replace")
        attributes[attribute.name] = value
    name = node.name or (node.output[0] if node.output else node.op_type)
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
