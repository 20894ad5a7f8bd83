"""The form that starts an audit, the allowed paths below the root, and the command that runs it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath

from holdfast.audit.gates import check, gate_of
from holdfast.audit.options import AuditedOptions, AuditOptions
from holdfast.config.form import Input, inputs_of, values_of
from holdfast.config.options import fields_of
from holdfast.config.parser import command_words
from holdfast.core.errors import InputError
from holdfast.core.processes import python
from holdfast.data.embedded import NAMES
from holdfast.graph.load import shipped

DATA_FILES = (".csv", ".json", ".yaml", ".yml")  # files that may be datasets: annotations, descriptions
SHOWN = 500  # names of one folder
UPLOADED = "upload:"  # before the name of an uploaded model
_EMBEDDED = re.compile(rf"({'|'.join(NAMES)})(:[0-9]{{1,9}}){{0,2}}")
MOST_LINES = 50
MAIN = ("model", "data", "budget", "fail_if")
# The form does not accept files other than model and data: it reads nothing outside the root.
MORE = tuple(
    spec.name
    for spec in fields_of(AuditedOptions)
    if spec.kind is not Path and not spec.option.refers_to and spec.name not in MAIN
)
FIRST = {"model": "signs-yolo", "data": "signs"}  # the initial values of the form


@dataclass(frozen=True)
class Item:
    """A file or folder below the root: its name, its path from the root, and its possible uses."""

    name: str
    path: str
    folder: bool
    model: bool
    data: bool


@dataclass(frozen=True)
class Listing:
    """A folder below the root: its parents (name, path), its items, and the number of items not shown."""

    path: str
    above: tuple[tuple[str, str], ...]
    items: tuple[Item, ...]
    more: int


def inside(root: Path, text: str) -> Path:
    """The resolved path `text` below `root`. Raise InputError if it is outside the root or does not exist.

    Both cases get the same message, so that requests cannot probe files outside the root.
    """
    error = InputError(
        f"{text[:200]!r}: no such file or folder below the root; give a relative path without .."
    )
    if len(text) > 4096 or "\0" in text or "\\" in text or text.startswith("/"):
        raise error
    if PureWindowsPath(text).drive or ".." in text.split("/"):
        raise error
    base = root.resolve()
    try:
        path = (base / text).resolve(strict=True)
    except (OSError, RuntimeError, ValueError):  # missing, a cycle of links, invalid bytes
        raise error from None
    if not path.is_relative_to(base):
        raise error
    return path


def listing(root: Path, text: str) -> Listing:
    """The possible models and datasets in a folder below the root; hidden names are skipped."""
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
    """The item of one name; None if it is hidden, unusable, outside the root, or not valid in an address."""
    path = f"{prefix}/{name}" if prefix else name
    try:
        path.encode()
        if name.startswith("."):
            return None
        resolved = inside(root, path)
        folder = resolved.is_dir()
    except (InputError, OSError, UnicodeEncodeError):
        return None
    ending = name[name.rfind(".") :].lower() if "." in name else ""
    model, data = not folder and ending == ".onnx", folder or ending in DATA_FILES
    return Item(name, path, folder, model, data) if model or data else None


@dataclass(frozen=True)
class Places:
    """The folders that requests may access."""

    root: Path
    runs: Path

    @property
    def uploads(self) -> Path:
        """The folder of uploaded files."""
        return self.runs / "uploads"

    @property
    def started(self) -> Path:
        """The folder with the output of each audit started from the page."""
        return self.runs / "started"


def form_inputs(values: Mapping[str, str]) -> tuple[list[Input], list[Input]]:
    """The inputs that are always shown, and the others, filled with values."""
    return inputs_of(AuditOptions, MAIN, values), inputs_of(AuditOptions, MORE, values)


def known_values(given: Mapping[str, str]) -> dict[str, str]:
    """The non-empty values of the form's inputs."""
    keys = {field.name for group in form_inputs({}) for field in group}
    return {key: value for key, value in given.items() if key in keys and value.strip()}


def options_of(values: Mapping[str, str], places: Places, page: Path) -> AuditOptions:
    """The options of an audit; raise InputError if a value is missing, outside the root, or invalid."""
    for key, text in values.items():
        lines = text.splitlines()
        if len(lines) > MOST_LINES:
            raise InputError(f"{key}: expected at most {MOST_LINES} lines, got {len(lines)}")
        if not all(line.isprintable() for line in lines):
            raise InputError(f"{key}: expected lines of printable text")
    model, data = _model_path(values.get("model", "").strip(), places), values.get("data", "").strip()
    if not data:
        raise InputError("data: expected `signs` or a dataset below the root, got nothing")
    subject = {"model": model, "data": data if _EMBEDDED.fullmatch(data) else str(inside(places.root, data))}
    parsed = values_of(AuditOptions, (*MAIN, *MORE), {**values, **subject})
    check([gate_of(line, "gates") for line in parsed.get("fail_if", ())])
    return AuditOptions(**{**parsed, **subject}, runs=places.runs.resolve(), out=page)


def command_of(options: AuditOptions) -> list[str]:
    """The audit as a list of arguments: without a shell, and no value of the form can become an option."""
    return python("-m", "holdfast", *command_words(options))


def _model_path(text: str, places: Places) -> str:
    if not text:
        raise InputError("model: expected a shipped model or an .onnx file below the root, got nothing")
    if text in shipped():
        return text
    base = places.root
    if text.startswith(UPLOADED):
        base, text = places.uploads, text.removeprefix(UPLOADED)
    path = inside(base, text)
    if path.suffix.lower() != ".onnx" or not path.is_file():
        raise InputError(f"model {text[:200]!r}: expected an .onnx file")
    return str(path)
