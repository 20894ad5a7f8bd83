"""A patched image for a page: original, adversarial, mask and difference side by side, with boxes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from holdfast.core.patch import changed
from holdfast.core.types import Bools, Boxes, Detections, Image
from holdfast.metrics.boxes import iou
from holdfast.report.charts.svg import element, label, number, shortened, tip, width_of
from holdfast.report.gallery import Corners, Mark, MarkKind, free_place
from holdfast.report.html import picture_uri
from holdfast.report.parts import fragment

GAIN = 10  # how often the difference is multiplied
_QUALITY = 88
_TEXT = 17.0  # units of the picture, which has one a pixel
ONE_MODEL = {
    "truth": "true box",
    "missed": "true box the model misses",
    "right": "the model, right",
    "wrong": "the model, wrong",
}


@dataclass(frozen=True, eq=False)
class Exhibit:
    """One image to show: its name, a line about it, both pictures, its truth, what was said before and after.

    `also` is what a second model said, drawn beneath the first one's.
    """

    name: str
    summary: str
    before: Image
    after: Image
    truth: Boxes
    said: tuple[Detections, Detections]
    also: tuple[Detections, Detections] | None = None


def exhibition(
    exhibits: Sequence[Exhibit], classes: Sequence[str], least: float, prefix: str,
    names: Mapping[str, str] = ONE_MODEL,
) -> str:  # fmt: skip
    """The markup of these images, four pictures each; `least` is the IoU from which a box is found.

    `prefix` keeps the pictures' identifiers apart from those of other sections; `names` is the legend.
    """
    tiles = [_tile(e, classes, least, f"{prefix}-{i}") for i, e in enumerate(exhibits)]
    return fragment("patched.html", tiles=tiles, names=names)


def difference(before: Image, after: Image) -> Image:
    """The difference of every channel, ten times as large and cut off at 255."""
    away = np.abs(before.astype(np.int16) - after.astype(np.int16))
    scaled: Image = np.minimum(GAIN * away, 255).astype(np.uint8)
    return scaled


def _tile(exhibit: Exhibit, classes: Sequence[str], least: float, key: str) -> dict[str, Any]:
    name = exhibit.name
    mask = changed(exhibit.before, exhibit.after)
    size = mask.shape[1], mask.shape[0]
    grounds = _grounds(exhibit, mask, key)
    marks = [_marks(exhibit, classes, least, 0), _marks(exhibit, classes, least, 1), [], []]
    titles = ("original", "adversarial", "mask", f"difference ×{GAIN}")
    whole = (0.0, 0.0, float(size[0]), float(size[1]))
    pictures = []
    for place, (title, ground) in enumerate(zip(titles, grounds, strict=True)):
        identifier = f"{key}-{place}"
        held = element("g", ground, id=identifier)
        labels = _labels(marks[place], size)
        pictures.append((title, _drawn(f"{name}, {title}", whole, held, marks[place], labels, "picture")))
    near = _region(exhibit, mask)
    if near:
        for place, title in enumerate(titles):
            again = element("use", href=f"#{key}-{place}")
            drawn = _drawn(f"{name}, {title}, detail", near, again, marks[place], [], "picture detail")
            pictures.append(("detail", drawn))
    safe = [(what, Markup(svg)) for what, svg in pictures]  # noqa: S704 - every text in it is escaped
    return {"name": name, "summary": exhibit.summary, "pictures": safe}


def _grounds(exhibit: Exhibit, mask: Bools, key: str) -> list[str]:
    """The four pictures without boxes; the changed pixels lie, exactly as they are, over the original."""
    place = {"x": 0.0, "y": 0.0, "width": float(mask.shape[1]), "height": float(mask.shape[0])}
    only = np.dstack([exhibit.after, np.where(mask, 255, 0).astype(np.uint8)])
    only[~mask] = 0
    jpeg = picture_uri(exhibit.before, "JPEG", quality=_QUALITY, subsampling=0, optimize=True)
    original = element("use", href=f"#{key}-0")  # stored once
    return [
        element("image", href=jpeg, preserveAspectRatio="none", **place),
        original + element("image", href=_png(only), **place),
        element("image", href=_png(np.where(mask, 255, 0).astype(np.uint8)), **place),
        element("image", href=_png(difference(exhibit.before, exhibit.after)), **place),
    ]


def _region(exhibit: Exhibit, mask: Bools) -> Corners | None:
    """The square (x, y, side, side) worth a closer look: what is changed, or else the largest target.

    None if nothing is changed, or if that square is most of the picture.
    """
    if not mask.any():
        return None
    height, width = mask.shape
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    x1, y1, x2, y2 = float(columns[0]), float(rows[0]), float(columns[-1] + 1), float(rows[-1] + 1)
    if max(x2 - x1, y2 - y1) > min(width, height) / 2 and len(exhibit.truth):
        x1, y1, x2, y2 = exhibit.truth.xyxy[int(np.argmax(exhibit.truth.areas))].tolist()
    side = max(1.6 * max(x2 - x1, y2 - y1), 40.0)
    if side > 0.7 * min(width, height):
        return None
    x = min(max((x1 + x2 - side) / 2, 0.0), width - side)
    y = min(max((y1 + y2 - side) / 2, 0.0), height - side)
    return x, y, side, side


def _marks(exhibit: Exhibit, classes: Sequence[str], least: float, when: int) -> list[Mark]:
    """The boxes of one picture, those that matter most last: the truth, the second model, the first."""
    truth, said = exhibit.truth, exhibit.said[when]
    same: Bools = truth.classes[:, None] == said.classes[None, :]
    alike = same & (iou(truth.xyxy, said.boxes) >= least)  # (true boxes, detections)
    found, right = (np.asarray(alike.any(axis=axis)).tolist() for axis in (1, 0))
    counts = ~(truth.crowd | truth.difficult)
    marks = []
    for box, kind, seen, counted in zip(truth.xyxy, truth.classes, found, counts, strict=True):
        missed = counted and not seen
        what: MarkKind = "missed" if missed else "truth" if seen else "ignored"
        marks.append(Mark.of(box, what, classes[kind] if missed else ""))
    if exhibit.also is not None:
        marks += [Mark.of(box, "mimic") for box in exhibit.also[when].boxes]
    for box, kind, score, good in zip(said.boxes, said.classes, said.scores, right, strict=True):
        marks.append(Mark.of(box, "right" if good else "wrong", f"{classes[kind]} {score:.2f}"))
    return marks


def _drawn(
    title: str, view: Corners, ground: str, marks: Sequence[Mark], labels: Sequence[str], kind: str
) -> str:
    frame = " ".join(number(value) for value in view)
    boxes = [mark.drawn() for mark in marks]
    return element("svg", tip(title), ground, *boxes, *labels, class_=kind, viewBox=frame, role="img")


def _labels(marks: Sequence[Mark], size: tuple[int, int]) -> list[str]:
    """A label for each box that has one and a free place above or below; the others keep their tip."""
    taken: list[Corners] = []
    written = []
    for mark in reversed(marks):
        text = shortened(mark.text, 24)
        wide = width_of(text, _TEXT * 1.1) + 6
        x1, y1, _, y2 = mark.xyxy
        x = min(max(x1, 2.0), max(size[0] - wide, 2.0))
        rows = (y1 - 5, y2 + _TEXT, y1 - 5 - 1.3 * _TEXT, y2 + 2.3 * _TEXT) if text else ()
        place = free_place([(x, y) for y in rows], (wide, _TEXT), size[1], taken)
        if place is not None:
            written.append(label(*place, text, class_=f"tag {mark.kind}"))
    return written


def _png(pixels: Any) -> str:
    return picture_uri(pixels, "PNG", optimize=True)
