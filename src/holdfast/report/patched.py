"""Attacked images for a page: original, attacked, changed regions and difference side by side, with boxes."""

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

READING = (
    "Changed regions: the image is dimmed and the changed pixels are outlined. Difference: |after − before| "
    "of each channel, multiplied by the stated factor; single pixels are enlarged so that they are visible."
)
_QUALITY = 88
_TEXT = 17.0  # units of the picture, which has one per pixel
_OUTLINE = (255, 0, 255)
_DIM = "0.4"
ONE_MODEL = {
    "truth": "true box",
    "missed": "missed true box",
    "right": "correct detection",
    "wrong": "wrong detection",
}


@dataclass(frozen=True, eq=False)
class AttackedImage:
    """One image to show: its name, a summary, both images, the ground truth, the detections before and after.

    `also` are the detections of a second model, drawn below those of the first. `patches` are shown enlarged,
    each with its caption; (side, side, 4).
    """

    name: str
    summary: str
    before: Image
    after: Image
    truth: Boxes
    detections: tuple[Detections, Detections]
    also: tuple[Detections, Detections] | None = None
    patches: tuple[tuple[str, Image], ...] = ()


def attacked_gallery(
    images: Sequence[AttackedImage], classes: Sequence[str], least: float, prefix: str,
    names: Mapping[str, str] = ONE_MODEL,
) -> str:  # fmt: skip
    """The markup of these images, four pictures each; `least` is the IoU threshold of a detection.

    `prefix` makes the identifiers of the pictures unique on the page; `names` is the legend.
    """
    tiles = [_tile(one, classes, least, f"{prefix}-{i}") for i, one in enumerate(images)]
    return fragment("patched.html", tiles=tiles, names=names)


def amplified(before: Image, after: Image) -> tuple[Image, int]:
    """The absolute difference of every channel times the largest factor within 255, and the factor."""
    away = np.abs(before.astype(np.int16) - after.astype(np.int16))
    factor = max(1, 255 // max(1, int(away.max(initial=0))))
    scaled: Image = (factor * away).astype(np.uint8)
    return scaled, factor


def _tile(one: AttackedImage, classes: Sequence[str], least: float, key: str) -> dict[str, Any]:
    mask = changed(one.before, one.after)
    size = mask.shape[1], mask.shape[0]
    radius = max(1, round(max(size) / 250))  # so that a single pixel is visible at the size of a thumbnail
    _, factor = amplified(one.before, one.after)
    grounds = _grounds(one, mask, key, radius)
    marks = [_marks(one, classes, least, 0), _marks(one, classes, least, 1), [], []]
    titles = ("original", "attacked", "changed regions", f"difference ×{factor}")
    whole = (0.0, 0.0, float(size[0]), float(size[1]))
    pictures = []
    for place, (title, ground) in enumerate(zip(titles, grounds, strict=True)):
        held = element("g", ground, id=f"{key}-{place}")
        labels = _labels(marks[place], size)
        pictures.append((title, _drawn(f"{one.name}, {title}", whole, held, marks[place], labels, "picture")))
    near = _region(one, mask)
    if near:
        exact = _grounds(one, mask, key, 0)[2:]  # enlarged anyway: the pixels as they are
        again = [element("use", href=f"#{key}-0"), element("use", href=f"#{key}-1"), *exact]
        for title, ground, boxes in zip(titles, again, marks, strict=True):
            drawn = _drawn(f"{one.name}, {title}, detail", near, ground, boxes, [], "picture detail")
            pictures.append(("detail", drawn))
    for caption, patch in one.patches:
        height, width = patch.shape[:2]
        ground = element("image", href=_png(patch), preserveAspectRatio="none", width=width, height=height)
        view = (0.0, 0.0, float(width), float(height))
        pictures.append((caption, _drawn(f"{one.name}, {caption}", view, ground, [], [], "picture detail")))
    safe = [(what, Markup(svg)) for what, svg in pictures]  # noqa: S704 - every text in it is escaped
    return {"name": one.name, "summary": one.summary, "pictures": safe}


def _grounds(one: AttackedImage, mask: Bools, key: str, radius: int) -> list[str]:
    """The four pictures without boxes; changed pixels are enlarged by `radius` in the last two."""
    place = {"x": 0.0, "y": 0.0, "width": float(mask.shape[1]), "height": float(mask.shape[0])}
    only = np.dstack([one.after, np.where(mask, 255, 0).astype(np.uint8)])
    only[~mask] = 0
    jpeg = picture_uri(one.before, "JPEG", quality=_QUALITY, subsampling=0, optimize=True)
    original = element("use", href=f"#{key}-0")  # stored once
    dark = element("rect", fill="#000000", **place)
    dimmed = dark + element("use", href=f"#{key}-0", opacity=_DIM)
    difference = amplified(one.before, one.after)[0]
    if one.patches:  # large enough to be visible; enlarged, their pixels would merge
        shown = _outlined(difference, mask, radius)
    else:
        alpha = np.where(_widened(mask, radius), 255, 0).astype(np.uint8)
        shown = np.dstack([_widened(difference, radius), alpha])
    return [
        element("image", href=jpeg, preserveAspectRatio="none", **place),
        original + element("image", href=_png(only), **place),
        dimmed + element("image", href=_png(_outlined(one.after, mask, radius)), **place),
        dark + element("image", href=_png(shown), **place),
    ]


def _outlined(after: Image, mask: Bools, radius: int) -> Image:
    """RGBA: the changed pixels with a coloured outline, transparent elsewhere."""
    inside = _widened(mask, radius)
    edge = _widened(inside, max(1, radius)) & ~inside
    colour = np.where(edge[..., None], np.array(_OUTLINE, np.uint8), after)
    alpha = np.where(inside | edge, 255, 0).astype(np.uint8)
    found: Image = np.dstack([np.where(alpha[..., None] > 0, colour, 0), alpha])
    return found


def _widened(values: Any, radius: int) -> Any:
    """The maximum of each value (h, w) or (h, w, 3) and its neighbours within a square of that radius."""
    from PIL import Image as Pillow
    from PIL import ImageFilter

    if radius < 1:
        return values
    bools = values.dtype == bool
    picture = Pillow.fromarray(values.astype(np.uint8) * 255 if bools else values)
    found = np.asarray(picture.filter(ImageFilter.MaxFilter(2 * radius + 1)))
    return found > 0 if bools else found


def _region(one: AttackedImage, mask: Bools) -> Corners | None:
    """The square (x, y, side, side) of the detail: the changed pixels, or else the largest target.

    None if nothing is changed, or if that square is most of the picture.
    """
    if not mask.any():
        return None
    height, width = mask.shape
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    x1, y1, x2, y2 = float(columns[0]), float(rows[0]), float(columns[-1] + 1), float(rows[-1] + 1)
    most = 0.7 / 1.6 if one.patches else 0.5  # the largest at which all patches fit into the detail
    if max(x2 - x1, y2 - y1) > most * min(width, height) and len(one.truth):
        x1, y1, x2, y2 = one.truth.xyxy[int(np.argmax(one.truth.areas))].tolist()
    side = max(1.6 * max(x2 - x1, y2 - y1), 40.0)
    if side > 0.7 * min(width, height):
        return None
    x = min(max((x1 + x2 - side) / 2, 0.0), width - side)
    y = min(max((y1 + y2 - side) / 2, 0.0), height - side)
    return x, y, side, side


def _marks(one: AttackedImage, classes: Sequence[str], least: float, when: int) -> list[Mark]:
    """The boxes of one picture, the most important last: the truth, the second model, the first."""
    truth, found = one.truth, one.detections[when]
    same: Bools = truth.classes[:, None] == found.classes[None, :]
    alike = same & (iou(truth.xyxy, found.boxes) >= least)  # (true boxes, detections)
    detected, right = (np.asarray(alike.any(axis=axis)).tolist() for axis in (1, 0))
    counts = ~(truth.crowd | truth.difficult)
    marks = []
    for box, kind, seen, counted in zip(truth.xyxy, truth.classes, detected, counts, strict=True):
        missed = counted and not seen
        what: MarkKind = "missed" if missed else "truth" if seen else "ignored"
        marks.append(Mark.of(box, what, classes[kind] if missed else ""))
    if one.also is not None:
        marks += [Mark.of(box, "mimic") for box in one.also[when].boxes]
    for box, kind, score, good in zip(found.boxes, found.classes, found.scores, right, strict=True):
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
