"""A search from predictions alone: any runtime, no gradient, no torch.

A sparse random search: paint in extreme colours is put down in blocks, moved and painted over; what brings
the goal no nearer is taken back (in the spirit of Square Attack and Sparse-RS, the loss being what the
detections that match the targets say). After success the paint is thinned out.
"""

from __future__ import annotations

import time

import numpy as np

from holdfast.attack.masks import inside
from holdfast.attack.paint import (
    Inquiry,
    Judge,
    Paint,
    block_side,
    canvas_of,
    cut,
    design,
    empty,
    fits,
    improved,
    painted,
    shifted,
    without,
)
from holdfast.attack.types import Found, Limits, Method, Target
from holdfast.core.registry import part
from holdfast.core.types import Bools, Floats


def search_black(
    judge: Judge, target: Target, method: Method, limits: Limits, rng: np.random.Generator
) -> Found:
    """The best image found by asking `judge`, at most `limits.steps` times a restart."""
    allowed = _allowed(target, method, limits, rng)
    inquiry = Inquiry(judge, target, method, limits, canvas_of(target.image, allowed, limits.amplitude))
    if not allowed.any():
        inquiry.ask(empty(inquiry.canvas))
        return _found(inquiry, "no pixel may be changed: no box meets the image")
    for restart in range(1, limits.restarts + 1):
        paint, lacks = _started(inquiry, rng, restart * limits.steps)
        paint, lacks = improved(inquiry, paint, lacks, limits.pixels, restart * limits.steps, rng)
        if lacks == 0:
            if method.shrink:
                thinned(inquiry, paint, restart * limits.steps, rng)
            return _found(inquiry)
        if inquiry.spent(limits.restarts * limits.steps):
            break
    return _found(inquiry)


def _allowed(target: Target, method: Method, limits: Limits, rng: np.random.Generator) -> Bools:
    """Where paint may lie: in the mask of that name, or, where it would need a gradient, in the boxes."""
    boxed = method.inside and len(target.boxes) > 0  # to fabricate needs no boxes
    within = inside(target) if boxed else np.ones(target.image.shape[:2], bool)
    mask = part("mask", method.mask)
    if mask.facts.get("grows"):
        return within
    found: Bools = mask.function(target, limits.pixels, np.where(within, 0.0, -1.0), rng)
    return found


def _started(inquiry: Inquiry, rng: np.random.Generator, end: int) -> tuple[Paint, float]:
    """The best of some random designs, a tenth of the queries."""
    limits, canvas = inquiry.limits, inquiry.canvas
    boxes = _places(inquiry)
    best, least = empty(canvas), np.inf
    tries = max(3, limits.steps // 10)
    for _ in range(tries):
        if inquiry.spent(end) or least == 0:
            break
        paint = cut(canvas, design(canvas, boxes, limits.pixels, rng), limits, rng)
        if not len(paint) or not fits(canvas, paint, limits):
            continue
        lacks = inquiry.ask(paint)
        if lacks < least:
            best, least = paint, lacks
    if not len(best):  # every design was too large: one block is not
        block = shifted(canvas, best, limits.pixels, block_side(inquiry, 0.0), rng)
        best = cut(canvas, block, limits, rng)
        least = inquiry.ask(best)
    return best, least


def _places(inquiry: Inquiry) -> Floats:
    """The boxes (n, 4) in which designs are laid out."""
    height, width = inquiry.target.image.shape[:2]
    boxed = inquiry.method.inside or inquiry.method.goal != "fabricate"
    if boxed and len(inquiry.target.boxes):
        return np.clip(inquiry.target.boxes.xyxy, 0, [width, height, width, height])
    return np.array([[0.0, 0.0, width, height]])


def _found(inquiry: Inquiry, note: str = "") -> Found:
    """The answer: the image that lacks least, of those the one with the fewest pixels."""
    if inquiry.after is None:
        inquiry.ask(empty(inquiry.canvas))
    after = inquiry.after
    if after is None:
        raise RuntimeError("a question was asked, but nothing was answered")
    lacks, pixels, _ = inquiry.best
    note = note or (f"first success at query {inquiry.first}" if inquiry.first else "")
    trail = tuple({**inquiry.trail, (pixels, lacks == 0): None})
    seconds = time.perf_counter() - inquiry.began
    return Found(inquiry.image, after, lacks == 0, inquiry.queries, seconds, trail, note)


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
        for pixels in _parts(paint, size, rng):
            if inquiry.spent(end):
                return paint
            fewer = without(paint, pixels)
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
    parts = []
    for start in range(0, len(order), size):
        part = np.zeros_like(paint.where)
        chosen = order[start : start + size]
        part[y[chosen], x[chosen]] = True
        parts.append(part)
    rng.shuffle(parts)
    return parts


def _reduced(paint: Paint, budget: int, rng: np.random.Generator) -> Paint:
    for pixels in _parts(paint, max(1, (len(paint) - budget) // 3), rng):
        if len(paint) <= budget:
            break
        paint = without(paint, pixels)
    return paint


def _fainter(inquiry: Inquiry, paint: Paint, end: int) -> None:
    """Ask for the same pixels with less amplitude, halving the interval."""
    low, high = 0, inquiry.limits.amplitude
    while high - low > 4 and not inquiry.spent(end):
        middle = (low + high) // 2
        canvas = canvas_of(inquiry.target.image, inquiry.canvas.allowed, middle)
        lacks = inquiry.ask_image(painted(canvas, paint))
        low, high = (low, middle) if lacks == 0 else (middle, high)
