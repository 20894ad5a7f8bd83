"""YOLOv8's candidates with a gradient."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from holdfast.attack.gradient import energy
from holdfast.attack.gradient.outputs import Candidates, constant, from_centres, only
from holdfast.core.model import Card
from holdfast.core.registry import stage
from holdfast.graph.candidates import options_of, wrong
from holdfast.graph.heads.decoded import Yolov8Options


@stage("candidates")
def yolov8(raw: Mapping[str, Tensor], card: Card) -> Candidates:
    """All boxes of the output: boxes (b, n, 4), scores and energy (b, n, k)."""
    chosen = options_of(Yolov8Options, card)
    name, value = only(raw, chosen.outputs, card)
    last = 4 + len(card.classes)
    width = last + chosen.trailing
    if value.ndim != 3 or width not in value.shape[1:]:
        raise wrong(card, f"output {name!r} {tuple(value.shape)}: expected {width} columns or rows")
    rows = value.transpose(1, 2) if value.shape[1] == width else value
    unit = constant(card.input.size if chosen.normalised else (1.0, 1.0), rows)
    sides, scores = rows[..., 2:4] * unit, rows[..., 4:last]
    if chosen.angle:  # the upright box around the rotated one
        cos, sin = rows[..., last].cos().abs()[..., None], rows[..., last].sin().abs()[..., None]
        sides = sides * cos + torch.flip(sides, [-1]) * sin
    return Candidates(from_centres(rows[..., :2] * unit, sides), scores, energy.of_probabilities(scores))
