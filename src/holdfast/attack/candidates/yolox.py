"""YOLOX's candidates with a gradient."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from holdfast.attack.gradient import energy
from holdfast.attack.gradient.outputs import Candidates, constant, from_centres, only
from holdfast.core.model import Card
from holdfast.core.registry import stage
from holdfast.graph.candidates import LARGEST_LOG, grid, levels, options_of, wrong
from holdfast.graph.heads.anchor_free import YoloxOptions


@stage("candidates")
def yolox(raw: Mapping[str, Tensor], card: Card) -> Candidates:
    """All cells of the output: boxes (b, n, 4), scores and energy (b, n, k)."""
    chosen = options_of(YoloxOptions, card)
    name, rows = only(raw, chosen.outputs, card)
    width = 5 + len(card.classes)
    if rows.ndim != 3 or rows.shape[2] != width:
        raise wrong(card, f"output {name!r} {tuple(rows.shape)}: expected (b, cells, {width})")
    object_, classes = rows[..., 4:5], rows[..., 5:]
    if chosen.activation == "sigmoid":
        scores = torch.sigmoid(object_) * torch.sigmoid(classes)
        height = energy.of_two_logits(object_.expand_as(classes), classes)
    else:
        scores, height = object_ * classes, energy.of_product(object_, classes)
    return Candidates(_boxes(rows, name, chosen, card), scores, height)


def _boxes(rows: Tensor, name: str, chosen: YoloxOptions, card: Card) -> Tensor:
    centres, sides = rows[..., :2], rows[..., 2:4]
    if chosen.decoded:
        return from_centres(centres, sides)
    shapes = levels(card.input.size, chosen.strides, rows.shape[1])
    if shapes is None:
        raise wrong(card, f"output {name!r}: {rows.shape[1]} cells are not those of {list(chosen.strides)}")
    cells, stride = (constant(part, rows) for part in grid(shapes, chosen.strides))
    centres = (centres + cells) * stride[:, None]
    return from_centres(centres, torch.exp(sides.clamp(max=LARGEST_LOG)) * stride[:, None])
