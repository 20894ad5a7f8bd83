"""The arrays of a PyTorch checkpoint, read without PyTorch and without running anything that is in it.

Both of its forms are read: the zip of PyTorch 1.6 and later, and the older row of pickles. The pickles in
them may name tensors, their storages and an ordered dictionary; any other name ends the reading.
"""

from __future__ import annotations

import io
import pickle  # only through _Reader, which resolves a handful of names and no others
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.core.errors import ModelError
from holdfast.core.types import Tensor

_TYPES = {
    "FloatStorage": "<f4", "DoubleStorage": "<f8", "HalfStorage": "<f2",
    "LongStorage": "<i8", "IntStorage": "<i4", "ByteStorage": "|u1",
}  # fmt: skip
_MAGIC = 0x1950A86A20F9469CFC6C  # what the older form begins with


@dataclass(frozen=True)
class _Storage:
    key: str
    dtype: np.dtype[Any]


@dataclass(frozen=True)
class _Lazy:
    """A tensor before its storage has been read: where it begins, its shape and its steps in elements."""

    storage: _Storage
    start: int
    shape: tuple[int, ...]
    steps: tuple[int, ...]

    def read(self, data: bytes) -> Tensor:
        """The tensor as an array of its own; ValueError if it reaches out of its storage."""
        flat = np.frombuffer(data, self.storage.dtype)
        last = self.start + sum((n - 1) * step for n, step in zip(self.shape, self.steps, strict=True))
        if min(self.start, *self.steps, 0) < 0 or (0 not in self.shape and last >= len(flat)):
            raise ValueError("a tensor reaches out of its storage")
        steps = tuple(step * flat.itemsize for step in self.steps)
        return np.lib.stride_tricks.as_strided(flat[self.start :], self.shape, steps).copy()


class _Reader(pickle.Unpickler):
    """An unpickler that knows tensors, storages and ordered dictionaries, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _tensor
        if (module, name) == ("torch._utils", "_rebuild_parameter"):
            return lambda data, *_: data
        if module == "torch" and name in _TYPES:
            return np.dtype(_TYPES[name])
        raise pickle.UnpicklingError(f"it names {module}.{name}")

    def persistent_load(self, pid: Any) -> _Storage:
        kind, dtype, key, *_ = pid
        if kind != "storage" or not isinstance(dtype, np.dtype):
            raise pickle.UnpicklingError(f"it names a {kind} that is no storage")
        return _Storage(str(key), dtype)


def _tensor(storage: _Storage, start: int, shape: Any, steps: Any, *_: Any) -> _Lazy:
    return _Lazy(storage, int(start), tuple(map(int, shape)), tuple(map(int, steps)))


def read_checkpoint(data: bytes, what: str) -> dict[str, Tensor]:
    """Name -> array of a state dictionary saved by PyTorch; ModelError of one line if it is none."""
    try:
        zipped = zipfile.is_zipfile(io.BytesIO(data))
        found, storage = _zipped(data) if zipped else _plain(data)
        if not isinstance(found, Mapping):
            raise TypeError(f"it holds a {type(found).__name__}, not a dictionary")
        made: dict[str, Tensor] = {}
        for name, value in found.items():
            if not isinstance(value, _Lazy):
                raise TypeError(f"{name!r} is no tensor")
            made[str(name)] = value.read(storage(value.storage))
        return made
    except Exception as problem:  # pickle raises whatever a broken file makes it stumble over
        raise ModelError(f"{what}: not a state dictionary saved by PyTorch: {problem}") from problem


def _zipped(data: bytes) -> tuple[Any, Callable[[_Storage], bytes]]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        (main,) = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        root = main.removesuffix("data.pkl")
        found = _Reader(io.BytesIO(archive.read(main))).load()
        parts = {
            name.removeprefix(f"{root}data/"): archive.read(name)
            for name in archive.namelist()
            if name.startswith(f"{root}data/")
        }
    return found, lambda storage: parts[storage.key]


def _plain(data: bytes) -> tuple[Any, Callable[[_Storage], bytes]]:
    stream = io.BytesIO(data)
    if _Reader(stream).load() != _MAGIC:
        raise ValueError("it does not begin as one")
    for _ in ("protocol", "system"):
        _Reader(stream).load()
    kinds: dict[str, np.dtype[Any]] = {}

    class Noting(_Reader):
        def persistent_load(self, pid: Any) -> _Storage:
            made = super().persistent_load(pid)
            kinds[made.key] = made.dtype
            return made

    found = Noting(stream).load()
    parts: dict[str, bytes] = {}
    for key in _Reader(stream).load():
        length = int.from_bytes(stream.read(8), "little")
        parts[str(key)] = stream.read(length * kinds[str(key)].itemsize)
    return found, lambda storage: parts[storage.key]
