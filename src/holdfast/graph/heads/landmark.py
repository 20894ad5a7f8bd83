"""The single-object landmark head of CCTSDB-YOLO: exactly one box and one class per image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from holdfast.core.model import Card
from holdfast.core.registry import stage
from holdfast.core.types import Detections, Tensor
from holdfast.graph.candidates import softmax
from holdfast.graph.outputs import named, options_of, shapes, wrong


@dataclass(frozen=True)
class Options:
    """What a card may say of the two outputs."""

    outputs: tuple[str, ...] = ()  # box, then scores
    normalised: bool = True  # the box is in parts of the input (0..1), not in pixels
    activation: Literal["softmax", "none"] = "softmax"  # what turns the scores into probabilities


@stage("head", task="single", nms=False, options=Options)
def landmark(raw: Mapping[str, Tensor], card: Card) -> Detections:
    """Exactly one detection from a box (1, 4) xyxy and class scores (1, k)."""
    chosen = options_of(Options, card)
    box, scores = picked(named(raw, chosen.outputs, card), card, bool(chosen.outputs))
    probabilities = softmax(scores) if chosen.activation == "softmax" else scores
    best = int(np.argmax(probabilities))
    unit = np.array([*card.input.size, *card.input.size], np.float64) if chosen.normalised else 1.0
    return Detections((box * unit)[None], probabilities[best : best + 1], np.array([best]))


def picked(raw: Mapping[str, Tensor], card: Card, in_order: bool) -> tuple[Tensor, Tensor]:
    """The box (4,) and the scores (k,): by the card's order, by name, or by length."""
    flat = {name: np.asarray(value, np.float64).reshape(-1) for name, value in raw.items()}
    k = len(card.classes)
    if len(flat) == 2:
        (first, a), (second, b) = flat.items()
        swap = len(a) == k != 4 or first == "scores" or second == "box"
        box, scores = (b, a) if swap and not in_order else (a, b)
        if len(box) == 4 and len(scores) == k:
            return box, scores
    raise wrong(
        card,
        f"expected a box of 4 numbers and scores of the card's {k} classes, got {shapes(raw)}; "
        'correct `classes`, or name both outputs in the card: outputs = ["box", "scores"]',
    )
