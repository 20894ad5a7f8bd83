"""ONNX files read and cut apart on the level of their bytes, without the onnx package.

Importing onnx takes a good part of the time in which a small question can be answered whole. What is read
here is what it takes to follow values through a graph; nodes and weights are kept as the bytes they are, so
that a part of a graph is written by putting those together.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import ModelError

# ONNX's numbers of element types, and how their raw bytes are read.
KINDS: Mapping[int, str] = {
    1: "<f4",
    2: "u1",
    3: "i1",
    4: "<u2",
    5: "<i2",
    6: "<i4",
    7: "<i8",
    9: "?",
    10: "<f2",
    11: "<f8",
    12: "<u4",
    13: "<u8",
}
# The fields of a tensor that hold values when raw_data does not, by element type: number, how packed.
_TYPED = {1: (4, "<f4"), 7: (7, ""), 11: (10, "<f8"), 12: (11, ""), 13: (11, "")}
_TYPED |= dict.fromkeys((2, 3, 4, 5, 6, 9), (5, ""))
_NUMBERS = {np.dtype(kind): number for number, kind in KINDS.items()}


@dataclass(frozen=True, eq=False)
class Port:
    """An input or output of a graph; a dimension is 0 where it is free."""

    name: str
    kind: int
    dims: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Weight:
    """A constant of the graph; its values are read when they are asked for, `outside` are in another file."""

    name: str
    dims: tuple[int, ...]
    outside: bool
    raw: bytes

    def value(self) -> NDArray[Any]:
        """The values as an array."""
        return _tensor(self.raw)


@dataclass(frozen=True, eq=False)
class WireNode:
    """A node; `nested` says that it has a graph of its own inside."""

    operator: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    nested: bool
    raw: bytes


@dataclass(frozen=True, eq=False)
class WireGraph:
    """What a file's main graph is made of; `around` are the file's other fields, as bytes."""

    nodes: tuple[WireNode, ...]
    weights: Mapping[str, Weight]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    opset: int
    around: bytes

    def __post_init__(self) -> None:
        if not self.nodes or not self.outputs or not self.opset:
            raise ModelError("expected an ONNX graph with nodes and outputs, got none")

    def needed(self, outputs: Iterable[str], given: Iterable[str] = ()) -> list[WireNode]:
        """The nodes on which these outputs depend, back to the given tensors, in order."""
        known = set(given)
        wanted, kept = set(outputs) - known, []
        for node in reversed(self.nodes):
            if wanted.intersection(node.outputs):
                kept.append(node)
                wanted.update(name for name in node.inputs if name not in known)
        return kept[::-1]


def read_graph(data: bytes) -> WireGraph:
    """The main graph of an ONNX file; ModelError if the bytes are none."""
    try:
        return _model(data)
    except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError, struct.error) as problem:
        raise ModelError(f"not an ONNX model, or one cut short: {problem}") from None


def _model(data: bytes) -> WireGraph:
    around, graph, opset = bytearray(), b"", 0
    for number, value, raw in _fields(data):
        if number == 7:
            graph = value
            continue
        if number == 8:
            parts = {n: v for n, v, _ in _fields(value)}
            if parts.get(1, b"") in (b"", b"ai.onnx"):
                opset = int(parts.get(2, 0))
        if number == 1:  # from IR version 4 on a weight need not be an input
            raw = b"\x08" + _number(max(value, 4))
        if number in (1, 8, 25):  # IR version, operator sets, functions
            around += raw
    found: dict[int, list[bytes]] = {}
    for number, value, _ in _fields(graph):
        found.setdefault(number, []).append(value)
    weights = {weight.name: weight for weight in map(_weight, found.get(5, []))}
    return WireGraph(
        tuple(_node(raw) for raw in found.get(1, [])),
        weights,
        tuple(port for port in map(_port, found.get(11, [])) if port.name not in weights),
        tuple(_port(raw) for raw in found.get(12, [])),
        opset,
        bytes(around),
    )


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _fields(data: bytes) -> Iterator[tuple[int, Any, bytes]]:
    """Every field of a message: its number, its value (a number, or bytes), and all its bytes."""
    at, end = 0, len(data)
    while at < end:
        begin = at
        tag, at = _varint(data, at)
        kind = tag & 7
        value: Any
        if kind == 0:
            value, at = _varint(data, at)
        elif kind == 2:
            size, at = _varint(data, at)
            value, at = data[at : at + size], at + size
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
            value, at = data[at : at + size], at + size
        else:
            raise ValueError(f"a field of kind {kind}")
        if at > end or not tag >> 3:
            raise ValueError("a field that ends behind its message")
        yield tag >> 3, value, data[begin:at]


def _whole(value: Any) -> list[int]:
    """The numbers of a repeated field, packed or one by one."""
    if isinstance(value, int):
        return [_signed(value)]
    numbers, at = [], 0
    while at < len(value):
        number, at = _varint(value, at)
        numbers.append(_signed(number))
    return numbers


def _node(raw: bytes) -> WireNode:
    texts: dict[int, list[str]] = {1: [], 2: [], 3: [""], 4: [""], 7: [""]}
    attributes, nested = {}, False
    for number, value, _ in _fields(raw):
        if number == 5:
            name, content, inside = _attribute(value)
            attributes[name] = content
            nested |= inside
        elif number in texts:
            texts[number].append(value.decode())
    names = tuple(texts[1]), tuple(texts[2])
    return WireNode(texts[4][-1], texts[7][-1], texts[3][-1], *names, attributes, nested, raw)


def _attribute(raw: bytes) -> tuple[str, Any, bool]:
    """The name, the value (None if it is of a kind not read here), and whether it is a graph."""
    name, kind, single, floats, ints = "", 0, dict[int, Any](), list[float](), list[int]()
    for number, value, _ in _fields(raw):
        if number == 1:
            name = value.decode()
        elif number == 20:
            kind = value
        elif number == 7:
            floats += np.frombuffer(value, "<f4").tolist()
        elif number == 8:
            ints += _whole(value)
        else:
            single[number] = value
    nested = kind in (5, 10) or 6 in single or 11 in single
    values: dict[int, Any] = {6: floats, 7: ints}
    if not kind:  # very old files do not say
        kind = next((k for k, at in ((1, 2), (2, 3), (3, 4), (4, 5)) if at in single), 6 if floats else 7)
    if kind == 1:
        values[1] = struct.unpack("<f", single.get(2, b"\0" * 4))[0]
    elif kind == 2:
        values[2] = _signed(single.get(3, 0))
    elif kind == 3:
        values[3] = single.get(4, b"").decode(errors="replace")
    elif kind == 4:
        with suppress(ModelError):
            values[4] = _tensor(single[5])
    return name, values.get(kind), nested


def _port(raw: bytes) -> Port:
    name, kind, dims = "", 0, list[int]()
    for number, value, _ in _fields(raw):
        if number == 1:
            name = value.decode()
        elif number == 2:
            kind, dims = _type(value)
    return Port(name, kind, tuple(dims))


def _type(raw: bytes) -> tuple[int, list[int]]:
    kind, dims = 0, list[int]()
    for outer, tensor, _ in _fields(raw):
        if outer != 1:
            continue
        for number, value, _ in _fields(tensor):
            if number == 1:
                kind = value
            elif number == 2:
                sizes = ({n: v for n, v, _ in _fields(dim)} for at, dim, _ in _fields(value) if at == 1)
                dims = [max(_signed(size.get(1, 0)), 0) for size in sizes]
    return kind, dims


def _weight(raw: bytes) -> Weight:
    name, dims, outside = "", list[int](), False
    for number, value, _ in _fields(raw):
        if number == 1:
            dims += _whole(value)
        elif number == 8:
            name = value.decode()
        elif number == 14:
            outside = bool(value)
    return Weight(name, tuple(dims), outside, raw)


def _tensor(raw: bytes) -> NDArray[Any]:
    """The values of a tensor message; ModelError if they lie in another file or are no numbers."""
    fields: dict[int, list[Any]] = {}
    for number, value, _ in _fields(raw):
        fields.setdefault(number, []).append(value)
    kind = fields.get(2, [0])[-1]
    dims = [size for value in fields.get(1, []) for size in _whole(value)]
    if kind not in KINDS or fields.get(14, [0])[-1]:
        raise ModelError(f"expected a tensor of numbers in the file, got kind {kind}")
    if 9 in fields:
        return np.frombuffer(fields[9][-1], KINDS[kind]).reshape(dims)
    if kind not in _TYPED:
        raise ModelError(f"expected values of kind {kind} as raw bytes")
    place, packed = _TYPED[kind]
    if packed:
        flat = np.frombuffer(b"".join(fields.get(place, [])), packed)
    else:
        flat = np.array([number for value in fields.get(place, []) for number in _whole(value)])
    return flat.astype(KINDS[kind]).reshape(dims)


def write_part(
    graph: WireGraph,
    given: Mapping[str, NDArray[Any]],
    outputs: Iterable[str],
    constants: Mapping[str, NDArray[Any]],
) -> bytes:
    """The ONNX file of the part from the `given` tensors (examples of them) to `outputs`, `constants` set."""
    names = list(outputs)
    nodes = graph.needed(names, given)
    read = {name for node in nodes for name in node.inputs} | set(names)
    parts = [_block(1, node.raw) for node in nodes]
    parts.append(_block(2, b"part"))
    parts += [_block(5, w.raw) for name, w in graph.weights.items() if name in read and name not in constants]
    parts += [_block(5, _constant(name, value)) for name, value in constants.items() if name in read]
    parts += [_block(11, _input(name, value)) for name, value in given.items() if name in read]
    parts += [_block(12, _block(1, name.encode())) for name in names]  # their types are inferred
    return graph.around + _block(7, b"".join(parts))


def _block(number: int, content: bytes) -> bytes:
    return _number(number << 3 | 2) + _number(len(content)) + content


def _number(value: int) -> bytes:
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def _constant(name: str, value: NDArray[Any]) -> bytes:
    dims = b"".join(b"\x08" + _number(size) for size in value.shape)
    kind = b"\x10" + _number(_NUMBERS[value.dtype])
    return dims + kind + _block(8, name.encode()) + _block(9, np.ascontiguousarray(value).tobytes())


def _input(name: str, value: NDArray[Any]) -> bytes:
    dims = b"".join(_block(1, b"\x08" + _number(size)) for size in value.shape)
    tensor = b"\x08" + _number(_NUMBERS[value.dtype]) + _block(2, dims)
    return _block(1, name.encode()) + _block(2, _block(1, tensor))
