"""Operators on whole numbers instead of weights: a quantised model is refused in plain words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from holdfast.core.errors import ModelError

QUANTISED: Final = (
    "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul",
    "ConvInteger", "MatMulInteger",
)  # fmt: skip


def check_not_quantised(nodes: Sequence[Any]) -> None:
    """Nothing, or a ModelError that names the first node of a quantised model."""
    for node in nodes:
        if node.op_type in QUANTISED:
            raise ModelError(
                f"node {node.name or node.output[0]!r}: operator {node.op_type} cannot be trained: the model "
                "is quantised, and rounding has no gradient; train the float32 model it was made from"
            )
