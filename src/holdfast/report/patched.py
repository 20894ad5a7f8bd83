"""A patched image for a page: before, after, mask and difference × 10 side by side, with the boxes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from holdfast.core.patch import changed
from holdfast.core.types import Boxes, Detections, Image, Size
from holdfast.data.patchfile import png_of
from holdfast.metrics.boxes import iou
from holdfast.report.parts import fragment
from holdfast.report.pictures import Mark, overlay, thumbnail

TIMES = 10  # the difference is shown so many times as strong


@dataclass(frozen=True, eq=False)
class Patched:
    """One image: its heading, a line about it, pixels and detections before and after, and the truth."""

    label: str
    note: str
    before: Image
    after: Image
    found_before: Detections
    found_after: Detections
    truth: Boxes


def patched_figure(rows: Sequence[Patched], classes: Sequence[str], iou_at_least: float = 0.5) -> str:
    """The markup of one row of four pictures an image; classes name both detections and truth."""
    made = []
    for row in rows:
        pictures = [
            ("original", _drawn(row.before, marks(row.truth, row.found_before, classes, iou_at_least), row)),
            (
                "with the patch",
                _drawn(row.after, marks(row.truth, row.found_after, classes, iou_at_least), row),
            ),
            ("changed pixels", _drawn(_mask(row), (), row)),
            (f"difference × {TIMES}", _drawn(_difference(row), (), row)),
        ]
        made.append({"label": row.label, "note": row.note, "pictures": pictures})
    return fragment("patched.html", rows=made)


def marks(truth: Boxes, found: Detections, classes: Sequence[str], iou_at_least: float) -> tuple[Mark, ...]:
    """Detections as right or wrong, and the true boxes nothing was found for as missed."""
    overlap = (
        iou(found.boxes, truth.xyxy) if len(found) and len(truth) else np.zeros((len(found), len(truth)))
    )
    same = found.classes[:, None] == truth.classes[None, :]
    good = same & (overlap >= iou_at_least)
    made = [
        Mark.of(truth.xyxy[i], "missed", _named(classes, truth.classes[i]))
        for i in range(len(truth))
        if not good[:, i].any()
    ]
    for i in range(len(found)):
        kind = "right" if good[i].any() else "wrong"
        text = f"{_named(classes, found.classes[i])} {found.scores[i]:.2f}"
        made.append(Mark.of(found.boxes[i], kind, text))  # type: ignore[arg-type]
    return tuple(made)


def _named(classes: Sequence[str], number: int) -> str:
    return classes[number] if 0 <= number < len(classes) else str(number)


def _mask(row: Patched) -> Image:
    mask = changed(row.before, row.after)
    return np.repeat(np.where(mask, 255, 24).astype(np.uint8)[:, :, None], 3, axis=2)


def _difference(row: Patched) -> Image:
    apart = np.abs(row.after.astype(np.int32) - row.before.astype(np.int32))
    strong: Image = np.minimum(apart * TIMES, 255).astype(np.uint8)
    return strong


def _drawn(image: Image, drawn: Sequence[Mark], row: Patched) -> Markup:
    size = Size(image.shape[1], image.shape[0])
    return Markup(overlay(thumbnail(png_of(image)), size, drawn, row.label))  # noqa: S704 - our own SVG
