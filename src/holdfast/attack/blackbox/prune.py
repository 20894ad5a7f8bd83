"""Paint thinned out after success: fewer pixels, then less amplitude, from predictions alone."""

from __future__ import annotations

import numpy as np

from holdfast.attack.blackbox.moves import Inquiry, improved
from holdfast.attack.canvas import Paint, canvas_of, fits, painted, without
from holdfast.core.types import Bools


def thinned(inquiry: Inquiry, paint: Paint, end: int, rng: np.random.Generator) -> None:
    """Remove paint; the inquiry keeps the fewest pixels it has seen succeed.

    Parts are taken away as long as the goal stays reached; where nothing more can go, a part is taken
    nevertheless and the search goes on with the smaller budget.
    """
    last = max(8, (end - inquiry.queries) // 50)  # queries kept for the amplitude
    paint = _without_parts(inquiry, paint, end - last, rng)
    while not inquiry.spent(end - last) and len(paint) > 1:
        budget = max(1, int(0.85 * len(paint)))
        fewer = _reduced(paint, budget, rng)
        if not fits(inquiry.canvas, fewer, inquiry.limits):
            break
        patience = min(end - last, inquiry.queries + max(40, (end - inquiry.queries) // 3))
        made, lacks = improved(inquiry, fewer, inquiry.ask(fewer), budget, patience, rng)
        if lacks > 0:
            break
        paint = _without_parts(inquiry, made, end - last, rng)
    _fainter(inquiry, paint, end)


def _without_parts(inquiry: Inquiry, paint: Paint, end: int, rng: np.random.Generator) -> Paint:
    """The paint without every part that is not needed; parts halve from an eighth to single pixels."""
    size = max(1, len(paint) // 8)
    while True:
        for part in _parts(paint, size, rng):
            if inquiry.spent(end):
                return paint
            fewer = without(paint, part)
            if len(fewer) and fits(inquiry.canvas, fewer, inquiry.limits) and inquiry.ask(fewer) == 0:
                paint = fewer
        if size == 1 or len(paint) // size > 256:
            return paint
        size = max(1, size // 2)


def _parts(paint: Paint, size: int, rng: np.random.Generator) -> list[Bools]:
    """The painted pixels cut into parts of about that size that lie together, in random order."""
    y, x = np.nonzero(paint.where)
    step = max(1, int(np.sqrt(size)))
    order = np.lexsort([x % step, y % step, x // step, y // step])
    made = []
    for start in range(0, len(order), size):
        part = np.zeros_like(paint.where)
        chosen = order[start : start + size]
        part[y[chosen], x[chosen]] = True
        made.append(part)
    rng.shuffle(made)
    return made


def _reduced(paint: Paint, budget: int, rng: np.random.Generator) -> Paint:
    for part in _parts(paint, max(1, (len(paint) - budget) // 3), rng):
        if len(paint) <= budget:
            break
        paint = without(paint, part)
    return paint


def _fainter(inquiry: Inquiry, paint: Paint, end: int) -> None:
    """Ask for the same pixels with less amplitude, halving the interval."""
    low, high = 0, inquiry.limits.amplitude
    while high - low > 4 and not inquiry.spent(end):
        middle = (low + high) // 2
        canvas = canvas_of(inquiry.target.image, inquiry.canvas.allowed, middle)
        lacks = inquiry.ask_image(painted(canvas, paint))
        low, high = (low, middle) if lacks == 0 else (middle, high)
