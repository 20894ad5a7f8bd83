"""FastestDet's candidates with a gradient."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from holdfast.attack.gradient.outputs import Candidates, constant, from_centres, log_of, odds_of_logs, only
from holdfast.core.model import Card
from holdfast.core.registry import stage
from holdfast.graph.candidates import nominal_stride, options_of, wrong
from holdfast.graph.heads.anchor_free import CLASS, OBJECT, FastestdetOptions


@stage("candidates")
def fastestdet(raw: Mapping[str, Tensor], card: Card) -> Candidates:
    """All cells of the map, row by row: boxes (b, n, 4), scores and energy (b, n, k)."""
    chosen = options_of(FastestdetOptions, card)
    name, value = only(raw, chosen.outputs, card)
    fits = value.ndim == 4 and value.shape[1] == 5 + len(card.classes)
    stride = chosen.stride or (nominal_stride(card.input.size.width, value.shape[3]) if fits else None)
    if not fits or not stride:
        raise wrong(card, f"output {name!r} {tuple(value.shape)}: no map of this card's classes and strides")
    y, x = np.divmod(np.arange(value.shape[2] * value.shape[3]), value.shape[3])
    cells = value.flatten(2).transpose(1, 2)
    object_, class_ = cells[..., :1], cells[..., 5:]
    # Logarithms: the gradient of a power below 1 is infinite at 0.
    logs = OBJECT * log_of(object_) + CLASS * log_of(class_)
    nothing = (object_ <= 0) | (class_ <= 0)
    scores = torch.exp(logs).masked_fill(nothing, 0.0)
    centres = (torch.tanh(cells[..., 1:3]) + constant(np.stack([x, y], axis=1), cells)) * stride
    sides = torch.sigmoid(cells[..., 3:5]) * constant(card.input.size, cells)
    return Candidates(from_centres(centres, sides), scores, odds_of_logs(logs))
