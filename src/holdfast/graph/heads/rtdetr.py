"""RT-DETR as Ultralytics exports it: one table of queries that needs no NMS."""

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
    """What a card may say of an RT-DETR table."""

    outputs: tuple[str, ...] = ()
    normalised: bool = True  # boxes in parts of the input (0..1), not in pixels
    multi_label: bool = False  # every class of a box that reaches the threshold, not only its best


@stage("head", task="detect", nms=False, options=Options)
def rtdetr(raw: Mapping[str, Tensor], card: Card) -> Detections:
    """Detections from an output (1, n, 4+k): centre x y, width, height, class probabilities."""
    chosen = options_of(Options, card)
    name, value = single(raw, chosen.outputs, card)
    rows = one_image(name, value, card)
    if rows.ndim != 2 or rows.shape[1] != 4 + len(card.classes):
        raise wrong(
            card,
            f"output {name!r} {value.shape}: expected (1, queries, 4 + {len(card.classes)} classes); "
            "correct `classes` in the card",
        )
    rows = rows.astype(np.float64)
    index, classes, scores = above(rows[:, 4:], card.score, chosen.multi_label)
    unit = np.array(card.input.size, np.float64) if chosen.normalised else 1.0
    return Detections(from_centres(rows[index, :2] * unit, rows[index, 2:4] * unit), scores, classes)
