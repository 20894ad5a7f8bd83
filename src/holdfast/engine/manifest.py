"""Results saved as JSON manifests and opened again, and the names of their folders."""

import dataclasses
import types
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Generic, TypeVar, Union, get_args, get_origin, get_type_hints

import orjson

from holdfast.core import fingerprint
from holdfast.core import result as results
from holdfast.core.errors import InputError
from holdfast.engine.store import to_json, write_atomic

Result = TypeVar("Result")
CONTENT = 2  # what manifests hold; a higher number for another content
LONGEST_NAME = 150  # bytes of a folder's name; file systems allow 255


@dataclass(frozen=True)
class Manifest(Generic[Result]):
    """How one type of result is saved: the name of the file, the kind it states, and the dataclass.

    `what` is the result in words, for error messages: "an audit".
    """

    file: str
    kind: str
    type: type[Result]
    what: str

    def to_plain(self, result: Result) -> dict[str, Any]:
        """The result as JSON values."""
        return {"holdfast": CONTENT, "kind": self.kind, **to_plain(result)}

    def save(self, result: Result, folder: Path) -> Path:
        """Write the manifest into a folder; return its path."""
        path = folder / self.file
        write_atomic(path, to_json(self.to_plain(result), indent=True))
        return path

    def open(self, path: Path) -> Result:
        """The result in a folder or manifest; InputError if there is none of this kind."""
        file = path / self.file if path.is_dir() else path
        try:
            plain = orjson.loads(file.read_bytes())
            if plain["holdfast"] != CONTENT or plain["kind"] != self.kind:
                raise ValueError(f"kind {plain['kind']!r} of content {plain['holdfast']!r}")
            result: Result = from_plain(self.type, plain)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
            text = f"{file}: expected the {self.file} of {self.what}, got: {problem}"
            raise InputError(text) from problem
        if isinstance(result, results.Result):
            results.in_folder(result, file.resolve().parent)
        return result


def to_plain(value: Any) -> Any:
    """Dataclasses as dictionaries, tuples as lists, paths as text, all the way down."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: to_plain(inside) for key, inside in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(inside) for inside in value]
    return str(value) if isinstance(value, Path) else value


def from_plain(hint: Any, value: Any) -> Any:
    """The value that `to_plain` was given, by its type. Unknown keys are ignored."""
    if value is None:
        return None
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return from_plain(next(part for part in arguments if part is not type(None)), value)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        hints = get_type_hints(hint)
        names = [f.name for f in dataclasses.fields(hint) if f.name in value]
        return hint(**{name: from_plain(hints[name], value[name]) for name in names})
    if origin is tuple:
        if len(arguments) == 2 and arguments[1] is ...:
            return tuple(from_plain(arguments[0], inside) for inside in value)
        return tuple(from_plain(part, inside) for part, inside in zip(arguments, value, strict=True))
    if origin is dict:
        return {key: from_plain(arguments[1], inside) for key, inside in value.items()}
    return Path(value) if hint is Path else value


def slug(name: str) -> str:
    """A name as part of a path: letters, digits, dots, dashes, underscores; a long one ends with a hash."""
    plain = "".join(c if c.isalnum() or c in "-_." else "-" for c in name)
    if len(plain.encode()) <= LONGEST_NAME:
        return plain
    return f"{plain.encode()[:LONGEST_NAME].decode(errors='ignore')}-{fingerprint.of(name)[:12]}"


def folder_of(runs: Path, name: str, identity: Any) -> Path:
    """The folder of a result: by its name, and a hash of what tells it apart from others of that name."""
    return runs / f"{slug(name)}-{fingerprint.of([name, identity])[:6]}"


def now() -> str:
    """The current time, ISO 8601, UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")
