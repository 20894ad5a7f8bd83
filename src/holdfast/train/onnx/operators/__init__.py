"""The torch operators of ONNX nodes, each with the semantics of ONNX Runtime."""

from collections.abc import Mapping

from holdfast.graph.lower.values import Lowering
from holdfast.graph.lower.walk import Table
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
TABLE = Table(OPERATORS, "trained", "there is no differentiable operator for it")
