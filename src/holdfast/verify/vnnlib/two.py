"""VNN-LIB 2.0, read by the `vnnlib` package and turned into the same cases as 1.0."""

from __future__ import annotations

import json
from fractions import Fraction
from math import prod
from typing import Any

from holdfast.core.errors import InputError, MissingExtra
from holdfast.verify.vnnlib.algebra import Formula, Misfit, Term, Variable, add, compare, conjoin, multiply
from holdfast.verify.vnnlib.cases import PlainBounds, spec_of
from holdfast.verify.vnnlib.spec import Spec

_KINDS = ("Real", "F32", "F64")
_SIGNS = {"LessEqual": "<=", "LessThan": "<", "GreaterEqual": ">=", "GreaterThan": ">", "Equal": "="}


def parse_two(text: str, where: str) -> Spec:
    """The specification of a VNN-LIB 2.0 text that speaks of one network with one input."""
    try:
        import vnnlib
    except ImportError:
        raise MissingExtra("reading VNN-LIB 2.0", "vnnlib", "vnnlib2") from None
    if not hasattr(vnnlib, "parse_query_string"):
        raise InputError(f"{where}: is VNN-LIB 2.0, which needs vnnlib 1.0 or newer: pip install -U vnnlib")
    try:
        query = vnnlib.parse_query_string(text)
    except vnnlib.VNNLibException as problem:
        raise InputError(f"{where}{_told(str(problem))}") from None
    offsets, inputs, outputs = _offsets(query, where)
    try:
        asserted = [_formula(assertion.expr, offsets) for assertion in query.assertions]
        return spec_of(inputs, outputs, asserted, PlainBounds())
    except Misfit as problem:
        raise InputError(f"{where}: {problem}") from None


def _told(report: str) -> str:
    """The first error of the package's report as :LINE: TEXT."""
    try:
        first = json.loads(report)["errors"][0]
        return f":{first['line']}: {first['message']} {first['offendingSymbol']!r}: {first['hint']}"
    except (ValueError, LookupError, TypeError):
        return ": " + " ".join(report.split())


def _offsets(query: Any, where: str) -> tuple[dict[str, Variable], int, int]:
    """The variable of each tensor's first entry, and how many inputs and outputs there are."""
    if len(query.networks) != 1:
        raise InputError(
            f"{where}: expected one network, got {len(query.networks)}; holdfast decides one at a time"
        )
    (network,) = query.networks
    if network.hidden:
        raise InputError(
            f"{where}: expected inputs and outputs alone, got the hidden node {network.hidden[0].name!r}"
        )
    if len(network.inputs) != 1:
        raise InputError(f"{where}: expected a network with one input, got {len(network.inputs)}")
    for tensor in (*network.inputs, *network.outputs):
        if tensor.dtype.name not in _KINDS:
            raise InputError(
                f"{where}: expected {tensor.name!r} to be real or float, got {tensor.dtype.name}"
            )
    offsets: dict[str, Variable] = {network.inputs[0].name: 0}
    outputs = 0
    for tensor in network.outputs:
        offsets[tensor.name] = -1 - outputs
        outputs += prod(tensor.shape)
    return offsets, prod(network.inputs[0].shape), outputs


def _formula(node: Any, offsets: dict[str, Variable]) -> Formula:
    kind = type(node).__name__
    if kind == "And":
        return conjoin([_formula(part, offsets) for part in node.args])
    if kind == "Or":
        return [case for part in node.args for case in _formula(part, offsets)]
    if kind in _SIGNS:
        return compare(_SIGNS[kind], _term(node.lhs, offsets), _term(node.rhs, offsets))
    if kind == "NotEqual":
        left, right = _term(node.lhs, offsets), _term(node.rhs, offsets)
        return compare("<", left, right) + compare(">", left, right)
    raise Misfit(f"expected comparisons, and, or, got {kind}: {node}")


def _term(node: Any, offsets: dict[str, Variable]) -> Term:
    kind = type(node).__name__
    if kind == "Var":
        flat = 0
        for index, size in zip(node.indices, node.shape, strict=True):
            flat = flat * size + index
        first = offsets[node.name]
        return {first + flat if first >= 0 else first - flat: Fraction(1)}
    if kind == "Negate":
        return add([_term(node.expr, offsets)], [-1])
    if kind == "Plus":
        return add([_term(part, offsets) for part in node.args], [1] * len(node.args))
    if kind == "Minus":
        parts = [node.head, *node.rest]
        return add([_term(part, offsets) for part in parts], [1, *[-1] * len(node.rest)])
    if kind == "Multiply":
        return multiply([_term(part, offsets) for part in node.args])
    if hasattr(node, "lexeme"):
        return {None: Fraction(node.lexeme)}
    raise Misfit(f"expected a linear term, got {kind}: {node}")
