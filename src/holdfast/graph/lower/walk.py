"""The walk over the nodes of an ONNX graph, in its order, that turns them into steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import ModelError
from holdfast.graph.lower import conv, curves, fold, linear, matrix, maxima, moves, resize, sums
from holdfast.graph.lower.values import Build, Lowering, Node, Value, View

OPERATORS: Mapping[str, Lowering] = {
    **moves.OPERATORS,
    **linear.OPERATORS,
    **matrix.OPERATORS,
    **conv.OPERATORS,
    **curves.OPERATORS,
    **maxima.OPERATORS,
    **sums.OPERATORS,
    **resize.OPERATORS,
}
# Malformed nodes make numpy raise one of these; the node is then named.
_NUMPY_ERRORS = (ValueError, IndexError, KeyError, TypeError, AttributeError, ZeroDivisionError)


def walked(proto: Any, build: Build, values: dict[str, Value]) -> list[Value]:
    """The values of the graph's outputs, given those of its inputs; `values` is used up."""
    graph = proto.graph
    opset = next((int(o.version) for o in proto.opset_import if o.domain in ("", "ai.onnx")), 1)
    outputs = [o.name for o in graph.output]
    nodes = needed(graph)
    uses = Counter([*outputs, *(name for node in nodes for name in node.input)])
    for node in nodes:
        inputs = tuple(_find(values, node, name) if name else None for name in node.input)
        found = lowered(node_of(node, inputs, opset, set(outputs)), node.domain, build)
        for name, value in zip(node.output, found, strict=False):
            values[name] = build.normal(value) if isinstance(value, View) else value
        for name in node.input:  # a value nobody reads again is let go
            uses[name] -= 1
            if name and not uses[name]:
                values.pop(name, None)
    missing = [name for name in outputs if name not in values]
    if missing:
        raise ModelError(f"output {missing[0]!r} is not computed by any node; expected a complete graph")
    return [values[name] for name in outputs]


def lowered(node: Node, domain: str, build: Build) -> list[Value]:
    """The values of a node's outputs; the steps they need are emitted."""
    if domain not in ("", "ai.onnx"):
        raise node.fail(f"operators of the domain {domain!r} are not supported")
    if node.operator == "Constant":
        return [constant_of(node)]
    lower = OPERATORS.get(node.operator)
    try:
        if all(not isinstance(v, View) for v in node.inputs) and node.operator not in moves.OPERATORS:
            return list(fold.folded(node))
        if lower is None:
            raise node.fail("it is not linear, piecewise linear or one of the known curves")
        return lower(node, build)
    except _NUMPY_ERRORS as problem:
        raise node.fail(f"{type(problem).__name__}: {problem}") from problem


def needed(graph: Any) -> list[Any]:
    """The nodes on which the outputs depend, in order."""
    wanted = {o.name for o in graph.output}
    kept = []
    for node in reversed(graph.node):
        if wanted.intersection(node.output):
            kept.append(node)
            wanted.update(node.input)
    return kept[::-1]


def _find(values: Mapping[str, Value], node: Any, name: str) -> Value:
    if name not in values:
        raise ModelError(
            f"node {node.name or node.output[0]!r}: its input {name!r} is not an input, a weight or an "
            "output supported of an earlier node; expected a sorted graph"
        )
    return values[name]


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
