"""Content hashes of files, plain values and functions, and random generators derived from names."""

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


def sealed(key: str, data: bytes) -> bytes:
    """The data prefixed with a checksum of key and data."""
    return f"{_checksum(key, data)}\n".encode() + data


def unsealed(key: str, content: bytes) -> bytes | None:
    """The data sealed under this key; None if it is damaged or has another key."""
    checksum, _, data = content.partition(b"\n")
    return data if checksum == _checksum(key, data).encode() else None


def _checksum(key: str, data: bytes) -> str:
    return of_bytes(b"%b\n%b" % (key.encode(), data))


def of_function(function: Callable[..., Any]) -> str:
    """A name for a function that changes with its source, its defaults and its bound values.

    The source of a function outside holdfast is its own and that of the whole file it is defined in. That of
    holdfast's own functions is in every key already (`core.sources`).
    """
    if isinstance(function, functools.partial):
        return f"{of_function(function.func)}({canonical([function.args, function.keywords])})"
    if not hasattr(function, "__qualname__"):  # a callable object: its class and its fields
        declared = getattr(function, "fingerprint", None)
        own = declared() if callable(declared) else _fields(function)
        return f"{of_function(type(function))}{canonical(own)}"
    # Worker processes import the user's script under another name.
    module = "__main__" if function.__module__ == "__mp_main__" else function.__module__
    bound = _bound(function)
    more = f":{of(bound)[:16]}" if bound else ""
    if module.startswith("holdfast."):
        return f"{module}.{function.__qualname__}{more}"
    plain = getattr(function, "__func__", function)
    try:
        body = _source(plain)
    except TypeError:  # not hashable, so it cannot be cached
        body = _source.__wrapped__(plain)
    return f"{module}.{function.__qualname__}:{of(body)[:16]}{more}"


@functools.lru_cache(maxsize=512)
def _source(function: Callable[..., Any]) -> list[str]:
    """The source of a function or class, or its compiled code, and the hash of its file if it has one."""
    try:
        file = Path(inspect.getsourcefile(function) or "")
        file_hash = of_file(file) if file.is_file() else ""
        return [inspect.getsource(function), file_hash]
    except (OSError, TypeError):
        return [_compiled(getattr(function, "__code__", None)) or repr(function)]


def _bound(function: Callable[..., Any]) -> list[Any]:
    """The bound values of a function: the object of a method, defaults, closure."""
    owner = getattr(function, "__self__", None)
    owned = [] if owner is None or inspect.ismodule(owner) else [owner]
    if hasattr(owner, "__dict__") and not is_dataclass(owner) and not isinstance(owner, type):
        owned = [vars(owner) for _ in owned]
    defaults = [getattr(function, name, None) for name in ("__defaults__", "__kwdefaults__")]
    cells = [c.cell_contents for c in getattr(function, "__closure__", None) or () if _is_filled(c)]
    own = [value for value in cells if value is not function]  # skip recursive references
    return [owned, defaults, own] if owned or own or any(defaults) else []


def _fields(value: Any) -> dict[str, Any]:
    return {f.name: getattr(value, f.name) for f in fields(value)} if is_dataclass(value) else vars(value)


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:  # a name that was not assigned yet
        return False
    return True


def _compiled(code: Any) -> str:
    """Compiled code as text, for functions whose source is not available; empty without code."""
    if code is None:
        return ""
    constants = [_compiled(c) if hasattr(c, "co_code") else repr(c) for c in code.co_consts]
    return f"{code.co_code.hex()}{constants}{code.co_names}"


def of(value: Any) -> str:
    """The sha256 of a plain value: number, string, list, mapping, dataclass, array, path or function."""
    return of_bytes(canonical(value).encode())


def canonical(value: Any) -> str:
    """A value as canonical JSON with sorted keys: equal values give equal text."""
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
    if is_dataclass(value) and not isinstance(value, type) and not callable(value):
        value = _fields(value)
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, set | frozenset):
        return sorted(canonical(v) for v in value)
    if callable(value):
        return {"function": of_function(value)}
    raise TypeError(f"cannot fingerprint a {type(value).__name__}")


def generator(seed: int, *names: object) -> np.random.Generator:
    """A random generator that depends only on the seed and the names."""
    text = "/".join(str(name) for name in names)
    words = np.frombuffer(hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest(), np.uint32)
    return np.random.default_rng(np.random.SeedSequence([seed, *words.tolist()]))
