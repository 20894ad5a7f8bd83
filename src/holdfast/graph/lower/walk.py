"""The walk over the nodes of an ONNX graph, in its order, that turns them into steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.core.errors import ModelError
from holdfast.graph.determinism import RANDOM
from holdfast.graph.inspect import opset_of
from holdfast.graph.lower import conv, curves, fold, linear, matrix, maxima, moves, resize, smooth, sums
from holdfast.graph.lower.nodes import constant_of, needed, node_of
from holdfast.graph.lower.values import Build, Lowering, Node, Value, View

OPERATORS: Mapping[str, Lowering] = {
    **moves.OPERATORS,
    **linear.OPERATORS,
    **matrix.OPERATORS,
    **conv.OPERATORS,
    **curves.OPERATORS,
    **smooth.OPERATORS,
    **maxima.OPERATORS,
    **sums.OPERATORS,
    **resize.OPERATORS,
}


@dataclass(frozen=True)
class Table:
    """What nodes are turned into: a function an operator, and the words for one that has none."""

    operators: Mapping[str, Lowering] = field(default_factory=lambda: OPERATORS)
    # of constants: faster than ONNX Runtime, a session each
    moves: Mapping[str, Lowering] = field(default_factory=lambda: moves.OPERATORS)
    aim: str = "lowered"
    unknown: str = "it is not linear, piecewise linear or one of the known curves"


STEPS = Table()
# Malformed nodes make numpy raise one of these; the node is then named.
_NUMPY_ERRORS = (ValueError, IndexError, KeyError, TypeError, AttributeError, ZeroDivisionError)


def walked(proto: Any, build: Build, values: dict[str, Value], table: Table = STEPS) -> list[Value]:
    """The values of the graph's outputs, given those of its inputs; `values` is used up."""
    graph = proto.graph
    opset = opset_of(proto) or 1
    outputs = [o.name for o in graph.output]
    nodes = needed(graph)
    uses = Counter([*outputs, *(name for node in nodes for name in node.input)])
    for node in nodes:
        inputs = tuple(_find(values, node, name) if name else None for name in node.input)
        parsed = replace(node_of(node, inputs, opset, set(outputs)), aim=table.aim)
        found = lowered(parsed, node.domain, build, table)
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


def lowered(node: Node, domain: str, build: Build, table: Table = STEPS) -> list[Value]:
    """The values of a node's outputs; the steps they need are emitted."""
    if domain not in ("", "ai.onnx"):
        raise node.fail(f"operators of the domain {domain!r} are not supported")
    if node.operator == "Constant":
        return [constant_of(node)]
    if node.operator in RANDOM:
        raise node.fail("it draws random numbers")
    lower = table.operators.get(node.operator)
    try:
        dropped = build.drop_softmax and node.last and node.operator in ("Softmax", "LogSoftmax")
        constant = all(not isinstance(v, View) for v in node.inputs)
        if constant and not dropped:
            move = table.moves.get(node.operator)
            return list(fold.folded(node)) if move is None else move(node, build)
        if lower is None:
            raise node.fail(table.unknown)
        return lower(node, build)
    except _NUMPY_ERRORS as problem:
        raise node.fail(f"{type(problem).__name__}: {problem}") from problem


def _find(values: Mapping[str, Value], node: Any, name: str) -> Value:
    if name not in values:
        raise ModelError(
            f"node {node.name or node.output[0]!r}: its input {name!r} is not an input, a weight or an "
            "output supported of an earlier node; expected a sorted graph"
        )
    return values[name]
