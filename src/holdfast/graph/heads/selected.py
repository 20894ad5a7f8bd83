"""The raw form of ONNX NonMaxSuppression: all boxes, all scores, and the indices that were selected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from holdfast.core.model import Card
from holdfast.core.registry import stage
from holdfast.core.types import Detections, Tensor
from holdfast.graph.candidates import from_centres
from holdfast.graph.outputs import named, options_of, shapes, wrong


@dataclass(frozen=True)
class Options:
    """What a card may say of the three outputs."""

    outputs: tuple[str, ...] = ()  # boxes (1, n, 4), scores (1, k, n), selected indices (m, 3)
    form: Literal["yxyx", "xyxy", "cxcywh"] = "yxyx"  # NonMaxSuppression's own order is yxyx
    normalised: bool = False  # boxes in parts of the input (0..1), not in pixels


@stage("head", task="detect", nms=False, options=Options)
def selected(raw: Mapping[str, Tensor], card: Card) -> Detections:
    """The detections at the selected (image, class, box) indices."""
    chosen = options_of(Options, card)
    four, scores, picks = _pick(named(raw, chosen.outputs, card), bool(chosen.outputs), card)
    picks = picks[(picks[:, 0] == 0) & (picks >= 0).all(axis=1)]
    found, values = four[picks[:, 2]], scores[picks[:, 1], picks[:, 2]]
    if chosen.form == "yxyx":
        found = found[:, [1, 0, 3, 2]]
    elif chosen.form == "cxcywh":
        found = from_centres(found[:, :2], found[:, 2:])
    if chosen.form != "cxcywh":  # the operator takes corners in either order
        found = np.concatenate(
            [np.minimum(found[:, :2], found[:, 2:]), np.maximum(found[:, :2], found[:, 2:])], axis=1
        )
    unit = np.array([*card.input.size, *card.input.size], np.float64) if chosen.normalised else 1.0
    used = values >= card.score
    return Detections((found * unit)[used], values[used], picks[used, 1])


def _pick(raw: Mapping[str, Tensor], in_order: bool, card: Card) -> tuple[Tensor, Tensor, Tensor]:
    """Boxes (n, 4), scores (k, n) and selected indices (m, 3): by the card's order, or by type and shape."""
    k = len(card.classes)
    tensors = list(raw.values())
    if not in_order:
        whole = [t for t in tensors if t.dtype.kind in "iu"]
        fours = [t for t in tensors if t.dtype.kind == "f" and t.ndim == 3 and t.shape[2] == 4]
        rest = [t for t in tensors if t.dtype.kind == "f" and not any(t is f for f in fours[:1])]
        tensors = [*fours[:1], *rest, *whole]
    if len(tensors) == 3:
        four, scores, picks = tensors
        fits = four.ndim == 3 and four.shape[2] == 4 and scores.ndim == 3 and scores.shape[1] == k
        if fits and picks.ndim == 2 and picks.shape[1] == 3 and four.shape[1] == scores.shape[2]:
            return four[0].astype(np.float64), scores[0].astype(np.float64), picks.astype(np.int64)
    raise wrong(
        card,
        f"expected boxes (1, n, 4), scores (1, {k} classes, n), selected indices (m, 3), got {shapes(raw)}; "
        "correct `classes`, or name the three outputs in that order in the card",
    )
