"""Attacked images for a page: original, attacked, changed regions and difference side by side, with boxes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from markupsafe import Markup

from holdfast.core.patch import changed
from holdfast.core.types import Bools, Boxes, Detections, Image
from holdfast.metrics.boxes import iou
from holdfast.report.charts.svg import element, label, shortened, width_of
from holdfast.report.gallery import Corners, Mark, MarkKind, free_place, marked_picture
from holdfast.report.html import picture_uri
from holdfast.report.parts import fragment

READING = (
    "Changed regions: the image is dimmed and the changed pixels are outlined. Difference: |after − before| "
    "of each channel, multiplied by the stated factor, on the dimmed image; single pixels are enlarged so "
    "that they are visible."
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
    """One image to show: name, summary, both images, the ground truth, the detections before and after.

    `patches` are shown enlarged, each with its caption; (side, side, 4).
    """

    name: str
    summary: str
    before: Image
    after: Image
    truth: Boxes
    detections: tuple[Detections, Detections]
    also: tuple[Detections, Detections] | None = None  # of a second model, drawn below those of the first
    patches: tuple[tuple[str, Image], ...] = ()


def attacked_gallery(
    images: Sequence[AttackedImage], classes: Sequence[str], least: float, prefix: str,
    names: Mapping[str, str] = ONE_MODEL,
) -> str:  # fmt: skip
    """The markup of these images, four pictures each; `least` is the IoU threshold of a detection.

    `prefix` makes the identifiers of the pictures unique on the page; `names` is the legend.
    """
    tiles = [_tile(image, classes, least, f"{prefix}-{i}") for i, image in enumerate(images)]
    return fragment("patched.html", tiles=tiles, names=names)


def amplified(before: Image, after: Image) -> tuple[Image, int]:
    """The absolute difference of every channel times the largest factor within 255, and the factor."""
    difference = np.abs(before.astype(np.int16) - after.astype(np.int16))
    factor = max(1, 255 // max(1, int(difference.max(initial=0))))
    return (factor * difference).astype(np.uint8), factor


def _tile(image: AttackedImage, classes: Sequence[str], least: float, key: str) -> dict[str, Any]:
    mask = changed(image.before, image.after)
    size = mask.shape[1], mask.shape[0]
    radius = max(1, round(max(size) / 250))  # so that a single pixel is visible at the size of a thumbnail
    _, factor = amplified(image.before, image.after)
    grounds = _grounds(image, mask, key, radius)
    marks = [_marks(image, classes, least, 0), _marks(image, classes, least, 1), [], []]
    titles = ("original", "attacked", "changed regions", f"difference ×{factor}")
    whole = (0.0, 0.0, float(size[0]), float(size[1]))
    pictures = []
    for place, (title, ground) in enumerate(zip(titles, grounds, strict=True)):
        ground = element("g", ground, id=f"{key}-{place}")
        labels = _labels(marks[place], size)
        name = f"{image.name}, {title}"
        pictures.append((title, marked_picture(name, whole, ground, marks[place], labels, "picture")))
    near = _region(image, mask)
    if near:
        exact = _grounds(image, mask, key, 0)[2:]  # enlarged anyway: the pixels as they are
        again = [element("use", href=f"#{key}-0"), element("use", href=f"#{key}-1"), *exact]
        for title, ground, boxes in zip(titles, again, marks, strict=True):
            name = f"{image.name}, {title}, detail"
            pictures.append(("detail", marked_picture(name, near, ground, boxes, [], "picture detail")))
    for caption, patch in image.patches:
        height, width = patch.shape[:2]
        href = picture_uri(patch, "PNG", optimize=True)
        ground = element("image", href=href, preserveAspectRatio="none", width=width, height=height)
        view, name = (0.0, 0.0, float(width), float(height)), f"{image.name}, {caption}"
        pictures.append((caption, marked_picture(name, view, ground, [], [], "picture detail")))
    safe = [(what, Markup(svg)) for what, svg in pictures]  # noqa: S704 - every text in it is escaped
    return {"name": image.name, "summary": image.summary, "pictures": safe}


def _grounds(image: AttackedImage, mask: Bools, key: str, radius: int) -> list[str]:
    """The four pictures without boxes; changed pixels are enlarged by `radius` in the last two."""
    place = {"x": 0.0, "y": 0.0, "width": float(mask.shape[1]), "height": float(mask.shape[0])}
    changes = np.dstack([image.after, np.where(mask, 255, 0).astype(np.uint8)])
    changes[~mask] = 0
    png = partial(picture_uri, kind="PNG", optimize=True)
    jpeg = picture_uri(image.before, "JPEG", quality=_QUALITY, subsampling=0, optimize=True)
    original = element("use", href=f"#{key}-0")  # stored once
    dark = element("rect", fill="#000000", **place)
    dimmed = dark + element("use", href=f"#{key}-0", opacity=_DIM)
    difference = amplified(image.before, image.after)[0]
    if not image.patches:  # which are large enough to be visible; enlarged, their pixels would merge
        difference = _widened(difference, radius)
    return [
        element("image", href=jpeg, preserveAspectRatio="none", **place),
        original + element("image", href=png(changes), **place),
        dimmed + element("image", href=png(_outlined(image.after, mask, radius)), **place),
        dimmed + element("image", href=png(_outlined(difference, mask, radius)), **place),
    ]


def _outlined(after: Image, mask: Bools, radius: int) -> Image:
    """RGBA: the changed pixels with a coloured outline, transparent elsewhere."""
    inside = _widened(mask, radius)
    edge = _widened(inside, max(1, radius)) & ~inside
    colour = np.where(edge[..., None], np.array(_OUTLINE, np.uint8), after)
    alpha = np.where(inside | edge, 255, 0).astype(np.uint8)
    return np.dstack([np.where(alpha[..., None] > 0, colour, 0), alpha])


def _widened(values: Any, radius: int) -> Any:
    """The maximum of each value (h, w) or (h, w, 3) and its neighbours within a square of that radius."""
    from PIL import Image as Pillow
    from PIL import ImageFilter

    if radius < 1:
        return values
    bools = values.dtype == bool
    picture = Pillow.fromarray(values.astype(np.uint8) * 255 if bools else values)
    maximum = np.asarray(picture.filter(ImageFilter.MaxFilter(2 * radius + 1)))
    return maximum > 0 if bools else maximum


def _region(image: AttackedImage, mask: Bools) -> Corners | None:
    """The square (x, y, side, side) of the changed pixels, or else of the largest target, if it is small."""
    if not mask.any():
        return None
    height, width = mask.shape
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    x1, y1, x2, y2 = float(columns[0]), float(rows[0]), float(columns[-1] + 1), float(rows[-1] + 1)
    # The largest at which all patches fit into the detail.
    most = 0.7 / 1.6 if image.patches else 0.5
    if max(x2 - x1, y2 - y1) > most * min(width, height) and len(image.truth):
        x1, y1, x2, y2 = image.truth.xyxy[int(np.argmax(image.truth.areas))].tolist()
    side = max(1.6 * max(x2 - x1, y2 - y1), 40.0)
    if side > 0.7 * min(width, height):
        return None
    x = min(max((x1 + x2 - side) / 2, 0.0), width - side)
    y = min(max((y1 + y2 - side) / 2, 0.0), height - side)
    return x, y, side, side


def _marks(image: AttackedImage, classes: Sequence[str], least: float, when: int) -> list[Mark]:
    """The boxes of one picture, the most important last: the truth, the second model, the first."""
    truth, detections = image.truth, image.detections[when]
    same: Bools = truth.classes[:, None] == detections.classes[None, :]
    matches = same & (iou(truth.xyxy, detections.boxes) >= least)  # (true boxes, detections)
    matched, right = (np.asarray(matches.any(axis=axis)).tolist() for axis in (1, 0))
    counts = ~(truth.crowd | truth.difficult)
    marks = []
    for box, kind, detected, counted in zip(truth.xyxy, truth.classes, matched, counts, strict=True):
        missed = counted and not detected
        what: MarkKind = "missed" if missed else "truth" if detected else "ignored"
        marks.append(Mark.of(box, what, classes[kind] if missed else ""))
    if image.also is not None:
        marks += [Mark.of(box, "mimic") for box in image.also[when].boxes]
    columns = detections.boxes, detections.classes, detections.scores
    for box, kind, score, good in zip(*columns, right, strict=True):
        marks.append(Mark.of(box, "right" if good else "wrong", f"{classes[kind]} {score:.2f}"))
    return marks


def _labels(marks: Sequence[Mark], size: tuple[int, int]) -> list[str]:
    """A label for each box that has one and a free place above or below; the others keep their tip."""
    taken, written = list[Corners](), []
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
