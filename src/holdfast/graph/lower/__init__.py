"""ONNX files lowered to the steps of `holdfast.graph.ir`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.graph.lower.whole import lower_onnx

__all__ = ["lower_onnx"]


def __getattr__(name: str) -> Any:
    # Parts of this package are of use without the whole of it, and some who use them are in a hurry.
    if name != "lower_onnx":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from holdfast.graph.lower.whole import lower_onnx

    return lower_onnx
