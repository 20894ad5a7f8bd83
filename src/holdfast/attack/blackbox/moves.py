"""Random moves of a sparse search: blocks of one colour, put down, moved and painted over."""

from __future__ import annotations

import numpy as np

from holdfast.attack.canvas import Canvas, Paint, without
from holdfast.core.types import Bools, Floats

LINE = 3  # pixels: the width of the lines that designs are made of


def design(canvas: Canvas, boxes: Floats, budget: int, rng: np.random.Generator) -> Paint:
    """Paint of a random kind to begin with, in random colours: lines across each box, blocks, or a square.

    Where no more is allowed than the budget, all of it is painted, in blocks.
    """
    if np.count_nonzero(canvas.allowed) <= budget:
        return Paint(canvas.allowed, _blocks(canvas.clean.shape[:2], boxes, rng))
    kind = rng.choice(["lines", "blocks", "square"], p=[0.4, 0.4, 0.2])
    where = np.zeros(canvas.allowed.shape, bool)
    bright = np.zeros(canvas.clean.shape, bool)
    each = max(1, budget // max(1, len(boxes)))
    for box in boxes:
        left = each
        for _ in range(400):
            rows, columns = _stroke(box, each, str(kind), rng)
            fresh = canvas.allowed[rows, columns] & ~where[rows, columns]
            count = int(np.count_nonzero(fresh))
            if not count:
                continue
            if count > left:
                break
            left -= count
            where[rows, columns] |= canvas.allowed[rows, columns]
            bright[rows, columns] = _colour(rng)
            if left <= 0 or kind == "square":
                break
    return Paint(where, bright)


def _blocks(shape: tuple[int, ...], boxes: Floats, rng: np.random.Generator) -> Bools:
    """Colours (h, w, 3) in blocks or stripes, of a size that goes with the boxes'."""
    size = max(
        2.0, float(np.sqrt(np.prod(boxes[:, 2:] - boxes[:, :2], axis=1).mean())) * rng.uniform(0.03, 0.3)
    )
    steps = [round(size * factor) for factor in ((1, 1), (1, 1000), (1000, 1))[int(rng.integers(3))]]
    rows, columns = (-(-side // step) for side, step in zip(shape, steps, strict=True))
    coarse = rng.random((rows, columns, 3)) < 0.5
    y, x = np.arange(shape[0]) // steps[0], np.arange(shape[1]) // steps[1]
    return np.asarray(coarse[y[:, None], x])


def _stroke(box: Floats, budget: int, kind: str, rng: np.random.Generator) -> tuple[slice, slice]:
    """Rows and columns of one line, block or square in the box."""
    x1, y1, x2, y2 = (float(v) for v in box)
    width, height = max(x2 - x1, 1.0), max(y2 - y1, 1.0)
    if kind == "lines":
        if rng.random() < 0.5:
            return _span(rng.uniform(y1, y2), LINE), _span((x1 + x2) / 2, width)
        return _span((y1 + y2) / 2, height), _span(rng.uniform(x1, x2), LINE)
    side = np.sqrt(budget) if kind == "square" else max(2.0, np.sqrt(width * height) * rng.uniform(0.04, 0.2))
    return _span(rng.uniform(y1, y2), min(side, height)), _span(rng.uniform(x1, x2), min(side, width))


def _span(middle: float, length: float) -> slice:
    count = max(1, round(length))
    start = round(middle - count / 2)
    return slice(max(start, 0), max(start + count, 0))


def _colour(rng: np.random.Generator) -> Bools:
    return rng.random(3) < 0.5


def recoloured(paint: Paint, side: int, rng: np.random.Generator) -> Paint:
    """The paint with all that lies in one random window in one colour, of one or of all channels."""
    rows, columns = _window(paint.where, side, rng)
    bright = paint.bright.copy()
    if rng.random() < 0.5:
        bright[rows, columns] = _colour(rng)
    else:
        channel = int(rng.integers(3))
        bright[rows, columns, channel] = ~bright[rows, columns, channel]
    return Paint(paint.where, bright)


def shifted(canvas: Canvas, paint: Paint, budget: int, side: int, rng: np.random.Generator) -> Paint:
    """The paint with a new block of one colour, and as much taken away elsewhere as the budget asks."""
    rows, columns = _window(canvas.allowed, side, rng)
    block = np.zeros_like(paint.where)
    block[rows, columns] = canvas.allowed[rows, columns]
    bright = paint.bright.copy()
    bright[block] = _colour(rng)
    made = Paint(paint.where | block, bright)
    for _ in range(200):
        over = len(made) - budget
        if over <= 0:
            break
        old = made.where & ~block
        if not old.any():
            break
        made = without(made, _some(old, over, max(side, 2), rng))
    return made


def _some(old: Bools, most: int, side: int, rng: np.random.Generator) -> Bools:
    """At most so many pixels of a random window of those there are."""
    rows, columns = _window(old, side, rng)
    gone = np.zeros_like(old)
    gone[rows, columns] = old[rows, columns]
    at = np.flatnonzero(gone)
    if len(at) > most:
        gone.flat[at[most:]] = False
    return gone


def _window(mask: Bools, side: int, rng: np.random.Generator) -> tuple[slice, slice]:
    """A square window around a random pixel of the mask."""
    at = np.flatnonzero(mask)
    y, x = divmod(int(at[rng.integers(len(at))]), mask.shape[1])
    y, x = y - int(rng.integers(side)), x - int(rng.integers(side))
    return slice(max(y, 0), y + side), slice(max(x, 0), x + side)
