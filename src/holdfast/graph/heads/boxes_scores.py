"""Decoded boxes and class scores in two outputs, before NMS: SSD, UltraFace, YOLO-NAS, DAMO-YOLO, YOLOv4."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from holdfast.core.model import Card
from holdfast.core.registry import stage
from holdfast.core.types import Detections, Tensor
from holdfast.graph import candidates
from holdfast.graph.candidates import above, as_xyxy, named, options_of, shapes, wrong


@dataclass(frozen=True)
class BoxesScoresOptions:
    """Options of a card for boxes (1, n, 4) and scores (1, n, k)."""

    boxes: str = ""
    scores: str = ""
    form: candidates.Form = "xyxy"
    normalised: bool = False  # boxes in parts of the input (0..1), not in pixels
    activation: Literal["none", "sigmoid", "softmax"] = "none"  # of the scores; none: done in the graph
    background: Literal["none", "first", "last"] = "none"  # where the scores hold a class for "no object"
    multi_label: bool = True  # every class of a box that reaches the threshold, not only its best


@stage("head", task="detect", nms=True, options=BoxesScoresOptions)
def boxes_scores(raw: Mapping[str, Tensor], card: Card) -> Detections:
    """Candidates from outputs boxes (1, n, 4) and scores (1, n, k) or (1, k, n)."""
    return decoded_pairs(raw, options_of(BoxesScoresOptions, card), card)


def decoded_pairs(raw: Mapping[str, Tensor], chosen: BoxesScoresOptions, card: Card) -> Detections:
    """Boxes and scores that reach the threshold, in pixels of the network's input."""
    corners, scores = pair(raw, chosen, card)
    first = 1 if chosen.background == "first" else 0
    classes = slice(first, first + len(card.classes))
    is_logit = chosen.activation == "sigmoid"
    values = candidates.softmax(scores) if chosen.activation == "softmax" else scores
    least = candidates.logit(card.score) if is_logit else card.score
    used = np.flatnonzero(values[:, classes].max(axis=1) >= least)
    rows = values[used, classes].astype(np.float64)
    rows = candidates.sigmoid(rows) if is_logit else rows
    index, labels, found = above(rows, card.score, chosen.multi_label)
    unit = np.tile(candidates.pixels(card, chosen.normalised), 2)
    boxes = as_xyxy(corners[used[index]].astype(np.float64), chosen.form) * unit
    return Detections(boxes, found, labels)


def pair(raw: Mapping[str, Tensor], chosen: BoxesScoresOptions, card: Card) -> tuple[Tensor, Tensor]:
    """Boxes (n, 4) and scores (n, k), as named in the card or recognised by their shapes."""
    width = len(card.classes) + (chosen.background != "none")
    tables = {name: squeezed(value) for name, value in raw.items()}
    named(raw, [name for name in (chosen.boxes, chosen.scores) if name], card)
    for box, four in tables.items():
        if box != (chosen.boxes or box) or four.ndim != 2 or four.shape[1] != 4 or box == chosen.scores:
            continue
        for name, scores in tables.items():
            if name == box or name != (chosen.scores or name) or scores.ndim != 2:
                continue
            if scores.shape == (len(four), width):
                return four, scores
            if scores.shape == (width, len(four)):
                return four, scores.T
    background = " and a background" if chosen.background != "none" else ""
    expected = f"boxes (1, n, 4) and scores (1, n, {len(card.classes)} classes{background})"
    advice = 'correct `classes` or `background`, or name them in the card: boxes = "...", scores = "..."'
    raise wrong(card, f"expected {expected}, got {shapes(raw)}; {advice}")


def squeezed(value: Tensor) -> Tensor:
    """The output of one image without axes of length 1: (1, n, 4) and (1, n, 1, 4) become (n, 4)."""
    if value.ndim < 2 or (value.ndim > 2 and value.shape[0] != 1):
        return np.empty(0)
    table = value[0] if value.ndim > 2 else value
    return np.reshape(table, (table.shape[0], -1)) if 1 in table.shape[1:-1] else table
