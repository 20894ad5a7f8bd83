"""Content hashes: of files, of plain values, of functions. Equal content, equal name, everywhere."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np


def of_bytes(data: bytes) -> str:
    """The sha256 of some bytes, in hex."""
    return hashlib.sha256(data).hexdigest()


def of_file(path: Path) -> str:
    """The sha256 of a file's content, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def of_function(function: Callable[..., Any]) -> str:
    """A name for a function that changes when its source does."""
    if isinstance(function, functools.partial):
        return f"{of_function(function.func)}({canonical([function.args, function.keywords])})"
    if not hasattr(function, "__qualname__"):  # a callable object: its class and its fields
        return f"{of_function(type(function))}{canonical(vars(function))}"
    name = f"{function.__module__}.{function.__qualname__}"
    try:
        body = inspect.getsource(function)
    except (OSError, TypeError):
        code = getattr(function, "__code__", None)
        body = code.co_code.hex() if code else repr(function)
    return f"{name}:{of_bytes(body.encode())[:16]}"


def of(value: Any) -> str:
    """The sha256 of a plain value: number, string, list, mapping, dataclass, array, path or function."""
    return of_bytes(canonical(value).encode())


def canonical(value: Any) -> str:
    """A value as JSON with sorted keys, in which equal values read the same."""
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), allow_nan=True)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        return {"bytes": of_bytes(value)}
    if isinstance(value, np.ndarray):
        content = of_bytes(np.ascontiguousarray(value).tobytes())
        return {"array": content, "shape": list(value.shape), "dtype": str(value.dtype)}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Path):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, set | frozenset):
        return sorted(canonical(v) for v in value)
    if callable(value):
        return {"function": of_function(value)}
    raise TypeError(f"cannot fingerprint a {type(value).__name__}")
