"""Whether a network gives the same output for the same input: nodes that draw random numbers."""

from __future__ import annotations

from typing import Any

from holdfast.core.errors import ModelError
from holdfast.graph.wire import WireGraph, WireNode

RANDOM = (
    "Bernoulli",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
)


def check_deterministic(graph: WireGraph, where: str) -> None:
    """Raise ModelError if an output depends on a node that draws random numbers, or may."""
    for node in graph.needed(output.name for output in graph.outputs):
        reason = _random(node, graph)
        if reason:
            raise ModelError(
                f"{where}: node {node.name or node.outputs[0]!r}: {node.operator} {reason}, so one input has "
                "many outputs; export the model for inference"
            )


def dropout_trains(opset: int, attributes: Any, training_mode: Any) -> bool:
    """Whether a Dropout node drops values; `training_mode` is its third input's value, None if left out."""
    if opset < 7:
        return not attributes.get("is_test", 0)
    return opset >= 12 and training_mode is not None and bool(training_mode)


def _random(node: WireNode, graph: WireGraph) -> str:
    """In which way a node is random; empty if it is not."""
    if node.operator in RANDOM and node.domain in ("", "ai.onnx"):
        return "draws random numbers"
    if node.operator == "Dropout" and node.domain in ("", "ai.onnx"):
        mode, known = _constant(graph, node.inputs[2] if len(node.inputs) > 2 else "")
        if not known:
            return "has a training_mode that is not a constant"
        return "is in training mode" if dropout_trains(graph.opset, node.attributes, mode) else ""
    # What is inside a nested graph or a function is not read node by node.
    inside = node.raw if node.nested else graph.around if node.domain not in ("", "ai.onnx") else b""
    named = next((name for name in (*RANDOM, "Dropout") if name.encode() in inside), "")
    return f"may run {named} inside" if named else ""


def _constant(graph: WireGraph, name: str) -> tuple[Any, bool]:
    """The value of a constant tensor, None without a name, and whether it is known."""
    if not name:
        return None, True
    if name in graph.weights and not graph.weights[name].outside:
        return graph.weights[name].value(), True
    for node in graph.nodes:
        if node.operator == "Constant" and name in node.outputs:
            return node.attributes.get("value"), node.attributes.get("value") is not None
    return None, False
