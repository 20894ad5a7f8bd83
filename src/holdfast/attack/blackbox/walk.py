"""The walk of a sparse random search: moves that bring the goal no further away."""

from __future__ import annotations

import dataclasses

import numpy as np

from holdfast.attack.blackbox import moves
from holdfast.attack.blackbox.inquiry import Inquiry
from holdfast.attack.canvas import Paint, cut, fits

STUCK = 1000  # moves in a row that the limits forbid: there is no way on


def block_side(inquiry: Inquiry, spent: float) -> int:
    """The side of a block: a quarter of what is allowed at first, one or two pixels in the end."""
    area = min(int(np.count_nonzero(inquiry.canvas.allowed)), 4 * inquiry.limits.pixels)
    side: float = 0.25 * float(np.sqrt(area)) * 0.5 ** (5.0 * spent)
    return max(1, min(round(side), int(np.sqrt(inquiry.limits.pixels))))


def improved(
    inquiry: Inquiry, paint: Paint, lacks: float, budget: int, end: int, rng: np.random.Generator
) -> tuple[Paint, float]:
    """The paint after moves that never brought the goal further away, until it is reached or all is spent."""
    first = inquiry.queries
    free = dataclasses.replace(inquiry.limits, pixels=budget)
    stuck = 0
    while lacks > 0 and not inquiry.spent(end) and stuck < STUCK:
        side = block_side(inquiry, (inquiry.queries - first) / max(1, end - first))
        if rng.random() < 0.5:
            made = moves.recoloured(paint, side, rng)
        else:
            made = moves.shifted(inquiry.canvas, paint, budget, side, rng)
        made = cut(inquiry.canvas, made, free, rng)
        if not fits(inquiry.canvas, made, free) or not len(made):
            stuck += 1  # no query was spent on it
            continue
        stuck = 0
        now = inquiry.ask(made)
        if now <= lacks:
            paint, lacks = made, now
    return paint, lacks
