"""Why a rewrite leaves a graph as it is, in words: there is nothing of its kind, or it is so already."""

from __future__ import annotations

from typing import Any

from holdfast.graph.rewrite.follow.infer import POOLS
from holdfast.graph.rewrite.follow.walk import counted
from holdfast.graph.rewrite.pools import windows_of

NOTHING = "nothing in the graph it could change"


def unchanged(data: bytes, family: str) -> str:
    """Why a rewrite of that family that changed nothing in this ONNX file has nothing to change."""
    import onnx

    nodes = [n for n in onnx.load_from_string(data).graph.node if n.domain in ("", "ai.onnx")]
    if family == "ceil":
        return _pools([n for n in nodes if n.op_type in POOLS and _stride(n) > 1])
    if family == "upsample":
        return _resizes([n.op_type for n in nodes if n.op_type in ("Resize", "Upsample")])
    return NOTHING


def _stride(pool: Any) -> int:
    return max((s for a in pool.attribute if a.name == "strides" for s in a.ints), default=1)


def _pools(strided: list[Any]) -> str:
    """What keeps pools of stride over 1 from having another size in the other mode."""
    same = [n.op_type for n in strided if windows_of(n) is None]
    whole = [n.op_type for n in strided if windows_of(n) is not None]
    said = []
    if whole:
        said.append(f"{counted(whole)} of stride over 1, whose sizes divide: floor and ceil are the same")
    if same:
        said.append(f"{counted(same)} of padding SAME, which is ⌈W/S⌉ in any mode")
    return ", ".join(said) or "no pool of stride over 1 in the graph"


def _resizes(kinds: list[str]) -> str:
    if not kinds:
        return "no Resize or Upsample in the graph"
    return f"{counted(kinds)}: done so already, or not enlarging by neighbours or linearly"
