"""One tensor of boxes that the graph has decoded: YOLOv5, YOLOv8 and RT-DETR."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from holdfast.core.model import Card
from holdfast.core.registry import stage
from holdfast.core.types import Detections, Tensor
from holdfast.graph.candidates import (
    above,
    from_centres,
    one_image,
    options_of,
    pixels,
    single,
    table_rows,
    upright_sides,
    wrong,
)


@dataclass(frozen=True)
class Yolov5Options:
    """What a card may say of a YOLOv5 output."""

    outputs: tuple[str, ...] = ()
    normalised: bool = False  # boxes in parts of the input (0..1), not in pixels
    multi_label: bool = True  # every class of a box that reaches the threshold, not only its best


@stage("head", task="detect", nms=True, options=Yolov5Options)
def yolov5(raw: Mapping[str, Tensor], card: Card) -> Detections:
    """Candidates from an output (1, n, 5+k): centre x y, width, height, objectness, classes."""
    chosen = options_of(Yolov5Options, card)
    hint = ' (or, without objectness, the head: "yolov8")'
    _, rows = table_rows(raw, chosen.outputs, card, 5, "boxes", hint)
    cells = rows[rows[:, 4] >= card.score].astype(np.float64)
    index, classes, scores = above(cells[:, 5:] * cells[:, 4:5], card.score, chosen.multi_label)
    unit = pixels(card, chosen.normalised)
    return Detections(from_centres(cells[index, :2] * unit, cells[index, 2:4] * unit), scores, classes)


@dataclass(frozen=True)
class Yolov8Options(Yolov5Options):
    """What a card may say of a YOLOv8 output."""

    trailing: int = 0  # columns behind the classes: mask coefficients, keypoints, an angle
    angle: bool = False  # the first of them is the box's rotation; the upright box around it is taken


@stage("head", task="detect", nms=True, options=Yolov8Options)
def yolov8(raw: Mapping[str, Tensor], card: Card) -> Detections:
    """Candidates from an output (1, 4+k, n) or (1, n, 4+k): centre x y, width, height, classes."""
    chosen = options_of(Yolov8Options, card)
    name, value = single(raw, chosen.outputs, card)
    found = one_image(name, value, card)
    last = 4 + len(card.classes)
    width = last + chosen.trailing
    if found.ndim != 2 or width not in found.shape:
        more = f" + {chosen.trailing} trailing columns" if chosen.trailing else ""
        raise wrong(
            card,
            f"output {name!r} {value.shape}: expected (1, 4 + {len(card.classes)} classes{more}, boxes) or "
            'its transpose; correct `classes` in the card (or, with objectness, the head: "yolov5")',
        )
    if chosen.angle and not chosen.trailing:
        raise wrong(card, "angle = true needs a column for the angle: set trailing = 1 in the card")
    rows = found.T if found.shape[0] == width else found
    cells = rows[rows[:, 4:last].max(axis=1) >= card.score].astype(np.float64)
    index, classes, scores = above(cells[:, 4:last], card.score, chosen.multi_label)
    unit = pixels(card, chosen.normalised)
    sides = cells[index, 2:4] * unit
    if chosen.angle:
        sides = upright_sides(sides, cells[index, last])
    return Detections(from_centres(cells[index, :2] * unit, sides), scores, classes)


@dataclass(frozen=True)
class RtdetrOptions(Yolov5Options):
    """What a card may say of an RT-DETR table."""

    normalised: bool = True  # boxes in parts of the input (0..1), not in pixels
    multi_label: bool = False  # every class of a box that reaches the threshold, not only its best


@stage("head", task="detect", nms=False, options=RtdetrOptions)
def rtdetr(raw: Mapping[str, Tensor], card: Card) -> Detections:
    """Detections from an output (1, n, 4+k): centre x y, width, height, class probabilities."""
    chosen = options_of(RtdetrOptions, card)
    _, table = table_rows(raw, chosen.outputs, card, 4, "queries")
    rows = table.astype(np.float64)
    index, classes, scores = above(rows[:, 4:], card.score, chosen.multi_label)
    unit = pixels(card, chosen.normalised)
    return Detections(from_centres(rows[index, :2] * unit, rows[index, 2:4] * unit), scores, classes)
