"""Candidates as tensors: the output of a detector before thresholds and NMS, with a gradient.

Each function registered as "candidates" is the torch version of the head of the same name in `graph.heads`.
It returns all candidates of a batch: boxes (b, n, 4), scores and energy (b, n, k).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from holdfast.core.errors import InputError
from holdfast.core.model import Card
from holdfast.core.registry import lookup, names, part, stage
from holdfast.core.types import Ints
from holdfast.graph import candidates as shared
from holdfast.graph.candidates import options_of, wrong
from holdfast.graph.heads import anchors as anchor_head
from holdfast.graph.heads import decoded, grids, whole_image
from holdfast.graph.heads.boxes_scores import BoxesScoresOptions, pair
from holdfast.graph.heads.detr import DetrOptions
from holdfast.graph.heads.yolov5_maps import Yolov5MapsOptions

LEAST = 1e-12  # probabilities are clamped to at least this
CLOSEST = 1e-7  # resolution of float32 just below 1
NEVER = -40.0  # energy of a class that a candidate cannot have


@dataclass(frozen=True, eq=False)
class Candidates:
    """All candidates of a batch.

    `boxes` (b, n, 4) xyxy in pixels of the network's input; `scores` (b, n, k) in 0..1, exactly as the head
    computes them; `energy` (b, n, k) is monotonic in the score and does not saturate, like a logit: a loss on
    it still has a gradient where the score is 0.999.
    """

    boxes: Tensor
    scores: Tensor
    energy: Tensor


def candidates_of(card: Card) -> Callable[..., Any]:
    """The function (raw outputs, card) -> Candidates of the card's head. Raise InputError if none exists."""
    if card.head.name in names("candidates"):
        return lookup("candidates", card.head.name)
    head = part("head", card.head.name)
    if head.facts.get("task") not in ("detect", "single", None):
        why = f"expected a detector to attack, got a model for task {card.task!r}"
    elif not head.facts.get("nms", True):
        why = (
            "the graph itself suppresses boxes, which no gradient passes; "
            "attack it from its predictions alone: --black-box"
        )
    else:
        why = (
            "no candidates with a gradient are known for it; attack it with --black-box, "
            f'or register them: @stage("candidates", "{head.name}")'
        )
    raise InputError(f"head {head.name!r}: {why}")


@stage("candidates")
def yolov3(raw: Mapping[str, Tensor], card: Card) -> Candidates:
    """All cells of the maps, scale by scale."""
    rows, options = flatten_outputs(raw), options_of(grids.Yolov3Options, card)
    scales = grids.scales(flat_indices(raw), options, card)
    boxes, logits = [], []
    for scale in scales:  # in the order anchor, row, column
        cells = gather(rows, scale.view).permute(0, 1, 3, 4, 2)  # (b, A, h, w, 5+k)
        height, width = cells.shape[2:4]
        corner = constant(np.stack(np.meshgrid(np.arange(width), np.arange(height)), axis=2), rows)
        middle = torch.sigmoid(cells[..., :2]) * scale.scale_xy - 0.5 * (scale.scale_xy - 1.0)
        sides = torch.exp(cells[..., 2:4].clamp(max=shared.LARGEST_LOG))
        sides = sides * constant(scale.anchors, rows)[:, None, None, :]
        boxes.append(from_centres((middle + corner) * scale.stride, sides).flatten(1, 3))
        logits.append(cells[..., 4:].flatten(1, 3))
    values = torch.cat(logits, dim=1)
    score = _product_of_logits if options.activation == "sigmoid" else _product
    return Candidates(torch.cat(boxes, dim=1), *score(values[..., :1], values[..., 1:]))


@stage("candidates")
def yolov5_maps(raw: Mapping[str, Tensor], card: Card) -> Candidates:
    """All cells of the maps, scale by scale."""
    rows, options = flatten_outputs(raw), options_of(Yolov5MapsOptions, card)
    boxes, values = [], []
    for scale in grids.scales(flat_indices(raw), options, card):
        cells = gather(rows, scale.view).permute(0, 1, 3, 4, 2)  # (b, A, h, w, 5+k)
        height, width = cells.shape[2:4]
        corner = constant(np.stack(np.meshgrid(np.arange(width), np.arange(height)), axis=2), rows)
        box = torch.sigmoid(cells[..., :4]) if options.activation == "sigmoid" else cells[..., :4]
        sides = (2.0 * box[..., 2:]) ** 2 * constant(scale.anchors, rows)[:, None, None, :]
        centres = (2.0 * box[..., :2] - 0.5 + corner) * scale.stride
        boxes.append(from_centres(centres, sides).flatten(1, 3))
        values.append(cells[..., 4:].flatten(1, 3))
    parts = torch.cat(values, dim=1)
    score = _product_of_logits if options.activation == "sigmoid" else _product
    return Candidates(torch.cat(boxes, dim=1), *score(parts[..., :1], parts[..., 1:]))


@stage("candidates")
def boxes_scores(raw: Mapping[str, Tensor], card: Card) -> Candidates:
    """All boxes, each with the scores of its row."""
    return _decoded_pairs(raw, options_of(BoxesScoresOptions, card), card)


@stage("candidates")
def detr(raw: Mapping[str, Tensor], card: Card) -> Candidates:
    """All queries."""
    return _decoded_pairs(raw, options_of(DetrOptions, card), card)


@stage("candidates")
def rtdetr(raw: Mapping[str, Tensor], card: Card) -> Candidates:
    """All queries."""
    options = options_of(decoded.RtdetrOptions, card)
    name, rows = only(raw, options.outputs, card)
    if rows.ndim != 3 or rows.shape[2] != 4 + len(card.classes):
        raise wrong(card, f"output {name!r} {tuple(rows.shape)}: expected 4 + {len(card.classes)} columns")
    unit = constant(shared.pixels(card, options.normalised), rows)
    boxes = from_centres(rows[..., :2] * unit, rows[..., 2:4] * unit)
    return Candidates(boxes, rows[..., 4:], odds_of_probabilities(rows[..., 4:]))


def _decoded_pairs(raw: Mapping[str, Tensor], options: BoxesScoresOptions, card: Card) -> Candidates:
    rows = flatten_outputs(raw)
    box, scores = (gather(rows, index) for index in pair(flat_indices(raw), options, card))
    first = 1 if options.background == "first" else 0
    both = _activated(scores, options.activation)
    values, energy = (part[..., first : first + len(card.classes)] for part in both)
    unit = constant(shared.pixels(card, options.normalised), rows)
    order = [1, 0, 3, 2] if options.form == "yxyx" else [0, 1, 2, 3]
    near, far = (box[..., order] * torch.cat([unit, unit])).split(2, dim=-1)
    if options.form == "cxcywh":
        boxes = from_centres(near, far)
    else:
        boxes = torch.cat([near, near + far if options.form == "xywh" else far], dim=-1)
    return Candidates(boxes, values, energy)


@stage("candidates")
def yolov5(raw: Mapping[str, Tensor], card: Card) -> Candidates:
    """All rows of the output."""
    options = options_of(decoded.Yolov5Options, card)
    _, rows = _rows(raw, options.outputs, card, "boxes", options.trailing)
    unit = constant(card.input.size if options.normalised else (1.0, 1.0), rows)
    boxes = from_centres(rows[..., :2] * unit, rows[..., 2:4] * unit)
    return Candidates(boxes, *_product(rows[..., 4:5], rows[..., 5 : 5 + len(card.classes)]))


@stage("candidates")
def yolov8(raw: Mapping[str, Tensor], card: Card) -> Candidates:
    """All boxes of the output."""
    options = options_of(decoded.Yolov8Options, card)
    name, value = only(raw, options.outputs, card)
    last = 4 + len(card.classes)
    width = last + options.trailing
    if value.ndim != 3 or width not in value.shape[1:]:
        raise wrong(card, f"output {name!r} {tuple(value.shape)}: expected {width} columns or rows")
    rows = value.transpose(1, 2) if value.shape[1] == width else value
    unit = constant(card.input.size if options.normalised else (1.0, 1.0), rows)
    sides, scores = rows[..., 2:4] * unit, rows[..., 4:last]
    if options.angle:  # the upright box around the rotated one
        cos, sin = rows[..., last].cos().abs()[..., None], rows[..., last].sin().abs()[..., None]
        sides = sides * cos + torch.flip(sides, [-1]) * sin
    return Candidates(from_centres(rows[..., :2] * unit, sides), scores, odds_of_probabilities(scores))


@stage("candidates")
def yolox(raw: Mapping[str, Tensor], card: Card) -> Candidates:
    """All cells of the output."""
    options = options_of(grids.YoloxOptions, card)
    name, rows = _rows(raw, options.outputs, card, "cells")
    score = _product_of_logits if options.activation == "sigmoid" else _product
    centres, sides = rows[..., :2], rows[..., 2:4]
    if not options.decoded:
        shapes = shared.levels(card.input.size, options.strides, rows.shape[1])
        if shapes is None:
            cells = f"{rows.shape[1]} cells are not those of {list(options.strides)}"
            raise wrong(card, f"output {name!r}: {cells}")
        corners, stride = (constant(part, rows) for part in shared.grid(shapes, options.strides))
        centres = (centres + corners) * stride[:, None]
        sides = torch.exp(sides.clamp(max=shared.LARGEST_LOG)) * stride[:, None]
    return Candidates(from_centres(centres, sides), *score(rows[..., 4:5], rows[..., 5:]))


@stage("candidates")
def fastestdet(raw: Mapping[str, Tensor], card: Card) -> Candidates:
    """All cells of the map, row by row."""
    options = options_of(grids.FastestdetOptions, card)
    name, value = only(raw, options.outputs, card)
    fits = value.ndim == 4 and value.shape[1] == 5 + len(card.classes)
    stride = options.stride or (fits and shared.nominal_stride(card.input.size.width, value.shape[3]))
    if not fits or not stride:
        raise wrong(card, f"output {name!r} {tuple(value.shape)}: no map of this card's classes and strides")
    y, x = np.divmod(np.arange(value.shape[2] * value.shape[3]), value.shape[3])
    cells = value.flatten(2).transpose(1, 2)
    object_, class_ = cells[..., :1], cells[..., 5:]
    # Logarithms: the gradient of a power below 1 is infinite at 0.
    logs = grids.OBJECT * log_of(object_) + grids.CLASS * log_of(class_)
    scores = torch.exp(logs).masked_fill((object_ <= 0) | (class_ <= 0), 0.0)
    centres = (torch.tanh(cells[..., 1:3]) + constant(np.stack([x, y], axis=1), cells)) * stride
    sides = torch.sigmoid(cells[..., 3:5]) * constant(card.input.size, cells)
    return Candidates(from_centres(centres, sides), scores, odds_of_logs(logs))


@stage("candidates")
def nanodet(raw: Mapping[str, Tensor], card: Card) -> Candidates:
    """All cells of all strides, stride by stride."""
    options = options_of(grids.NanodetOptions, card)
    rows = flatten_outputs(raw)
    outputs = shared.named(flat_indices(raw), options.outputs, card)
    boxes, values = [], []
    for scores, index, strides in grids.paired(outputs, options, card):
        values.append(gather(rows, scores))
        bins = gather(rows, index)  # (b, n, 4·bins)
        maps = shared.levels(card.input.size, strides, bins.shape[1])
        if maps is None:
            raise wrong(card, f"{bins.shape[1]} cells are not those of strides {list(strides)}, in one way")
        cells, stride = shared.grid(maps, strides)
        centres = constant((cells + options.centre) * stride[:, None], bins)
        probabilities = torch.softmax(bins.unflatten(2, (4, -1)), dim=-1)
        means = probabilities @ constant(np.arange(probabilities.shape[3]), bins)
        distances = means * constant(stride[:, None], bins)
        boxes.append(torch.cat([centres - distances[..., :2], centres + distances[..., 2:]], dim=-1))
    return Candidates(torch.cat(boxes, dim=1), *_activated(torch.cat(values, dim=1), options.activation))


@stage("candidates")
def landmark(raw: Mapping[str, Tensor], card: Card) -> Candidates:
    """One candidate per image."""
    options = options_of(whole_image.LandmarkOptions, card)
    rows = flatten_outputs(raw)
    outputs = shared.named(flat_indices(raw), options.outputs, card)
    box, index = whole_image.picked(outputs, card, bool(options.outputs))
    boxes, scores = gather(rows, box)[:, None], gather(rows, index)[:, None]
    if options.normalised:
        boxes = boxes * constant([*card.input.size, *card.input.size], boxes)
    return Candidates(boxes, *_activated(scores, options.activation))


@stage("candidates")
def anchors(raw: Mapping[str, Tensor], card: Card) -> Candidates:
    """All anchors. With deltas per class, a candidate is an anchor with one class: n·k candidates."""
    options = anchor_head.checked(options_of(anchor_head.AnchorsOptions, card), card)
    rows = flatten_outputs(raw)
    index, offsets, base = anchor_head.table(flat_indices(raw), options, card)
    # Proposals are outputs too: then `base` contains their indices.
    base_boxes = gather(rows, base.astype(np.int64)) if options.proposals else constant(base, rows)[None]
    k, first = len(card.classes), 1 if options.background == "first" else 0
    both = _activated(gather(rows, index), options.activation)
    scores, energy = (values[..., first : first + k] for values in both)
    deltas = gather(rows, offsets)
    if deltas.shape[2] == 4:
        return Candidates(_apply_deltas(base_boxes, deltas, options), scores, energy)
    per_class = deltas.unflatten(2, (-1, 4))
    skip = first if per_class.shape[2] > k else 0
    boxes = _apply_deltas(base_boxes.unsqueeze(2), per_class[:, :, skip : skip + k], options).flatten(1, 2)
    return Candidates(boxes, _one_class_each(scores, 0.0), _one_class_each(energy, NEVER))


def _apply_deltas(base_boxes: Tensor, deltas: Tensor, options: anchor_head.AnchorsOptions) -> Tensor:
    """Boxes (..., 4) from anchors and deltas: graph.candidates.apply_deltas."""
    deltas = deltas * constant(options.stds, deltas) + constant(options.means, deltas)
    sides = base_boxes[..., 2:] - base_boxes[..., :2]
    centres = deltas[..., :2] * sides + base_boxes[..., :2] + 0.5 * sides
    sides = torch.exp(deltas[..., 2:].clamp(max=shared.LARGEST)) * sides
    return from_centres(centres, sides) - constant([0.0, 0.0, options.offset, options.offset], deltas)


def _one_class_each(values: Tensor, other: float) -> Tensor:
    """(b, n·k, k) from (b, n, k): candidate i·k + c has the value of class c of row i, else `other`."""
    own_class = torch.eye(values.shape[2], dtype=torch.bool, device=values.device)
    return torch.where(own_class, values.unsqueeze(2), other).flatten(1, 2)


def flat_indices(raw: Mapping[str, Tensor]) -> dict[str, Ints]:
    """Per output, the indices (1, ...) of its values in the row that `flatten_outputs` returns."""
    indices, start = {}, 0
    for name, value in raw.items():
        count = math.prod(value.shape[1:])
        indices[name] = np.arange(start, start + count).reshape(1, *value.shape[1:])
        start += count
    return indices


def flatten_outputs(raw: Mapping[str, Tensor]) -> Tensor:
    """All outputs of each image in one row (b, n)."""
    return torch.cat([value.flatten(1) for value in raw.values()], dim=1)


def gather(rows: Tensor, index: Ints) -> Tensor:
    """The values (b, ...) of the rows at these indices (...)."""
    return rows[:, torch.from_numpy(np.ascontiguousarray(index, np.int64))]


def only(raw: Mapping[str, Tensor], outputs: Sequence[str], card: Card) -> tuple[str, Tensor]:
    """Name and value of the named or only output; otherwise raise the same error as the numpy heads."""
    name, _ = shared.single(flat_indices(raw), outputs, card)
    return name, raw[name]


def _rows(
    raw: Mapping[str, Tensor], outputs: Sequence[str], card: Card, what: str, trailing: int = 0
) -> tuple[str, Tensor]:
    """The one output (b, n, 5+k+trailing): box, objectness, classes."""
    name, rows = only(raw, outputs, card)
    width = 5 + len(card.classes) + trailing
    if rows.ndim != 3 or rows.shape[2] != width:
        raise wrong(card, f"output {name!r} {tuple(rows.shape)}: expected (b, {what}, {width})")
    return name, rows


def constant(values: object, like: Tensor) -> Tensor:
    """An array as a tensor of the same type and device."""
    return torch.as_tensor(np.asarray(values), dtype=like.dtype, device=like.device)


def from_centres(centres: Tensor, sides: Tensor) -> Tensor:
    """Boxes (..., 4) xyxy from centres (..., 2) and sides (..., 2)."""
    return torch.cat([centres - 0.5 * sides, centres + 0.5 * sides], dim=-1)


def _product(objects: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
    """Scores and energy of the product of two probabilities."""
    return classes * objects, odds_of_logs(log_of(objects) + log_of(classes))


def _product_of_logits(objects: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
    """Scores and energy of the product of two sigmoids."""
    scores = torch.sigmoid(objects) * torch.sigmoid(classes)
    return scores, odds_of_two_logits(objects.expand_as(classes), classes)


def _activated(values: Tensor, activation: str) -> tuple[Tensor, Tensor]:
    """Scores and energy of the network's output per class, including the background."""
    if activation == "sigmoid":
        return torch.sigmoid(values), values
    if activation != "softmax":
        return values, odds_of_probabilities(values)
    energy = values
    if values.shape[-1] > 1:
        # The top class is compared with the others directly: 1 - p would be 0 in float32.
        top = functional.one_hot(values.argmax(dim=-1), values.shape[-1]).bool()
        rest = torch.logsumexp(values.masked_fill(top, -math.inf), dim=-1, keepdim=True)
        energy = torch.where(top, values - rest, odds_of_logs(torch.log_softmax(values, dim=-1)))
    return torch.softmax(values, dim=-1), energy


def odds_of_logs(log_p: Tensor) -> Tensor:
    """The log-odds log p - log(1 - p) from log p <= 0; near p = 1 the slope stays finite."""
    log_p = _clamped(log_p, -math.inf, -CLOSEST)
    return log_p - torch.log(-torch.expm1(log_p))


def odds_of_probabilities(p: Tensor) -> Tensor:
    """The log-odds of values that are probabilities already."""
    p = _clamped(p, LEAST, 1.0 - CLOSEST)
    return torch.log(p) - torch.log1p(-p)


def log_of(p: Tensor) -> Tensor:
    """The logarithm of a probability, finite at 0."""
    return torch.log(_clamped(p, LEAST, 1.0))


def odds_of_two_logits(first: Tensor, second: Tensor) -> Tensor:
    """The log-odds of the product of two sigmoids, exact: 1/p = (1 + e^-a)(1 + e^-b)."""
    low, high = torch.minimum(first, second), torch.maximum(first, second)
    # log-odds = -log(e^-a + e^-b + e^-(a+b)); written so that no term overflows
    return low - torch.logaddexp(functional.softplus(low - high), -high)


def _clamped(values: Tensor, least: float, most: float) -> Tensor:
    # Straight-through gradient: an attack needs it where the network is most confident.
    return values + (values.clamp(least, most) - values).detach()
