"""A softmax as last layer taken off: what constraints on probabilities say of the values before it.

With p = softmax(z) over k outputs:
  p_i <= p_j  is  z_i <= z_j;
  p_i >= c    implies  z_j - z_i <= log((1 - c) / c) for every j;
  p_i <= c    implies  z_i - z_j <= log((k - 1) c / (1 - c)) for some j.
The first is exact, as are the others for two outputs; else they are wider, so that `holds` stays a proof and
a violation is one only if it replays.
"""

from __future__ import annotations

import itertools
from math import exp, log, nextafter
from typing import Any

import numpy as np

from holdfast.core.property import Rows
from holdfast.core.types import Floats

_LIMIT = 10_000  # cases that one conjunction may become
_SPARE = 1e-9  # added to every logarithm: more than its rounding

Row = tuple[Floats, float]


def last_softmax(proto: Any) -> str:
    """Softmax or LogSoftmax if that is the last layer of the network, else nothing."""
    if len(proto.graph.output) != 1:
        return ""
    name = proto.graph.output[0].name
    last = next((node for node in proto.graph.node if name in node.output), None)
    return str(last.op_type) if last is not None and last.op_type in ("Softmax", "LogSoftmax") else ""


def without_softmax(rows: Rows, kind: str) -> list[Rows] | None:
    """The conjunctions on the values before the softmax, one of which must hold; None if none are known."""
    if rows.inputs is not None and rows.inputs.any():
        return None
    choices: list[list[list[Row]]] = []
    for weights, bound in zip(rows.matrix, rows.bound.tolist(), strict=True):
        found = _row(weights, bound, kind)
        if found is None:
            return None
        choices.append(found)
    if np.prod([float(len(options)) for options in choices]) > _LIMIT:
        return None
    result = []
    for options in itertools.product(*choices):
        chosen = [row for option in options for row in option]
        matrix = np.array([weights for weights, _ in chosen]).reshape(len(chosen), rows.matrix.shape[1])
        result.append(Rows(matrix, np.array([bound for _, bound in chosen]), None, rows.within))
    return result


def _row(weights: Floats, bound: float, kind: str) -> list[list[Row]] | None:
    """The ways in which one row may hold, each a conjunction of rows before the softmax."""
    named = np.flatnonzero(weights)
    if len(named) == 2 and weights.sum() == 0 and abs(bound) < 1e-300:
        return [[(np.sign(weights), 0.0)]]
    if len(named) != 1 or len(weights) < 2:
        return None
    i, limit = int(named[0]), bound / float(weights[named[0]])
    if kind == "LogSoftmax":
        limit = exp(min(limit, 1.0))
    others = [j for j in range(len(weights)) if j != i]
    if weights[i] < 0:  # p_i >= limit; a probability that rounds to 1 counts
        limit = min(limit, 1 - 1e-6)
        if limit <= 0:
            return [[]]
        most = log((1 - limit) / limit) + _SPARE
        return [[(_difference(len(weights), j, i), most) for j in others]]
    limit = max(limit, nextafter(0, 1) if limit < 0 else 1e-30)  # as does one that rounds to 0
    if limit >= 1:
        return [[]]
    most = log(len(others) * limit / (1 - limit)) + _SPARE
    return [[(_difference(len(weights), i, j), most)] for j in others]


def _difference(size: int, plus: int, minus: int) -> Floats:
    row = np.zeros(size)
    row[plus], row[minus] = 1.0, -1.0
    return row
