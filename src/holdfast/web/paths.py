"""Paths a request may name: below the given root, or nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PureWindowsPath

from holdfast.core.errors import InputError

DATA_FILES = (".csv", ".json", ".yaml", ".yml")  # files that may be data sets: annotations, descriptions
SHOWN = 500  # names of one folder


@dataclass(frozen=True)
class Item:
    """A file or folder below the root: its name, its path from the root, and what it may be used as."""

    name: str
    path: str
    folder: bool
    model: bool
    data: bool


@dataclass(frozen=True)
class Listing:
    """A folder below the root: the folders above it (name, path), what is in it, how many are not shown."""

    path: str
    above: tuple[tuple[str, str], ...]
    items: tuple[Item, ...]
    more: int


def inside(root: Path, text: str) -> Path:
    """The existing path `text` names below `root`, links followed; InputError if it leads out or to nothing.

    What leads out and what is not there get the same answer, so that nobody can ask what lies outside.
    """
    refused = InputError(
        f"{text[:200]!r}: no such file or folder below the root; give its path from there, without .."
    )
    if len(text) > 4096 or "\0" in text or "\\" in text or text.startswith("/"):
        raise refused
    if PureWindowsPath(text).drive or ".." in text.split("/"):
        raise refused
    base = root.resolve()
    try:
        found = (base / text).resolve(strict=True)
    except (OSError, RuntimeError, ValueError):  # not there, a circle of links, bytes no path can have
        raise refused from None
    if not found.is_relative_to(base):
        raise refused
    return found


def listing(root: Path, text: str) -> Listing:
    """What a folder below the root holds that a model or a data set could be; hidden names are left out."""
    folder = inside(root, text)
    if not folder.is_dir():
        raise InputError(f"{text!r}: expected a folder, got a file")
    try:
        names = sorted((p.name for p in folder.iterdir()), key=str.casefold)
    except OSError as problem:
        raise InputError(f"{text!r}: cannot be listed: {problem.strerror}") from problem
    prefix = "/".join(p for p in text.split("/") if p not in ("", "."))
    items = [i for name in names if (i := _item(root, prefix, name)) is not None]
    items.sort(key=lambda i: (i.folder, not i.model))  # models, other files, folders
    parts = prefix.split("/") if prefix else []
    above = tuple((name, "/".join(parts[: n + 1])) for n, name in enumerate(parts))
    return Listing(prefix, above, tuple(items[:SHOWN]), max(0, len(items) - SHOWN))


def _item(root: Path, prefix: str, name: str) -> Item | None:
    """What one name is; None if it is hidden, of no use, leads out, or cannot be written in an address."""
    path = f"{prefix}/{name}" if prefix else name
    try:
        path.encode()
        if name.startswith("."):
            return None
        found = inside(root, path)
        folder = found.is_dir()
    except (InputError, OSError, UnicodeEncodeError):
        return None
    ending = name[name.rfind(".") :].lower() if "." in name else ""
    model, data = not folder and ending == ".onnx", folder or ending in DATA_FILES
    return Item(name, path, folder, model, data) if model or data else None
