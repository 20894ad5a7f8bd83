"""NanoDet's candidates with a gradient."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from holdfast.attack.gradient.outputs import (
    Candidates,
    constant,
    joined,
    odds_of_probabilities,
    places,
    taken,
)
from holdfast.core.model import Card
from holdfast.core.registry import stage
from holdfast.graph.candidates import grid, levels, named, options_of, wrong
from holdfast.graph.heads.anchor_free import NanodetOptions, paired


@stage("candidates")
def nanodet(raw: Mapping[str, Tensor], card: Card) -> Candidates:
    """All cells of all strides, stride by stride: boxes (b, n, 4), scores and energy (b, n, k)."""
    chosen = options_of(NanodetOptions, card)
    rows = joined(raw)
    boxes, values = [], []
    for scores, bins, strides in paired(named(places(raw), chosen.outputs, card), chosen, card):
        values.append(taken(rows, scores))
        boxes.append(_boxes(taken(rows, bins), strides, chosen.centre, card))
    found = torch.cat(values, dim=1)
    if chosen.activation == "none":
        return Candidates(torch.cat(boxes, dim=1), found, odds_of_probabilities(found))
    return Candidates(torch.cat(boxes, dim=1), torch.sigmoid(found), found)


def _boxes(bins: Tensor, strides: tuple[int, ...], centre: float, card: Card) -> Tensor:
    """Boxes (b, n, 4) from the bins (b, n, 4·bins) of the cells on the grids of these strides."""
    maps = levels(card.input.size, strides, bins.shape[1])
    if maps is None:
        raise wrong(card, f"{bins.shape[1]} cells are not those of strides {list(strides)}, in one way")
    at, stride = grid(maps, strides)
    step = constant(stride[:, None], bins)
    centres = constant((at + centre) * stride[:, None], bins)
    spread = torch.softmax(bins.unflatten(2, (4, -1)), dim=-1)
    far = spread @ constant(np.arange(spread.shape[3]), bins) * step
    return torch.cat([centres - far[..., :2], centres + far[..., 2:]], dim=-1)
