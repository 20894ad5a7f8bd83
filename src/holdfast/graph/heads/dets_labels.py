"""Boxes with their scores and labels in two outputs, after NMS: the exports of mmdeploy."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from holdfast.core.model import Card
from holdfast.core.registry import stage
from holdfast.core.types import Detections, Tensor
from holdfast.graph import candidates
from holdfast.graph.candidates import known_labels, named, options_of, shapes, wrong


@dataclass(frozen=True)
class DetsLabelsOptions:
    """Options of a card for dets (1, n, 5) and labels (1, n)."""

    dets: str = "dets"
    labels: str = "labels"
    normalised: bool = False  # boxes in parts of the input (0..1), not in pixels
    label_offset: int = 0  # subtracted from every label


@stage("head", task="detect", nms=False, options=DetsLabelsOptions)
def dets_labels(raw: Mapping[str, Tensor], card: Card) -> Detections:
    """Detections from outputs dets (1, n, 5): x1 y1 x2 y2 score, and labels (1, n); padding is dropped."""
    chosen = options_of(DetsLabelsOptions, card)
    tensors = named(raw, [chosen.dets, chosen.labels], card)
    dets, labels = (tensors[name] for name in (chosen.dets, chosen.labels))
    if dets.ndim not in (2, 3) or dets.shape[-1] != 5 or dets.size != 5 * labels.size:
        advice = 'name the two outputs in the card: dets = "...", labels = "..."'
        raise wrong(card, f"expected dets (1, n, 5) and labels (1, n), got {shapes(tensors)}; {advice}")
    rows = dets.reshape(-1, 5).astype(np.float64)
    classes = np.rint(labels.reshape(-1).astype(np.float64)).astype(np.int64) - chosen.label_offset
    used = np.flatnonzero((rows[:, 4] >= card.score) & (rows[:, 4] > 0) & (classes >= 0))
    unit = np.tile(candidates.pixels(card, chosen.normalised), 2)
    return Detections(rows[used, :4] * unit, rows[used, 4], known_labels(classes[used], card))
