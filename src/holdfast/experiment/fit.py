"""One value of an experiment against its slot: the value as it is wanted, or what was expected instead."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from holdfast.core.errors import InputError
from holdfast.experiment.slots import MOST, Slot

FEW = 12  # names that are all listed in an error


class Unfit(ValueError):
    """A value that cannot be taken; the message says what was expected, `where` is its place in a list."""

    def __init__(self, told: str, where: int | None = None) -> None:
        super().__init__(told)
        self.where = where


def fit(slot: Slot, value: Any, folder: Path) -> Any:
    """The value as the slot wants it; Unfit if it cannot be."""
    if not slot.many:
        return _one(slot, value, folder)
    if not isinstance(value, list):
        return (_one(slot, value, folder),)
    if not value:
        raise Unfit("expected at least one value, got an empty list; leave it out instead")
    found: list[Any] = []
    for place, item in enumerate(value):
        try:
            found.append(_one(slot, item, folder))
        except Unfit as problem:
            raise Unfit(str(problem), place) from None
        if found[-1] in found[:-1]:
            raise Unfit(f"{item!r} is in the list twice", place)
    return tuple(found)


def _one(slot: Slot, value: Any, folder: Path) -> Any:
    right = type(value) is slot.kind or (slot.kind is float and type(value) is int)
    if not right:
        raise Unfit(f"expected {described(slot)}, got {shown(value)}")
    if slot.kind in (int, float):
        return _number(slot, value)
    if slot.kind is dict:
        return _names(slot, value)
    if slot.kind is bool:
        return value
    return _text(slot, value, folder)


def _number(slot: Slot, value: float) -> float:
    least, most = bounds(slot)
    low, high = -math.inf if least is None else least, math.inf if most is None else most
    if not math.isfinite(value) or not low <= value <= high:
        raise Unfit(f"expected {described(slot)}, got {shown(value)}")
    return value if slot.kind is int else float(value)


def _names(slot: Slot, value: dict[str, Any]) -> dict[str, str]:
    for key, name in value.items():
        if not isinstance(name, str) or not name or not key:
            raise Unfit(f"expected {described(slot)}, got {key!r} = {shown(name)}")
    return value


def _text(slot: Slot, value: str, folder: Path) -> Any:
    if not value.strip() or not value.isprintable():
        raise Unfit(f"expected {described(slot)}, got {shown(value)}")
    allowed = slot.allowed()
    if allowed and value not in allowed:
        raise Unfit(refused(value, allowed))
    if slot.takes.form and not re.fullmatch(slot.takes.form, value):
        raise Unfit(f"expected {described(slot)}, got {shown(value)}")
    told = slot.takes.check(value) if slot.takes.check else ""
    if told:
        raise Unfit(told)
    if slot.takes.place == "model":
        return _model(value, folder)
    if slot.takes.place == "data":
        return _data(value, folder)
    if slot.takes.place == "file":
        return _file(value, folder)
    return value


def _model(value: str, folder: Path) -> str:
    from holdfast.graph.load import shipped

    path = folder / value
    if path.is_file():
        return str(path)
    if value in shipped():
        return value
    if path.is_dir():
        raise Unfit(f"expected an ONNX file, got the folder {value!r}")
    raise Unfit(_gone(value, folder, "an ONNX file or a shipped model", shipped()))


def _data(value: str, folder: Path) -> str:
    from holdfast.data.embedded import embedded_dataset, is_embedded

    if not is_embedded(value) or (folder / value).exists():
        if not (folder / value).exists():
            known = ("signs", "far")
            raise Unfit(_gone(value, folder, "a folder or file of data, or signs:SEED:COUNT", known))
        return str(folder / value)
    try:
        embedded_dataset(value, None, 1)
    except InputError as problem:
        raise Unfit(str(problem)) from None
    return value


def _file(value: str, folder: Path) -> Path:
    path = folder / value
    if path.is_dir():
        raise Unfit(f"expected a file, got the folder {value!r}")
    if not path.is_file():
        raise Unfit(_gone(value, folder, "a file", ()))
    return path


def _gone(value: str, folder: Path, wanted: str, known: Iterable[str]) -> str:
    """What to say of a path with nothing there: the nearest names beside it or among the known."""
    path = folder / value
    try:
        beside = [str(Path(value).parent / p.name) for p in path.parent.iterdir()]
    except OSError:
        beside = []
    near = difflib.get_close_matches(value, [*known, *beside], n=1, cutoff=0.6)
    hint = f"; did you mean {near[0]!r}?" if near else f"; paths begin at {folder}"
    return f"expected {wanted}, got {value!r}, which is not there{hint}"


def bounds(slot: Slot) -> tuple[float | None, float | None]:
    """The least and the most a number may be."""
    most = slot.takes.most
    return slot.takes.least, MOST if most is None and slot.kind is int else most


def described(slot: Slot) -> str:
    """What the slot takes, in words."""
    if slot.kind in (int, float):
        least, most = bounds(slot)
        whole = "a whole number" if slot.kind is int else "a number"
        top = "" if most in (None, MOST) else f" to {most}" if least is not None else f" up to {most}"
        return whole + ("" if least is None else f" from {least}") + top
    allowed = slot.allowed()
    if 0 < len(allowed) <= FEW:
        return _listed(allowed)
    words = {bool: "true or false", dict: 'names by names such as { stop = "stop sign" }'}
    example = f" such as {slot.takes.example!r}" if slot.takes.example else ""
    return words.get(slot.kind, f"a text{example}")


def refused(value: str, allowed: Sequence[str]) -> str:
    """What to say of a name that is none of the allowed ones: these, or the nearest of many.

    Of names like family=option, first the families are told, then the options of the one that was named.
    """
    before, sign, _ = value.partition("=")
    within = [name for name in allowed if name.startswith(f"{before}=")] if sign else []
    families = tuple(dict.fromkeys(name.partition("=")[0] for name in allowed))
    if within:
        allowed = within
    elif sign and len(families) < len(allowed):
        near = _nearest(before, families)
        return f"expected one of {_listed(families)} before the '=', got {value!r}{near}"
    near = _nearest(value, allowed)
    if len(allowed) > FEW and near:
        return f"expected one of {len(allowed)} names, got {value!r}{near}"
    if len(allowed) > FEW and not sign and len(families) < len(allowed):
        return f"expected NAME=OPTION with a name of {_listed(families)}, got {value!r}"
    return f"expected {_listed(allowed)}, got {value!r}{near}"


def unknown(key: str, known: Iterable[str]) -> str:
    """What to say of a key that is not known."""
    names = list(known)
    near = difflib.get_close_matches(key, names, n=1, cutoff=0.6)
    return f"unknown key; {f'did you mean {near[0]!r}?' if near else f'expected {_listed(names)}'}"


def _nearest(value: str, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(value, names, n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else ""


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def shown(value: Any) -> str:
    """The value as a message shows it, cut if long."""
    if isinstance(value, str) and not value.strip():
        return "an empty text"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = value.isoformat() if hasattr(value, "isoformat") else repr(value)  # a date or a time
    return text if len(text) <= 60 else text[:57] + "..."
