"""The single candidate of a landmark head with a gradient."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from holdfast.attack.gradient.outputs import (
    Candidates,
    constant,
    joined,
    odds_of_probabilities,
    odds_of_softmax,
    places,
    taken,
)
from holdfast.core.model import Card
from holdfast.core.registry import stage
from holdfast.graph.candidates import named, options_of
from holdfast.graph.heads.whole_image import LandmarkOptions, picked


@stage("candidates")
def landmark(raw: Mapping[str, Tensor], card: Card) -> Candidates:
    """One candidate an image: boxes (b, 1, 4), scores and energy (b, 1, k)."""
    chosen = options_of(LandmarkOptions, card)
    rows = joined(raw)
    box, index = picked(named(places(raw), chosen.outputs, card), card, bool(chosen.outputs))
    boxes, scores = taken(rows, box)[:, None], taken(rows, index)[:, None]
    if chosen.normalised:
        boxes = boxes * constant([*card.input.size, *card.input.size], boxes)
    if chosen.activation == "softmax":
        return Candidates(boxes, torch.softmax(scores, dim=-1), odds_of_softmax(scores))
    return Candidates(boxes, scores, odds_of_probabilities(scores))
