"""YOLOX: one tensor over the grids of all strides, anchor-free."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from holdfast.core.model import Card
from holdfast.core.registry import stage
from holdfast.core.types import Detections, Floats, Tensor
from holdfast.graph.candidates import above, bounded_exp, from_centres, grid, levels, logit, sigmoid
from holdfast.graph.outputs import one_image, options_of, single, wrong


@dataclass(frozen=True)
class Options:
    """What a card may say of a YOLOX output."""

    outputs: tuple[str, ...] = ()
    strides: tuple[int, ...] = (8, 16, 32)
    decoded: bool = False  # whether the graph already turned cells into centres and sides in pixels
    activation: Literal["none", "sigmoid"] = "none"  # for objectness and classes; exports mostly apply it
    multi_label: bool = False  # every class of a box that reaches the threshold, not only its best


@stage("head", task="detect", nms=True, options=Options, exp=lambda chosen: "" if chosen.decoded else "plain")
def yolox(raw: Mapping[str, Tensor], card: Card, exp: Callable[[Tensor], Floats] = bounded_exp) -> Detections:
    """Candidates from an output (1, n, 5+k): x y w h objectness classes, cells stride by stride."""
    chosen = options_of(Options, card)
    name, value = single(raw, chosen.outputs, card)
    rows = one_image(name, value, card)
    if rows.ndim != 2 or rows.shape[1] != 5 + len(card.classes):
        raise wrong(
            card,
            f"output {name!r} {value.shape}: expected (1, cells, 5 + {len(card.classes)} classes); "
            "correct `classes` in the card",
        )
    shapes = levels(card.input.size, chosen.strides, len(rows))
    if shapes is None and not chosen.decoded:
        raise wrong(
            card,
            f"output {name!r}: {len(rows)} cells are not those of strides {list(chosen.strides)} of a "
            f"{card.input.size.width}×{card.input.size.height} input, in one way; "
            "correct `size` or `strides`",
        )
    least = card.score if chosen.activation == "none" else logit(card.score)
    used = np.flatnonzero(rows[:, 4] >= least)
    cells = rows[used].astype(np.float64)
    parts = cells[:, 4:] if chosen.activation == "none" else sigmoid(cells[:, 4:])
    index, classes, scores = above(parts[:, 1:] * parts[:, :1], card.score, chosen.multi_label)
    centres, sides = cells[index, :2], cells[index, 2:4]
    if shapes is not None and not chosen.decoded:
        places, stride = (a[used[index]] for a in grid(shapes, chosen.strides))
        centres = (centres + places) * stride[:, None]
        sides = exp(sides) * stride[:, None]
    return Detections(from_centres(centres, sides), scores, classes)
