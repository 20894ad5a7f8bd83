"""Anchors and deltas: RetinaNet and SSD over maps, or the second stage of Faster R-CNN over proposals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from holdfast.core.model import Card
from holdfast.core.registry import stage
from holdfast.core.types import Detections, Floats, Tensor
from holdfast.graph import candidates
from holdfast.graph.candidates import Exp, above, bounded_exp, levels, named, options_of, shapes, wrong

Maps: TypeAlias = Sequence[tuple[int, int]]  # rows and columns of each level


@dataclass(frozen=True)
class AnchorsOptions:
    """Options of a card for anchors and for the outputs that refer to them."""

    outputs: tuple[str, ...] = ()  # scores level by level, then deltas level by level
    proposals: str = ""  # the output that holds the boxes the deltas refer to, in place of anchors
    strides: tuple[int, ...] = (8, 16, 32, 64, 128)
    sizes: tuple[float, ...] = ()  # side of the square anchor of each level; without: 4 strides
    ratios: tuple[float, ...] = (0.5, 1.0, 2.0)  # height over width
    scales: tuple[float, ...] = (1.0, 2 ** (1 / 3), 2 ** (2 / 3))
    major: Literal["ratios", "scales"] = "ratios"  # which of the two changes slowest from anchor to anchor
    centre: float = 0.0  # where in its cell an anchor has its centre, in strides
    whole: bool = False  # corners of the anchors rounded to whole pixels
    means: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0)
    stds: tuple[float, ...] = (1.0, 1.0, 1.0, 1.0)
    offset: float = 0.0  # ALIGNED_FLAG.offset: subtracted from the right and lower side
    activation: Literal["sigmoid", "softmax", "none"] = "sigmoid"
    background: Literal["none", "first", "last"] = "none"  # where the scores hold a class for "nothing"
    multi_label: bool = True  # every class of a box that reaches the threshold, not only its best


@stage("head", task="detect", nms=True, options=AnchorsOptions, exp=lambda chosen: "clamped")
def anchors(raw: Mapping[str, Tensor], card: Card, exp: Exp = bounded_exp) -> Detections:
    """Candidates from scores (1, n, k) and deltas (1, n, 4), or maps (1, A·k, h, w) and (1, A·4, h, w)."""
    chosen = checked(options_of(AnchorsOptions, card), card)
    scores, deltas, boxes = table(raw, chosen, card)
    k = len(card.classes)
    first = 1 if chosen.background == "first" else 0
    values = candidates.softmax(scores) if chosen.activation == "softmax" else scores
    values, is_logit = values[:, first : first + k], chosen.activation == "sigmoid"
    used = np.flatnonzero(values.max(axis=1) >= (candidates.logit(card.score) if is_logit else card.score))
    values = candidates.sigmoid(values[used]) if is_logit else values[used].astype(np.float64)
    rows, classes, selected_scores = above(values, card.score, chosen.multi_label)
    cells = used[rows]
    own = deltas[cells].astype(np.float64)
    if own.shape[1] > 4:  # deltas of their own for every class, with or without the background
        own = own.reshape(len(own), own.shape[1] // 4, 4)
        own = own[np.arange(len(own)), classes + (first if own.shape[1] > k else 0)]
    moved = candidates.apply_deltas(boxes[cells], own, chosen.means, chosen.stds, chosen.offset, exp=exp)
    return Detections(moved, selected_scores, classes)


def checked(chosen: AnchorsOptions, card: Card) -> AnchorsOptions:
    """The same options, or CardError if their lengths do not fit together."""
    for name in ("means", "stds"):
        if len(getattr(chosen, name)) != 4:
            raise wrong(card, f"{name}: expected 4 numbers for x y w h, got {list(getattr(chosen, name))}")
    if chosen.sizes and len(chosen.sizes) != len(chosen.strides):
        expected = f"expected {len(chosen.strides)}, one for each stride"
        raise wrong(card, f"sizes: {expected}, got {list(chosen.sizes)}")
    return chosen


def table(raw: Mapping[str, Tensor], chosen: AnchorsOptions, card: Card) -> tuple[Tensor, Tensor, Floats]:
    """Scores (n, k), deltas (n, 4 or 4·k) and the boxes (n, 4) they refer to."""
    boxes: Floats | None = None
    if chosen.proposals:
        boxes = np.asarray(named(raw, [chosen.proposals], card)[chosen.proposals], np.float64).reshape(-1, 4)
        raw = {name: value for name, value in raw.items() if name != chosen.proposals}
    outputs = named(raw, chosen.outputs, card)
    pairs = _pairs(list(outputs.values()), chosen, card)
    width = len(card.classes) + (chosen.background != "none")
    wide = (4, 4 * len(card.classes), 4 * width)  # deltas for all classes together, or for each
    fits = pairs and all(s.shape[1] == width and d.shape[1] in wide and len(s) == len(d) for s, d in pairs)
    if not fits:
        expected = f"{width} scores and 4 deltas for each of {_per_cell(chosen)} anchors per cell"
        advice = "correct `classes`, `background`, `ratios`, `scales` or `outputs`"
        raise wrong(card, f"expected {expected}, got {shapes(outputs)}; {advice}")
    scores, deltas = (np.concatenate(group) for group in zip(*pairs, strict=True))
    if boxes is None:
        boxes = _all_anchors(_sizes(outputs, len(scores), chosen, card), chosen)
    if len(boxes) != len(scores):
        raise wrong(card, f"expected a proposal for each of {len(scores)} scores, got {len(boxes)}")
    return scores, deltas, boxes


def _per_cell(chosen: AnchorsOptions) -> int:
    return len(chosen.ratios) * len(chosen.scales)


def _pairs(tensors: list[Tensor], chosen: AnchorsOptions, card: Card) -> list[tuple[Tensor, Tensor]]:
    """Scores (n, k) and deltas (n, 4·) of each level; empty if they cannot be distinguished."""
    width = len(card.classes) + (chosen.background != "none")
    if any(t.ndim not in (2, 3, 4) for t in tensors) or len(tensors) % 2:
        return []
    if any(t.ndim == 4 for t in tensors):
        return _map_pairs(tensors, width, chosen)
    flat = [t.reshape(-1, t.shape[-1]) for t in tensors]
    if len(flat) == 2 and not chosen.outputs and flat[0].shape[1] != width:
        flat.reverse()
    half = len(flat) // 2
    return list(zip(flat[:half], flat[half:], strict=True))


def _map_pairs(tensors: list[Tensor], width: int, chosen: AnchorsOptions) -> list[tuple[Tensor, Tensor]]:
    """The pairs from maps (1, A·k, h, w) and (1, A·4, h, w), largest map first."""
    count = _per_cell(chosen)
    half = len(tensors) // 2
    scores = tensors[:half] if chosen.outputs else [t for t in tensors if t.shape[1] == count * width]
    deltas = tensors[half:] if chosen.outputs else [t for t in tensors if t.shape[1] == count * 4]
    if len(scores) != half or len(deltas) != half or any(t.ndim != 4 or t.shape[1] % count for t in tensors):
        return []
    scores, deltas = (sorted(group, key=lambda t: -t.shape[2] * t.shape[3]) for group in (scores, deltas))

    # (1, A·c, h, w) to rows in the order y, x, anchor: the order of the anchors.
    def rows(t: Tensor) -> Tensor:
        by_anchor = t[0].reshape(count, -1, *t.shape[2:])
        return np.reshape(by_anchor.transpose(2, 3, 0, 1), (-1, t.shape[1] // count))

    return [(rows(score), rows(delta)) for score, delta in zip(scores, deltas, strict=True)]


def _sizes(outputs: Mapping[str, Tensor], count: int, chosen: AnchorsOptions, card: Card) -> Maps:
    """Rows and columns of each level, finest first: those of the maps, or those that have `count` anchors."""
    strides = tuple(sorted(chosen.strides))
    # Two maps of each level; two levels of a small input may have the same size.
    map_sizes = sorted(((t.shape[2], t.shape[3]) for t in outputs.values() if t.ndim == 4), reverse=True)
    maps: Maps | None = map_sizes[::2]
    per_cell = _per_cell(chosen)
    if not map_sizes:
        maps = levels(card.input.size, strides, count // per_cell) if count % per_cell == 0 else None
    width, height = card.input.size
    near = zip(strides, maps or (), strict=False)
    fits = all(abs(height / s - h) <= 1 and abs(width / s - w) <= 1 for s, (h, w) in near)
    if maps is None or len(maps) != len(strides) or not fits:
        expected = f"{per_cell} per cell at strides {list(strides)} of a {width}×{height} input, in one way"
        advice = "correct `size`, `strides`, `ratios` or `scales` in the card"
        raise wrong(card, f"{count} anchors are not {expected}; {advice}")
    return maps


def _all_anchors(maps: Maps, chosen: AnchorsOptions) -> Floats:
    """The anchors (n, 4) of all levels, in the order of the outputs' rows."""
    sizes = chosen.sizes or [4.0 * stride for stride in chosen.strides]
    finest_first = sorted(zip(chosen.strides, sizes, strict=True), key=lambda level: level[0])
    parts = []
    for (stride, size), (rows, columns) in zip(finest_first, maps, strict=True):
        base = candidates.base_anchors(size, chosen.ratios, chosen.scales, chosen.major, chosen.whole)
        parts.append(candidates.spread(base, rows, columns, stride, chosen.centre))
    return np.concatenate(parts)
