"""Values of a TOML table against the fields of an options class: names and paths must exist."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from holdfast.config.options import FieldSpec, InvalidValue, format_value, join_names, nearest, unknown_name
from holdfast.core.errors import InputError


def read_value(spec: FieldSpec, value: Any, folder: Path) -> Any:
    """The value of a key; raise InvalidValue if the field does not accept it. Paths begin at `folder`."""
    if not spec.many:
        return _read_one(spec, value, folder)
    if not isinstance(value, list):
        return (_read_one(spec, value, folder),)
    if not value:
        raise InvalidValue("expected at least one value, got an empty list; remove the key instead")
    values: list[Any] = []
    for place, item in enumerate(value):
        try:
            values.append(_read_one(spec, item, folder))
        except InvalidValue as problem:
            raise InvalidValue(str(problem), place) from None
        if values[-1] in values[:-1]:
            raise InvalidValue(f"{item!r} is listed twice", place)
    return tuple(values)


def _read_one(spec: FieldSpec, value: Any, folder: Path) -> Any:
    if spec.kind is dict and isinstance(value, dict):
        for key, name in value.items():
            if not isinstance(name, str) or not name or not key:
                raise InvalidValue(f"expected {spec.expected()}, got {key!r} = {format_value(name)}")
    infinite = isinstance(value, float) and not math.isfinite(value)
    blank = isinstance(value, str) and not (value.strip() and value.isprintable())
    if infinite or blank:
        raise InvalidValue(f"expected {spec.expected()}, got {format_value(value)}")
    checked = spec.check([value] if spec.many else value)
    if not isinstance(value, str):
        return checked[0] if spec.many else checked
    known = spec.names()
    if known and value not in known:
        raise InvalidValue(unknown_name(value, known))
    problem = spec.option.problem(value) if spec.option.problem else ""
    if problem:
        raise InvalidValue(problem)
    if spec.option.refers_to == "model":
        return _model(value, folder)
    if spec.option.refers_to == "data":
        return _data(value, folder)
    return _file(value, folder) if spec.kind is Path else value


def _model(value: str, folder: Path) -> str:
    from holdfast.graph.load import shipped

    path = folder / value
    if path.is_file():
        return str(path)
    if value in shipped():
        return value
    if path.is_dir():
        raise InvalidValue(f"expected an ONNX file, got the folder {value!r}")
    raise InvalidValue(_missing_path(value, folder, "an ONNX file or a shipped model", shipped()))


def _data(value: str, folder: Path) -> str:
    from holdfast.data.embedded import embedded_dataset, is_embedded

    if (folder / value).exists():
        return str(folder / value)
    if not is_embedded(value):
        expected = "a folder or file of data, or signs:SEED:COUNT"
        raise InvalidValue(_missing_path(value, folder, expected, ("signs", "far")))
    try:
        embedded_dataset(value, None, 1)
    except InputError as problem:
        raise InvalidValue(str(problem)) from None
    return value


def _file(value: str, folder: Path) -> Path:
    path = folder / value
    if path.is_dir():
        raise InvalidValue(f"expected a file, got the folder {value!r}")
    if not path.is_file():
        raise InvalidValue(_missing_path(value, folder, "a file", ()))
    return path


def _missing_path(value: str, folder: Path, expected: str, known: Iterable[str]) -> str:
    """The message for a path that does not exist, with the nearest name next to it or among the known."""
    path = folder / value
    try:
        siblings = [str(Path(value).parent / p.name) for p in path.parent.iterdir()]
    except OSError:
        siblings = []
    hint = nearest(value, [*known, *siblings], 0.6) or f"; paths are relative to {folder}"
    return f"expected {expected}, got {value!r}, which does not exist{hint}"


def unknown_key(key: str, known: Iterable[str]) -> str:
    """The message for a key that no field has."""
    names = list(known)
    return f"unknown key{nearest(key, names, 0.6) or f'; expected {join_names(names)}'}"
