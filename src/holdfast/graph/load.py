"""Models by name or path: the shipped ones, or the user's file with its card or with a guess."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from holdfast.core.errors import ModelError, UnknownName
from holdfast.core.model import Model, found_file
from holdfast.graph.card import card_path, read_card
from holdfast.graph.check import check_card
from holdfast.graph.guess import guess
from holdfast.graph.inspect import inspect


def shipped() -> list[str]:
    """The names of the models that come with the package, sorted."""
    folder = _shipped_folder()
    return sorted(p.stem for p in folder.glob("*.onnx")) if folder.is_dir() else []


def _shipped_folder() -> Path:
    return Path(str(resources.files("holdfast"))) / "models"


def load_model(name_or_path: str | Path, card: Path | None = None) -> Model:
    """A shipped model by name, or the user's ONNX file with its card: given, found beside it, or guessed."""
    path = find_model(name_or_path)
    info = inspect(path)
    found = card or card_path(path)
    known, guessed = (read_card(found), ()) if found else guess(path)
    check_card(known, info)
    return Model(path.name.removesuffix(".gz").removesuffix(".onnx"), path, known, info.sha256, guessed)


def find_model(name_or_path: str | Path) -> Path:
    """The file of a shipped model or of the user's (or its .gz), or an error that names the nearest one."""
    path = Path(name_or_path)
    if file := found_file(path):
        return file
    if name_or_path in shipped():
        return _shipped_folder() / f"{name_or_path}.onnx"
    like_a_path = isinstance(name_or_path, Path) or path.suffix in (".onnx", ".gz") or len(path.parts) > 1
    if not like_a_path and not path.is_dir():
        raise UnknownName("model", str(name_or_path), shipped())
    what = "is a folder" if path.is_dir() else "no such model file"
    raise ModelError(f"{path}: {what}; give the path of an .onnx file or one of {', '.join(shipped())}")
