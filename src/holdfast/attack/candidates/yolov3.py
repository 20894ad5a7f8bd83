"""YOLOv3's candidates with a gradient: all cells and anchors of all scales."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from holdfast.attack.gradient import energy
from holdfast.attack.gradient.outputs import Candidates, constant, from_centres, joined, places, taken
from holdfast.core.model import Card
from holdfast.core.registry import stage
from holdfast.graph.candidates import LARGEST_LOG, options_of
from holdfast.graph.heads.yolov3 import Options, Scale, scales


@stage("candidates")
def yolov3(raw: Mapping[str, Tensor], card: Card) -> Candidates:
    """All cells of the maps: boxes (b, n, 4), scores and energy (b, n, k), scale by scale."""
    rows = joined(raw)
    found = [_decoded(rows, scale) for scale in scales(places(raw), options_of(Options, card), card)]
    boxes, logits = (torch.cat(column, dim=1) for column in zip(*found, strict=True))
    object_, classes = logits[..., :1], logits[..., 1:]
    scores = torch.sigmoid(object_) * torch.sigmoid(classes)
    return Candidates(boxes, scores, energy.of_two_logits(object_.expand_as(classes), classes))


def _decoded(rows: Tensor, scale: Scale) -> tuple[Tensor, Tensor]:
    """Boxes (b, n, 4) and logits (b, n, 1+k) of one scale, in the order anchor, row, column."""
    cells = _cells(rows, scale).permute(0, 1, 3, 4, 2)  # (b, A, h, w, 5+k)
    height, width = cells.shape[2:4]
    corner = constant(np.stack(np.meshgrid(np.arange(width), np.arange(height)), axis=2), rows)
    middle = torch.sigmoid(cells[..., :2]) * scale.scale_xy - 0.5 * (scale.scale_xy - 1.0)
    sides = torch.exp(cells[..., 2:4].clamp(max=LARGEST_LOG))
    sides = sides * constant(scale.anchors, rows)[:, None, None, :]
    boxes = from_centres((middle + corner) * scale.stride, sides)
    return boxes.flatten(1, 3), cells[..., 4:].flatten(1, 3)


def _cells(rows: Tensor, scale: Scale) -> Tensor:
    """The map's numbers (b, A, 5+k, h, w); a map that lies in one piece is not copied."""
    view = scale.view
    start = int(view.min())
    if np.array_equal(view.ravel(), np.arange(start, start + view.size)):
        return rows[:, start : start + view.size].reshape(len(rows), *view.shape)
    return taken(rows, view)
