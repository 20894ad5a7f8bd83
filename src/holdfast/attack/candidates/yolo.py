"""Candidates of the YOLO heads with a gradient."""

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
    odds_of_product,
    odds_of_two_logits,
    only,
    places,
    taken,
)
from holdfast.core.model import Card
from holdfast.core.registry import stage
from holdfast.graph.candidates import LARGEST_LOG, grid, levels, options_of, wrong
from holdfast.graph.heads.anchor_free import YoloxOptions
from holdfast.graph.heads.decoded import Yolov5Options, Yolov8Options
from holdfast.graph.heads.yolov3 import Options as Yolov3Options
from holdfast.graph.heads.yolov3 import Scale, scales


@stage("candidates")
def yolov3(raw: Mapping[str, Tensor], card: Card) -> Candidates:
    """All cells of the maps: boxes (b, n, 4), scores and energy (b, n, k), scale by scale."""
    rows = joined(raw)
    found = [
        _yolov3_scale(rows, scale) for scale in scales(places(raw), options_of(Yolov3Options, card), card)
    ]
    boxes, logits = (torch.cat(column, dim=1) for column in zip(*found, strict=True))
    object_, classes = logits[..., :1], logits[..., 1:]
    scores = torch.sigmoid(object_) * torch.sigmoid(classes)
    return Candidates(boxes, scores, odds_of_two_logits(object_.expand_as(classes), classes))


def _yolov3_scale(rows: Tensor, scale: Scale) -> tuple[Tensor, Tensor]:
    """Boxes (b, n, 4) and logits (b, n, 1+k) of one scale, in the order anchor, row, column."""
    cells = _yolov3_cells(rows, scale).permute(0, 1, 3, 4, 2)  # (b, A, h, w, 5+k)
    height, width = cells.shape[2:4]
    corner = constant(np.stack(np.meshgrid(np.arange(width), np.arange(height)), axis=2), rows)
    middle = torch.sigmoid(cells[..., :2]) * scale.scale_xy - 0.5 * (scale.scale_xy - 1.0)
    sides = torch.exp(cells[..., 2:4].clamp(max=LARGEST_LOG))
    sides = sides * constant(scale.anchors, rows)[:, None, None, :]
    boxes = from_centres((middle + corner) * scale.stride, sides)
    return boxes.flatten(1, 3), cells[..., 4:].flatten(1, 3)


def _yolov3_cells(rows: Tensor, scale: Scale) -> Tensor:
    """The map's numbers (b, A, 5+k, h, w); a map that lies in one piece is not copied."""
    view = scale.view
    start = int(view.min())
    if np.array_equal(view.ravel(), np.arange(start, start + view.size)):
        return rows[:, start : start + view.size].reshape(len(rows), *view.shape)
    return taken(rows, view)


@stage("candidates")
def yolov5(raw: Mapping[str, Tensor], card: Card) -> Candidates:
    """All rows of the output: boxes (b, n, 4), scores and energy (b, n, k)."""
    chosen = options_of(Yolov5Options, card)
    name, rows = only(raw, chosen.outputs, card)
    if rows.ndim != 3 or rows.shape[2] != 5 + len(card.classes):
        width = 5 + len(card.classes)
        raise wrong(card, f"output {name!r} {tuple(rows.shape)}: expected (b, boxes, {width})")
    unit = constant(card.input.size if chosen.normalised else (1.0, 1.0), rows)
    boxes = from_centres(rows[..., :2] * unit, rows[..., 2:4] * unit)
    object_, class_ = rows[..., 4:5], rows[..., 5:]
    return Candidates(boxes, class_ * object_, odds_of_product(object_, class_))


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
    return Candidates(from_centres(rows[..., :2] * unit, sides), scores, odds_of_probabilities(scores))


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
        height = odds_of_two_logits(object_.expand_as(classes), classes)
    else:
        scores, height = object_ * classes, odds_of_product(object_, classes)
    return Candidates(_yolox_boxes(rows, name, chosen, card), scores, height)


def _yolox_boxes(rows: Tensor, name: str, chosen: YoloxOptions, card: Card) -> Tensor:
    centres, sides = rows[..., :2], rows[..., 2:4]
    if chosen.decoded:
        return from_centres(centres, sides)
    shapes = levels(card.input.size, chosen.strides, rows.shape[1])
    if shapes is None:
        raise wrong(card, f"output {name!r}: {rows.shape[1]} cells are not those of {list(chosen.strides)}")
    cells, stride = (constant(part, rows) for part in grid(shapes, chosen.strides))
    centres = (centres + cells) * stride[:, None]
    return from_centres(centres, torch.exp(sides.clamp(max=LARGEST_LOG)) * stride[:, None])
