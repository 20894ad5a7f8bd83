"""Model cards as TOML text, with the reason of every guess beside its field."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from holdfast.core.errors import OutputError
from holdfast.core.model import Card
from holdfast.graph.classes import BUILT_IN, numbered

WIDTH = 100  # lists longer than this are written over several lines


def write_card(card: Card, path: Path, guessed: Sequence[str] = ()) -> None:
    """Write the card as TOML, with the reasons of guesses as comments."""
    try:
        path.write_text(card_text(card, guessed), encoding="utf-8")
    except OSError as problem:
        raise OutputError(f"{path}: the card could not be written: {problem.strerror}") from problem


def card_text(card: Card, guessed: Sequence[str] = ()) -> str:
    """The card as TOML; a guess "colour: bgr, because ..." stands as a comment above its field."""
    reasons: dict[str, list[str]] = {}
    for line in guessed:
        field, _, why = line.partition(": ")
        reasons.setdefault(field, []).append(why or line)
    image = {f.name: getattr(card.input, f.name) for f in fields(card.input)}
    if card.input.policy != "letterbox":
        image = {k: v for k, v in image.items() if (k, v) not in (("pad", 114), ("place", "centre"))}
    sections: dict[str, Mapping[str, Any]] = {
        "": {"task": card.task, "classes": _classes(card.classes)},
        "input": {k: v for k, v in image.items() if v is not None},
        "head": {"name": card.head.name, **card.head.options},
        "thresholds": {k: getattr(card, k) for k in ("score", "nms_iou", "max_detections")},
        "trained_with": {"decode": card.decode, "resize": card.resize},
    }
    lines: list[str] = []
    for section, table in sections.items():
        lines += ["", f"[{section}]"] if section else []
        for key, value in table.items():
            known = "head" if (section, key) == ("head", "name") else key
            lines += [f"# guess: {why}" for why in reasons.pop(known, ())]
            lines.append(f"{_key(key)} = {toml(value, scale=key == 'scale')}")
    left = [f"# {field}: {why}" for field, whys in reasons.items() for why in whys]
    return "\n".join([*left, *lines]) + "\n"


def _classes(names: tuple[str, ...]) -> Any:
    """The shortest form a card can give the names in."""
    for name, known in BUILT_IN.items():
        if known == names:
            return name
    return len(names) if names == numbered(len(names)) else names


def _key(name: str) -> str:
    plain = all(c.isascii() and (c.isalnum() or c in "_-") for c in name)
    return name if plain and name else toml(name)


def toml(value: Any, scale: bool = False) -> str:
    """A plain value as TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if scale and value == 1 / 255:
        return '"1/255"'
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(str(k))} = {toml(v)}" for k, v in value.items()) + " }"
    if isinstance(value, Iterable):
        items = [toml(v) for v in value]
        flat = f"[{', '.join(items)}]"
        return flat if len(flat) <= WIDTH else "[\n" + "".join(f"  {i},\n" for i in items) + "]"
    raise TypeError(f"a card cannot hold a {type(value).__name__}")
