"""What a table of an experiment takes, declared once in the fields of a frozen dataclass.

    pixels: Annotated[int, Takes("Changed pixels an image, at most.", least=1)] = 3000

From this come the check of the TOML, the words of its errors, and the JSON schema. A field without a default
must be given, a tuple takes one value or a list, a Literal is a choice; `_` is `-` in the file.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

MOST = 2**31 - 1  # of a whole number, unless a field says less


class Takes(NamedTuple):
    """About a field: what it is for, the bounds of a number, the names or the form of a text.

    `names` gives all that are known when asked; `place` says what a path must be of; `check` gives what is
    wrong with a text, or nothing.
    """

    about: str
    least: float | None = None
    most: float | None = None
    names: Callable[[], Iterable[str]] | None = None
    place: Literal["", "model", "data", "file"] = ""
    form: str = ""  # a regular expression of the whole text
    example: str = ""
    check: Callable[[str], str] | None = None


class Slot(NamedTuple):
    """One key of a table."""

    field: str
    kind: type  # str, int, float, bool, dict
    choices: tuple[str, ...]
    many: bool
    required: bool
    default: Any
    takes: Takes

    @property
    def key(self) -> str:
        """What it is called in the file."""
        return self.field.replace("_", "-")

    def allowed(self) -> tuple[str, ...]:
        """The texts it may be; empty: any."""
        return self.choices or (tuple(self.takes.names()) if self.takes.names else ())


def slots_of(shape: type[Any]) -> dict[str, Slot]:
    """The slots of a dataclass by key; fields that are not Annotated are not for files."""
    hints = get_type_hints(shape, include_extras=True)
    found = {}
    for one in dataclasses.fields(shape):
        hint = hints[one.name]
        if get_origin(hint) is not Annotated:
            continue
        kind, choices, many = _kind(hint.__origin__)
        bare = one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING
        default = None if one.default is dataclasses.MISSING else one.default
        slot = Slot(one.name, kind, choices, many, bare, default, hint.__metadata__[0])
        found[slot.key] = slot
    return found


def _kind(hint: Any) -> tuple[type, tuple[str, ...], bool]:
    """The type in the file, the choices, and whether there may be several."""
    origin, inside = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _kind(next(part for part in inside if part is not type(None)))
    if origin is Literal:
        return str, inside, False
    if origin is tuple:
        kind, choices, _ = _kind(inside[0])
        return kind, choices, True
    if origin is not None and issubclass(origin, Mapping):
        return dict, (), False
    return (str if hint is Path else hint), (), False
