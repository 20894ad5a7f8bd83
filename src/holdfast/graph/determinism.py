"""Whether a network gives the same output for the same input: nodes that draw random numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.core.errors import ModelError
from holdfast.graph.inspect import STANDARD, opset_of
from holdfast.graph.lower.nodes import needed, subgraphs

RANDOM = (
    "Bernoulli",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
)


def check_deterministic(proto: Any, where: str) -> None:
    """Raise ModelError if an output of a parsed ONNX file depends on a node that draws random numbers."""
    for node in needed(proto.graph):
        reason = _random(node, proto)
        if reason:
            raise ModelError(
                f"{where}: node {node.name or node.output[0]!r}: {node.op_type} {reason}, so one input has "
                "many outputs; export the model for inference"
            )


def dropout_trains(opset: int, attributes: Any, training_mode: Any) -> bool:
    """Whether a Dropout node drops values; `training_mode` is its third input's value, None if left out."""
    if opset < 7:
        return not attributes.get("is_test", 0)
    return opset >= 12 and training_mode is not None and bool(training_mode)


def _random(node: Any, proto: Any) -> str:
    """In which way a node is random, or may be; empty if it is not."""
    if node.op_type in RANDOM and node.domain in STANDARD:
        return "draws random numbers"
    if node.op_type == "Dropout" and node.domain in STANDARD:
        mode, known = _constant(proto.graph, node.input[2] if len(node.input) > 2 else "")
        if not known:
            return "has a training_mode that is not a constant"
        attributes = {attribute.name: attribute.i for attribute in node.attribute}
        return "is in training mode" if dropout_trains(opset_of(proto), attributes, mode) else ""
    random = (inner.op_type for inner in _inside(node, proto) if inner.op_type in (*RANDOM, "Dropout"))
    named = next(random, "")
    return f"may run {named} inside" if named else ""


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
    from onnx import TensorProto, numpy_helper

    if not name:
        return None, True
    constants = [node for node in graph.node if node.op_type == "Constant" and name in node.output]
    tensors = [a.t for node in constants for a in node.attribute if a.name == "value"]
    for tensor in (*(w for w in graph.initializer if w.name == name), *tensors):
        if tensor.data_location != TensorProto.EXTERNAL:
            return numpy_helper.to_array(tensor), True
    return None, False
