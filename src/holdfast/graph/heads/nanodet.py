"""NanoDet: class scores and, for each side of the box, a distribution over distances (GFL bins)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from holdfast.core.model import Card
from holdfast.core.registry import stage
from holdfast.core.types import Detections, Floats, Ints, Tensor
from holdfast.graph.candidates import above, grid, levels, logit, sigmoid, softmax
from holdfast.graph.outputs import named, one_image, options_of, shapes, wrong


@dataclass(frozen=True)
class Options:
    """What a card may say of NanoDet outputs."""

    outputs: tuple[str, ...] = ()  # class scores stride by stride, then bins stride by stride
    strides: tuple[int, ...] = (8, 16, 32)
    activation: Literal["none", "sigmoid"] = "none"  # for class scores; exports mostly apply it
    centre: float = 0.5  # where in its cell a point lies: 0.5 for NanoDet, 0 for NanoDet-Plus
    multi_label: bool = True  # every class of a box that reaches the threshold, not only its best


@stage("head", task="detect", nms=True, options=Options)
def nanodet(raw: Mapping[str, Tensor], card: Card) -> Detections:
    """Candidates from (1, n, k) and (1, n, 4·bins) at each stride, or from one (1, n, k + 4·bins)."""
    chosen = options_of(Options, card)
    parts = [
        _decode(*level, chosen, card) for level in paired(named(raw, chosen.outputs, card), chosen, card)
    ]
    boxes, scores, classes = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Detections(boxes, scores, classes)


def _decode(
    scores: Tensor, bins: Tensor, strides: tuple[int, ...], chosen: Options, card: Card
) -> tuple[Floats, Floats, Ints]:
    """Boxes, scores and classes of cells (n, k) and (n, 4·bins) that lie on the grids of these strides."""
    least = card.score if chosen.activation == "none" else logit(card.score)
    used = np.flatnonzero(scores.max(axis=1) >= least)
    cells = scores[used].astype(np.float64)
    probabilities = cells if chosen.activation == "none" else sigmoid(cells)
    rows, classes, found = above(probabilities, card.score, chosen.multi_label)
    maps = levels(card.input.size, strides, len(scores))
    if maps is None:
        width, height = card.input.size
        raise wrong(
            card,
            f"{len(scores)} cells are not those of stride {', '.join(map(str, strides))} of a "
            f"{width}×{height} input, in one way; correct `size` or `strides` in the card",
        )
    places, stride = (a[used] for a in grid(maps, strides))
    centres = (places + chosen.centre) * stride[:, None]
    # GFL: the distance to a side is the mean of its distribution over 0, 1, 2, ... strides.
    spread = softmax(bins[used].reshape(len(used), 4, bins.shape[1] // 4))
    far = spread @ np.arange(spread.shape[2], dtype=np.float64) * stride[:, None]
    boxes = np.concatenate([centres - far[:, :2], centres + far[:, 2:]], axis=1)
    return boxes[rows], found, classes


def paired(
    outputs: Mapping[str, Tensor], chosen: Options, card: Card
) -> list[tuple[Tensor, Tensor, tuple[int, ...]]]:
    """Class scores (n, k), bins (n, 4·bins) and strides of each pair of outputs."""
    k = len(card.classes)
    flat = [one_image(name, value, card) for name, value in outputs.items()]
    if all(t.ndim == 2 for t in flat):
        if len(flat) == 1 and flat[0].shape[1] > k and (flat[0].shape[1] - k) % 4 == 0:
            return [(flat[0][:, :k], flat[0][:, k:], chosen.strides)]
        count = len(chosen.strides)
        scores = flat[:count] if chosen.outputs else [t for t in flat if t.shape[1] == k]
        bins = flat[count:] if chosen.outputs else [t for t in flat if t.shape[1] != k]
        scores, bins = (sorted(group, key=lambda t: -len(t)) for group in (scores, bins))
        order = sorted(chosen.strides)
        fits = len(scores) == len(bins) == count and all(
            len(s) == len(b) and s.shape[1] == k and b.shape[1] % 4 == 0
            for s, b in zip(scores, bins, strict=True)
        )
        if fits:
            return [(s, b, (stride,)) for s, b, stride in zip(scores, bins, order, strict=True)]
    raise wrong(
        card,
        f"expected scores (1, cells, {k} classes) and bins (1, cells, 4·bins) at "
        f"{len(chosen.strides)} strides, got {shapes(outputs)}; "
        "correct `classes`, `strides` or `outputs` in the card",
    )
