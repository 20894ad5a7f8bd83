"""A small picture with boxes drawn over it: what is true, what was found, and what was wrong."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from holdfast.core.errors import ImageError
from holdfast.core.types import Floats, Size
from holdfast.report.charts.svg import element, label, shortened, tip, width_of

FRAME = Size(640, 480)  # every picture is fitted into it, so that a gallery lines up
FILE_LIMIT = 140_000  # bytes of one thumbnail; a lower quality is taken until it fits
_QUALITIES = (82, 70, 55, 40, 25)
_TEXT = 15.0
_MOST_LABELS = 14  # with more of them only what is wrong keeps its label

MarkKind: TypeAlias = Literal["truth", "missed", "right", "wrong", "ignored"]


@dataclass(frozen=True)
class Mark:
    """A box in pixels of the image, what became of it, and its label (empty: none)."""

    xyxy: tuple[float, float, float, float]
    kind: MarkKind
    text: str = ""

    @staticmethod
    def of(xyxy: Floats, kind: MarkKind, text: str = "") -> Mark:
        """The mark of a box given as an array, (4,)."""
        x1, y1, x2, y2 = xyxy.tolist()
        return Mark((x1, y1, x2, y2), kind, text)


def thumbnail(data: bytes | None) -> bytes | None:
    """The picture as a JPEG that fits `FRAME`, or None if there is none or it cannot be decoded."""
    if data is None:
        return None
    from PIL import Image

    from holdfast.stages.decode.pillow import pillow

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
    if jpeg is None:
        middle = label(FRAME.width / 2, FRAME.height / 2, "picture not available", class_="absent middle")
        ground = element("rect", class_="nothing", **place) + middle
    else:
        source = "data:image/jpeg;base64," + base64.b64encode(jpeg).decode()
        ground = element("image", href=source, preserveAspectRatio="none", **place)
    # what is wrong is drawn last, so that it lies on top; its labels are placed first, so that they stay
    order: dict[str, int] = {"ignored": 0, "truth": 1, "right": 2, "missed": 3, "wrong": 4}
    ordered = sorted(marks, key=lambda mark: order[mark.kind])
    boxes = [_Placed(mark, _scaled(mark.xyxy, scale, left, top)) for mark in ordered]
    drawn = [_box(box) for box in boxes]
    head = element("title", html.escape(title))
    frame = f"0 0 {FRAME.width} {FRAME.height}"
    return element(
        "svg", head, ground, *drawn, *_labels(boxes[::-1]), class_="picture", viewBox=frame, role="img"
    )


@dataclass(frozen=True)
class _Placed:
    mark: Mark
    xyxy: tuple[float, float, float, float]  # in the frame


def _scaled(
    xyxy: tuple[float, float, float, float], scale: float, left: float, top: float
) -> tuple[float, float, float, float]:
    x1, y1, x2, y2 = xyxy
    return x1 * scale + left, y1 * scale + top, x2 * scale + left, y2 * scale + top


def _box(box: _Placed) -> str:
    x1, y1, x2, y2 = box.xyxy
    place = {"x": x1, "y": y1, "width": max(x2 - x1, 0.5), "height": max(y2 - y1, 0.5)}
    told = tip(f"{box.mark.kind}{f': {box.mark.text}' if box.mark.text else ''}")
    under = element(
        "rect", class_="under", **place
    )  # a dark line below keeps the colour visible on any ground
    return element("g", told, under, element("rect", class_=f"mark {box.mark.kind}", **place))


def _labels(boxes: Sequence[_Placed]) -> list[str]:
    """A label for each box that has one and for which a free place is found; the others keep their tip."""
    taken: list[tuple[float, float, float, float]] = []
    written = []
    crowded = sum(1 for box in boxes if box.mark.text) > _MOST_LABELS
    for box in boxes:
        if not box.mark.text or (crowded and box.mark.kind in ("right", "ignored")):
            continue
        text = shortened(box.mark.text, 26)
        wide = width_of(text, _TEXT * 1.18) + 6  # bold
        for x, y in _candidates(box.xyxy, wide):
            area = (x, y - _TEXT, x + wide, y + 4)
            free = all(
                area[2] <= t[0] or t[2] <= area[0] or area[3] <= t[1] or t[3] <= area[1] for t in taken
            )
            if area[1] >= 0 and area[3] <= FRAME.height and free:
                taken.append(area)
                # anchored on the nearer side, so that a larger type does not push it out of the frame
                far = x + wide / 2 > FRAME.width / 2
                kind = f"tag {box.mark.kind}{' end' if far else ''}"
                written.append(label(x + wide - 3 if far else x, y, text, class_=kind))
                break
    return written


def _candidates(xyxy: tuple[float, float, float, float], wide: float) -> list[tuple[float, float]]:
    """Places for a label's lower left corner: above, below, inside, then farther off."""
    x1, y1, x2, y2 = xyxy
    line = _TEXT + 5
    spots = [
        (x1, y1 - 6), (x1, y2 + line - 2), (x2 - wide, y1 - 6), (x2 - wide, y2 + line - 2),
        (x2 + 6, y1 + _TEXT),
        (x1 - wide - 2, y1 + _TEXT), (x1 + 4, y1 + line), (x1, y1 - 6 - line), (x1, y2 + 2 * line - 2),
    ]  # fmt: skip
    return [(min(max(x, 3.0), max(FRAME.width - wide, 3.0)), y) for x, y in spots]
