"""Operators on whole numbers instead of weights: a quantised model is refused in plain words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from holdfast.graph.lower.values import Build, Lowering, Node, Value

_QUANTISED: Final = (
    "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul",
    "ConvInteger", "MatMulInteger",
)  # fmt: skip


def _refused(node: Node, build: Build) -> list[Value]:
    raise node.fail(
        "the model is quantised, rounding has no gradient; train the float32 model it was made from"
    )


OPERATORS: Mapping[str, Lowering] = dict.fromkeys(_QUANTISED, _refused)
