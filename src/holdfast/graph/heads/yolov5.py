"""YOLOv5 and others (v6, v7) that give one tensor with boxes already decoded and an objectness."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from holdfast.core.model import Card
from holdfast.core.registry import stage
from holdfast.core.types import Detections, Tensor
from holdfast.graph.candidates import above, from_centres
from holdfast.graph.outputs import one_image, options_of, single, wrong


@dataclass(frozen=True)
class Options:
    """What a card may say of a YOLOv5 output."""

    outputs: tuple[str, ...] = ()
    normalised: bool = False  # boxes in parts of the input (0..1), not in pixels
    multi_label: bool = True  # every class of a box that reaches the threshold, not only its best


@stage("head", task="detect", nms=True, options=Options)
def yolov5(raw: Mapping[str, Tensor], card: Card) -> Detections:
    """Candidates from an output (1, n, 5+k): centre x y, width, height, objectness, classes."""
    chosen = options_of(Options, card)
    name, value = single(raw, chosen.outputs, card)
    rows = one_image(name, value, card)
    if rows.ndim != 2 or rows.shape[1] != 5 + len(card.classes):
        raise wrong(
            card,
            f"output {name!r} {value.shape}: expected (1, boxes, 5 + {len(card.classes)} classes); "
            'correct `classes` in the card (or, without objectness, the head: "yolov8")',
        )
    cells = rows[rows[:, 4] >= card.score].astype(np.float64)
    index, classes, scores = above(cells[:, 5:] * cells[:, 4:5], card.score, chosen.multi_label)
    unit = np.array(card.input.size, np.float64) if chosen.normalised else 1.0
    boxes = from_centres(cells[index, :2] * unit, cells[index, 2:4] * unit)
    return Detections(boxes, scores, classes)
