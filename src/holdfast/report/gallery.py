"""Pictures with boxes drawn over them, and the grid of the images with the worst errors."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from markupsafe import Markup

from holdfast.core.errors import ImageError
from holdfast.core.types import Floats, Size
from holdfast.report.charts.svg import element, label, number, shortened, tip, width_of
from holdfast.report.html import data_uri
from holdfast.report.parts import Figure, Section, fragment

MOST = 12
FRAME = Size(640, 480)  # every picture is fitted into it, so that a gallery lines up
FILE_LIMIT = 140_000  # bytes of one thumbnail; a lower quality is taken until it fits
_QUALITIES = (82, 70, 55, 40, 25)
_TEXT = 15.0
_MOST_LABELS = 14  # with more of them only what is wrong keeps its label

Corners: TypeAlias = tuple[float, float, float, float]
MarkKind: TypeAlias = Literal["ignored", "truth", "right", "missed", "wrong", "mimic"]
_ORDER: tuple[MarkKind, ...] = ("ignored", "truth", "right", "missed", "wrong")
Picture: TypeAlias = Callable[[str], bytes | None]  # the encoded bytes of an image by its record's name


@dataclass(frozen=True)
class Mark:
    """A box in pixels of the image, what became of it, and its label (empty: none)."""

    xyxy: Corners
    kind: MarkKind
    text: str = ""

    @staticmethod
    def of(xyxy: Floats, kind: MarkKind, text: str = "") -> Mark:
        """The mark of a box given as an array, (4,)."""
        x1, y1, x2, y2 = xyxy.tolist()
        return Mark((x1, y1, x2, y2), kind, text)

    def drawn(self) -> str:
        """The box; a dark line below keeps its colour visible on any ground."""
        x1, y1, x2, y2 = self.xyxy
        place = {"x": x1, "y": y1, "width": max(x2 - x1, 0.5), "height": max(y2 - y1, 0.5)}
        name = tip(f"{self.kind}{f': {self.text}' if self.text else ''}")
        under = element("rect", class_="under", **place)
        return element("g", name, under, element("rect", class_=f"mark {self.kind}", **place))


@dataclass(frozen=True)
class GalleryImage:
    """One image to show: its name and size, what is drawn on it, and what went wrong in words."""

    name: str
    size: Size
    marks: tuple[Mark, ...]
    summary: str


@dataclass(frozen=True)
class WorstImages:
    """The worst images, worst first, and the line that says what "worst" means."""

    definition: str
    shots: tuple[GalleryImage, ...]


def gallery(worst: WorstImages, picture: Picture, budget: int) -> Section:
    """The section of the worst images; images that would exceed `budget` bytes are blank."""
    tiles, skipped = [], 0
    for shot in worst.shots[:MOST]:
        jpeg = thumbnail(picture(shot.name))
        cost = len(jpeg) * 4 // 3 if jpeg else 0
        if cost > budget:
            jpeg, skipped = None, skipped + 1
        else:
            budget -= cost
        drawn = overlay(jpeg, shot.size, shot.marks, f"{shot.name}: {shot.summary}")
        tiles.append({"name": shot.name, "summary": shot.summary, "picture": Markup(drawn)})  # noqa: S704
    note = f"{skipped} images are not shown to keep the page small." if skipped else ""
    kinds = {mark.kind for shot in worst.shots[:MOST] for mark in shot.marks}
    body = fragment("gallery.html", tiles=tiles, kinds=kinds)
    return Section("worst", "Worst images", (Figure("", body, note, wide=True),), worst.definition)


def thumbnail(data: bytes | None) -> bytes | None:
    """The picture as a JPEG that fits `FRAME`, or None if there is none or it cannot be decoded."""
    if data is None:
        return None
    from PIL import Image

    from holdfast.stages.decode.libjpeg import pillow

    try:
        picture = Image.fromarray(pillow(data))
    except ImageError:
        return None
    picture.thumbnail(FRAME)
    small = b""
    for quality in _QUALITIES:
        out = io.BytesIO()
        picture.save(out, format="JPEG", quality=quality, optimize=True)
        small = out.getvalue()
        if len(small) <= FILE_LIMIT:
            break
    return small


def overlay(jpeg: bytes | None, size: Size, marks: Sequence[Mark], title: str) -> str:
    """The picture of an image of that size with its marks drawn; without a picture, the marks alone."""
    scale = min(FRAME.width / max(size.width, 1), FRAME.height / max(size.height, 1))
    wide, tall = size.width * scale, size.height * scale
    left, top = (FRAME.width - wide) / 2, (FRAME.height - tall) / 2
    place = {"x": left, "y": top, "width": wide, "height": tall}
    if jpeg is not None:
        source = data_uri(jpeg, "image/jpeg")
        ground = element("image", href=source, preserveAspectRatio="none", **place)
    else:
        middle = label(FRAME.width / 2, FRAME.height / 2, "image not available", class_="absent middle")
        ground = element("rect", class_="nothing", **place) + middle
    placed = []
    for mark in sorted(marks, key=lambda mark: _ORDER.index(mark.kind)):  # what is wrong is drawn on top
        x1, y1, x2, y2 = mark.xyxy
        inside = (x1 * scale + left, y1 * scale + top, x2 * scale + left, y2 * scale + top)
        placed.append(replace(mark, xyxy=inside))
    frame = (0.0, 0.0, float(FRAME.width), float(FRAME.height))
    return marked_picture(title, frame, ground, placed, _labels(placed[::-1]), "picture")


def marked_picture(
    title: str, view: Corners, ground: str, marks: Sequence[Mark], labels: Sequence[str], kind: str
) -> str:
    """A picture (its markup is `ground`) with boxes and labels over it; `view` is x, y, width, height."""
    frame = " ".join(map(number, view))
    boxes = [mark.drawn() for mark in marks]
    return element("svg", tip(title), ground, *boxes, *labels, class_=kind, viewBox=frame, role="img")


def _labels(marks: Sequence[Mark]) -> list[str]:
    """A label for each box that has one and for which a free place is found; the others keep their tip."""
    taken, written = list[Corners](), []
    crowded = sum(bool(mark.text) for mark in marks) > _MOST_LABELS
    for mark in marks:
        if not mark.text or (crowded and mark.kind in ("right", "ignored")):
            continue
        text = shortened(mark.text, 26)
        wide = width_of(text, _TEXT * 1.18) + 6  # bold
        place = free_place(_candidates(mark.xyxy, wide), (wide, _TEXT), FRAME.height, taken)
        if place is not None:
            # anchored on the nearer side, so that a larger type does not push it out of the frame
            x, y = place
            far = x + wide / 2 > FRAME.width / 2
            kind = f"tag {mark.kind}{' end' if far else ''}"
            written.append(label(x + wide - 3 if far else x, y, text, class_=kind))
    return written


def free_place(
    places: Iterable[tuple[float, float]], size: tuple[float, float], height: float, taken: list[Corners]
) -> tuple[float, float] | None:
    """The first lower left corner at which a label is inside the picture and covers none of those `taken`."""
    wide, tall = size
    for x, y in places:
        area = (x, y - tall, x + wide, y + 4)
        free = all(area[2] <= t[0] or t[2] <= area[0] or area[3] <= t[1] or t[3] <= area[1] for t in taken)
        if area[1] >= 0 and area[3] <= height and free:
            taken.append(area)
            return x, y
    return None


def _candidates(xyxy: Corners, wide: float) -> list[tuple[float, float]]:
    """Places for a label's lower left corner: above, below, inside, then farther off."""
    x1, y1, x2, y2 = xyxy
    line = _TEXT + 5
    spots = [
        (x1, y1 - 6), (x1, y2 + line - 2), (x2 - wide, y1 - 6), (x2 - wide, y2 + line - 2),
        (x2 + 6, y1 + _TEXT),
        (x1 - wide - 2, y1 + _TEXT), (x1 + 4, y1 + line), (x1, y1 - 6 - line), (x1, y2 + 2 * line - 2),
    ]  # fmt: skip
    return [(min(max(x, 3.0), max(FRAME.width - wide, 3.0)), y) for x, y in spots]
