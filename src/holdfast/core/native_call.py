"""How compiled kernels are declared and called: a line for each, and one packed argument.

    resample.down(uint8[:,:], int64[:], int32[:,:], out int32[:], out uint8[:,:])

is the function `down` of the module `resample`. An array has numpy's name of its elements and a colon for
each dimension; it is C-contiguous, and one marked `out` is written to. Scalars are int64, float64 or float32,
`float64*` is the address of some memory, and `-> int64` at the end tells of a number that comes back.

The native function gets the address of a row of 8-byte words: of each array where it begins and its shape,
of each scalar its value. One argument takes ctypes a fraction of the time that fifteen do.
"""

from __future__ import annotations

import ctypes
import re
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.core.errors import InputError

_WHOLE = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
KINDS = ("bool", *_WHOLE, "float32", "float64")
_SCALARS = {"int64": "q", "float64": "d", "float32": "f4x"}
_LINE = re.compile(r"(\w+(?:\.\w+)*)\.(\w+)\((.*)\)( -> int64)?")
_ARGUMENT = re.compile(r"(out )?(\w+)(\[:(?:, ?:)*\]|\*)?(?:, *|$)")
_CONTIGUOUS, _ALIGNED, _WRITEABLE = 0x1, 0x100, 0x400  # as numpy numbers them


@dataclass(frozen=True)
class Argument:
    """One argument: an array of some dimensions, an address, or else a scalar."""

    kind: str  # numpy's name of a number
    dimensions: int = 0
    out: bool = False
    address: bool = False

    @property
    def layout(self) -> str:
        """How its words are packed, by the letters of `struct`."""
        return _SCALARS[self.kind] if self.words == 1 and not self.address else "q" * self.words

    @property
    def words(self) -> int:
        """How many words it takes: an address and a shape, or one value."""
        return 1 + self.dimensions

    @property
    def flags(self) -> int:
        """What numpy must say of the array."""
        return _CONTIGUOUS | _ALIGNED | (_WRITEABLE if self.out else 0)

    def __str__(self) -> str:
        return ("out " if self.out else "") + _written(self.kind, self.dimensions) + "*" * self.address


@dataclass(frozen=True)
class Signature:
    """What a line declares."""

    module: str
    function: str
    arguments: tuple[Argument, ...]
    returns: bool

    def __str__(self) -> str:
        given = ", ".join(map(str, self.arguments))
        return f"{self.module}.{self.function}({given})" + " -> int64" * self.returns


def signature(line: str) -> Signature:
    """What the line declares; an InputError if it cannot be read."""
    told = _LINE.fullmatch(line)
    if told is None:
        raise InputError(f"expected a kernel such as 'module.function(float32[:,:], int64)', got {line!r}")
    module, function, inner, returns = told.groups()
    arguments, at = [], 0
    while at < len(inner):
        found = _ARGUMENT.match(inner, at)
        if found is None:
            raise InputError(
                f"expected arguments such as 'out uint8[:,:]' or 'int64', got {inner[at:]!r} in {line}"
            )
        arguments.append(_argument(line, *found.groups()))
        at = found.end()
    return Signature(module, function, tuple(arguments), returns is not None)


def _argument(line: str, out: str | None, kind: str, after: str | None) -> Argument:
    """One argument of the line; an InputError if there is none such."""
    array = after is not None and after != "*"
    if kind not in (_SCALARS if after is None else KINDS) or (out and not array):
        known = KINDS if array else (*_SCALARS, "an array")
        raise InputError(f"expected one of {', '.join(known)}, got {out or ''}{kind}{after or ''} in {line}")
    return Argument(kind, (after or "").count(":"), out is not None, after == "*")


def _written(kind: object, dimensions: int) -> str:
    return f"{kind}[{','.join(':' * dimensions)}]" if dimensions else str(kind)


def _readable() -> bool:
    """Whether an array object's first own field says where its numbers are.

    Everything compiled against numpy takes that for granted. To read it takes a seventh of the time of
    `ctypes.data`, which is used should the field hold something else.
    """
    if sys.implementation.name != "cpython":
        return False
    some = np.zeros((2, 3))
    return all(_field(id(array) + _HEAD).value == array.ctypes.data for array in (some, some[1:, 1:]))


_field, _HEAD = ctypes.c_ssize_t.from_address, object.__basicsize__
_READABLE = _readable()
_ARRAY = np.ndarray
Native = Callable[[bytes], Any]


class Entry:
    """A kernel as Python calls it; its code is loaded, or compiled, when it is first called.

    `engine` is LLVM's: the code lives as long as it does.
    """

    def __init__(self, name: str, told: Signature, load: Callable[[], tuple[Any, Native]]) -> None:
        self.name, self.signature, self._load = name, told, load
        self.engine: Any = None
        self._native: Native | None = None
        self._pack = struct.Struct("=" + "".join(argument.layout for argument in told.arguments)).pack
        self._wanted = [
            (np.dtype(a.kind) if a.dimensions else None, a.dimensions, a.flags) for a in told.arguments
        ]

    def __call__(self, *given: Any) -> Any:
        """The number the kernel returns, or None; a TypeError if the arguments are not as declared."""
        native = self._native or self._ready()
        if len(given) != len(self._wanted):
            raise TypeError(f"{self.name}: expected {len(self._wanted)} arguments, got {len(given)}")
        words: list[Any] = []
        for value, (kind, dimensions, flags) in zip(given, self._wanted, strict=True):
            if kind is None:
                words.append(value)
                continue
            if (
                not isinstance(value, _ARRAY)
                or value.dtype != kind
                or value.ndim != dimensions
                or value.flags.num & flags != flags
            ):
                raise TypeError(self._complaint(given))
            words.append(_field(id(value) + _HEAD).value if _READABLE else value.ctypes.data)
            words.extend(value.shape)
        try:
            packed = self._pack(*words)
        except (struct.error, TypeError, OverflowError) as wrong:
            raise TypeError(self._complaint(given)) from wrong
        return native(packed)

    def loaded(self) -> Entry:
        """The kernel itself, its code loaded now and not when it is first called."""
        self._ready()
        return self

    def _ready(self) -> Native:
        """The native function."""
        if self._native is None:
            self.engine, self._native = self._load()
        return self._native

    def _complaint(self, given: tuple[Any, ...]) -> str:
        """What is wrong with the first argument that is not as declared."""
        for number, (value, argument) in enumerate(zip(given, self.signature.arguments, strict=True), 1):
            wrong = _wrong(value, argument)
            if wrong:
                return f"{self.name}: argument {number}: expected {wrong}"
        return f"{self.name}: the arguments do not fit {self.signature}"


def _wrong(value: Any, wanted: Argument) -> str:
    """What was expected and what was got; empty if the value is as declared."""
    if not wanted.dimensions:
        try:
            struct.pack("=" + wanted.layout, value)
        except (struct.error, TypeError, OverflowError):
            return f"{'an address' if wanted.address else wanted.kind}, got {value!r:.60}"
        return ""
    array = f"array {_written(wanted.kind, wanted.dimensions)}"
    if not isinstance(value, np.ndarray):
        return f"an {array}, got {type(value).__name__}"
    if value.dtype != np.dtype(wanted.kind) or value.ndim != wanted.dimensions:
        return f"an {array}, got {_written(value.dtype, value.ndim)}"
    flags = value.flags
    for there, name in (
        (flags.c_contiguous, "a C-contiguous"),
        (flags.aligned, "an aligned"),
        (flags.writeable or not wanted.out, "a writeable"),
    ):
        if not there:
            return f"{name} {array}, got one that is not"
    return ""
