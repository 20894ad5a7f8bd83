"""The images with the worst errors, as a grid of pictures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from markupsafe import Markup

from holdfast.core.types import Size
from holdfast.report.parts import Figure, Section, fragment
from holdfast.report.pictures import Mark, overlay, thumbnail

MOST = 12
Picture: TypeAlias = Callable[[str], bytes | None]  # the encoded bytes of an image by its record's name


@dataclass(frozen=True)
class Shot:
    """One image to show: its name and size, what is drawn on it, and what went wrong in words."""

    name: str
    size: Size
    marks: tuple[Mark, ...]
    summary: str


@dataclass(frozen=True)
class Worst:
    """The worst images, worst first, and the line that says what "worst" means."""

    definition: str
    shots: tuple[Shot, ...]


def gallery(worst: Worst, picture: Picture, budget: int) -> Section:
    """The section of the worst images; pictures that would exceed `budget` bytes are left blank."""
    tiles, kinds, left_out = [], set(), 0
    for shot in worst.shots[:MOST]:
        jpeg = thumbnail(picture(shot.name))
        cost = len(jpeg) * 4 // 3 if jpeg else 0
        if cost > budget:
            jpeg, left_out = None, left_out + 1
        else:
            budget -= cost
        kinds |= {mark.kind for mark in shot.marks}
        drawn = overlay(jpeg, shot.size, shot.marks, f"{shot.name}: {shot.summary}")
        tiles.append({"name": shot.name, "summary": shot.summary, "picture": Markup(drawn)})  # noqa: S704
    note = f"{left_out} pictures are left out to keep the page small." if left_out else ""
    body = fragment("gallery.html", tiles=tiles, kinds=kinds)
    return Section("worst", "Worst images", (Figure("", body, note, wide=True),), worst.definition)
