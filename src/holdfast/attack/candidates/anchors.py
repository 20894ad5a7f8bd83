"""Candidates of anchors and deltas (RetinaNet, SSD, the second stage of Faster R-CNN) with a gradient."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from holdfast.attack.gradient.outputs import (
    Candidates,
    constant,
    from_centres,
    joined,
    odds_of_probabilities,
    odds_of_softmax,
    places,
    taken,
)
from holdfast.core.model import Card
from holdfast.core.registry import stage
from holdfast.graph.candidates import LARGEST, options_of
from holdfast.graph.heads.anchors import Options, checked, table

NEVER = -40.0  # energy of a class that a candidate cannot have


@stage("candidates")
def anchors(raw: Mapping[str, Tensor], card: Card) -> Candidates:
    """All anchors: boxes (b, n, 4), scores and energy (b, n, k).

    Where each class has deltas of its own, a candidate is an anchor with one class: n·k of them.
    """
    chosen = checked(options_of(Options, card), card)
    rows = joined(raw)
    index, offsets, base = table(places(raw), chosen, card)
    # Proposals are outputs too: then `base` holds their places.
    own = taken(rows, base.astype(np.int64)) if chosen.proposals else constant(base, rows)[None]
    k, first = len(card.classes), 1 if chosen.background == "first" else 0
    logits = taken(rows, index)
    scores, rising = _scored(logits, chosen)
    scores, rising = scores[..., first : first + k], rising[..., first : first + k]
    deltas = taken(rows, offsets)
    if deltas.shape[2] == 4:
        return Candidates(_moved(own, deltas, chosen), scores, rising)
    each = deltas.unflatten(2, (-1, 4))
    skip = first if each.shape[2] > k else 0
    boxes = _moved(own.unsqueeze(2), each[:, :, skip : skip + k], chosen).flatten(1, 2)
    return Candidates(boxes, _alone(scores, 0.0), _alone(rising, NEVER))


def _scored(logits: Tensor, chosen: Options) -> tuple[Tensor, Tensor]:
    """Scores and energy of what the network says of each class, the background among them."""
    if chosen.activation == "sigmoid":
        return torch.sigmoid(logits), logits
    if chosen.activation == "softmax":
        return torch.softmax(logits, dim=-1), odds_of_softmax(logits)
    return logits, odds_of_probabilities(logits)


def _moved(own: Tensor, deltas: Tensor, chosen: Options) -> Tensor:
    """Boxes (..., 4) from anchors and deltas: graph.candidates.apply_deltas."""
    deltas = deltas * constant(chosen.stds, deltas) + constant(chosen.means, deltas)
    sides = own[..., 2:] - own[..., :2]
    centres = deltas[..., :2] * sides + own[..., :2] + 0.5 * sides
    sides = torch.exp(deltas[..., 2:].clamp(max=LARGEST)) * sides
    return from_centres(centres, sides) - constant([0.0, 0.0, chosen.offset, chosen.offset], deltas)


def _alone(values: Tensor, other: float) -> Tensor:
    """(b, n·k, k) from (b, n, k): candidate i·k + c has the value of class c of row i, else `other`."""
    k = values.shape[2]
    mine = torch.eye(k, dtype=torch.bool, device=values.device)
    return torch.where(mine, values.unsqueeze(2), other).flatten(1, 2)
