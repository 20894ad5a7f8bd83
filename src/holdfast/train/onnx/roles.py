"""Which numbers of a file are weights: told by what they are used for, not by their names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from onnx import TensorProto

# By operator the inputs that are weights.
WEIGHTS: Final[Mapping[str, tuple[int, ...]]] = {
    "Conv": (1, 2),
    "ConvTranspose": (1, 2),
    "Gemm": (0, 1, 2),
    "MatMul": (0, 1),
    "Einsum": (0, 1, 2),
    "Gather": (0,),
    "PRelu": (1,),
    "BatchNormalization": (1, 2),
    "InstanceNormalization": (1, 2),
    "LayerNormalization": (1, 2),
    "GroupNormalization": (1, 2),
    "RMSNormalization": (1,),
}
STATISTICS: Final[Mapping[str, tuple[int, ...]]] = {"BatchNormalization": (3, 4)}
# What they give is what they got: a weight behind them is a weight.
MOVES: Final = frozenset(
    ("Identity", "Dropout", "Cast", "Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand",
     "Tile", "Slice", "Split", "Concat")
)  # fmt: skip
ARITHMETIC: Final = frozenset(("Add", "Sub", "Mul", "Div", "Sum"))


@dataclass(frozen=True)
class Roles:
    """Names of initializers: trained weights, running statistics, and float numbers left as they are."""

    weights: tuple[str, ...]
    statistics: tuple[str, ...]
    kept: tuple[str, ...]


@dataclass
class _Reading:
    """What is known of the values of a graph while its nodes are gone through in order."""

    readers: dict[str, list[tuple[Any, int]]] = field(default_factory=dict)
    constant: set[str] = field(default_factory=set)
    raw: set[str] = field(default_factory=set)  # the input before the first layer that has weights


def roles_of(graph: Any, nodes: list[Any]) -> Roles:
    """The roles of the float32 initializers of a graph.

    A weight is an input of a layer (see WEIGHTS), there directly or through moves; or it has more than one
    element and is added to or multiplied with values behind the first layer. Factors and offsets before the
    first layer prepare the input and are no weights; neither are limits, scales, sizes and exponents.
    """
    floats = {w.name: w for w in graph.initializer if w.data_type == TensorProto.FLOAT}
    reading = _read(graph, nodes)
    statistics = [n for n in floats if _used(n, reading, STATISTICS)]
    weights = [n for n in floats if n not in statistics and _is_weight(n, _size(floats[n]), reading)]
    rest = set(floats) - set(weights) - set(statistics)
    return Roles(tuple(weights), tuple(statistics), tuple(n for n in floats if n in rest))


def _read(graph: Any, nodes: list[Any]) -> _Reading:
    found = _Reading(constant={w.name for w in graph.initializer})
    found.raw = {i.name for i in graph.input} - found.constant
    for node in nodes:
        for at, name in enumerate(node.input):
            found.readers.setdefault(name, []).append((node, at))
        live = [name for name in node.input if name and name not in found.constant]
        if not live:
            found.constant.update(node.output)
        elif node.op_type not in WEIGHTS and all(name in found.raw for name in live):
            found.raw.update(node.output)
    return found


def _used(name: str, reading: _Reading, table: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether the value is such an input of some node, directly or through an Identity."""
    for node, at in reading.readers.get(name, ()):
        if at in table.get(node.op_type, ()):
            return True
        if node.op_type == "Identity" and _used(node.output[0], reading, table):
            return True
    return False


def _is_weight(name: str, size: int, reading: _Reading) -> bool:
    return _used(name, reading, WEIGHTS) or any(
        _takes_weight(node, name, size, reading) for node, _ in reading.readers.get(name, ())
    )


def _takes_weight(node: Any, name: str, size: int, reading: _Reading) -> bool:
    """Whether a node that moves values or calculates with them makes a weight of that input."""
    others = [i for i in node.input if i and i != name and i not in reading.constant]
    if not others:  # it moves or changes a constant, which may go on to a layer
        moved = node.op_type in MOVES or node.op_type in ARITHMETIC
        return moved and any(_is_weight(out, size, reading) for out in node.output)
    if node.op_type == "Concat":  # a token set beside what was computed
        return True
    return node.op_type in ARITHMETIC and size > 1 and not all(other in reading.raw for other in others)


def _size(tensor: Any) -> int:
    size = 1
    for length in tensor.dims:
        size *= length
    return size
