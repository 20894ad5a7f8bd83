"""FastestDet: one map of one scale, no anchors, no suppression of neighbours but NMS."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from holdfast.core.model import Card
from holdfast.core.registry import stage
from holdfast.core.types import Detections, Tensor
from holdfast.graph.candidates import above, from_centres, nominal_stride, sigmoid
from holdfast.graph.outputs import one_image, options_of, single, wrong

OBJECT, CLASS = 0.6, 0.4  # score = objectness^0.6 · class^0.4


@dataclass(frozen=True)
class Options:
    """What a card may say of a FastestDet output."""

    outputs: tuple[str, ...] = ()
    stride: int = 0  # without: the power of two by which the map is smaller than the input


@stage("head", task="detect", nms=True, options=Options)
def fastestdet(raw: Mapping[str, Tensor], card: Card) -> Detections:
    """Candidates from a map (1, 5+k, h, w): objectness, x y w h raw, class probabilities."""
    chosen = options_of(Options, card)
    name, value = single(raw, chosen.outputs, card)
    found = one_image(name, value, card)
    if found.ndim != 3 or found.shape[0] != 5 + len(card.classes):
        raise wrong(
            card,
            f"output {name!r} {value.shape}: expected (1, 5 + {len(card.classes)} classes, height, width); "
            "correct `classes` in the card",
        )
    stride = chosen.stride or nominal_stride(card.input.size.width, found.shape[2])
    if not stride:
        raise wrong(
            card,
            f"output {name!r} {value.shape}: {found.shape[2]} columns are no stride of an input of width "
            f"{card.input.size.width}; correct `size` or give `stride` in the card",
        )
    # A class probability is at most 1, so the objectness alone already bounds the score.
    y, x = np.nonzero(found[0] >= card.score ** (1.0 / OBJECT) * (1.0 - 1e-6))
    cells = found[:, y, x].T.astype(np.float64)
    joint = np.maximum(cells[:, :1], 0.0) ** OBJECT * np.maximum(cells[:, 5:], 0.0) ** CLASS
    index, classes, scores = above(joint, card.score, every=False)
    cells = cells[index]
    centres = (np.tanh(cells[:, 1:3]) + np.stack([x[index], y[index]], axis=1)) * stride
    sides = sigmoid(cells[:, 3:5]) * np.array(card.input.size, np.float64)
    return Detections(from_centres(centres, sides), scores, classes)
