"""The torch operators of ONNX nodes, each with the semantics of ONNX Runtime."""

from collections.abc import Mapping

from holdfast.graph.lower import Table
from holdfast.graph.lower import moves as lower
from holdfast.graph.lower.values import Lowering
from holdfast.train.onnx.operators import (
    arithmetic,
    curves,
    indices,
    linear,
    moves,
    norms,
    resize,
    totals,
    windows,
)

OPERATORS: Mapping[str, Lowering] = {
    **windows.OPERATORS,
    **linear.OPERATORS,
    **norms.OPERATORS,
    **curves.OPERATORS,
    **arithmetic.OPERATORS,
    **totals.OPERATORS,
    **moves.OPERATORS,
    **indices.OPERATORS,
    **resize.OPERATORS,
}
# Constants keep their type: what these two give for constants is a view of float numbers.
_MOVES = {operator: move for operator, move in lower.OPERATORS.items() if operator not in ("Where", "Pad")}
TABLE = Table(OPERATORS, _MOVES, "trained", "there is no differentiable operator for it")
