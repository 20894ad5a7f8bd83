"""An image under a sparse attack: the painted pixels, questions to a model about them, and random moves."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from holdfast.attack.judge import shortfall
from holdfast.attack.masks import count_regions, heaviest, labelled
from holdfast.attack.types import Limits, Method, Target
from holdfast.core.patch import amplitude, changed, changed_pixels
from holdfast.core.types import Bools, Detections, Floats, Image

LINE = 3  # pixels: the width of the lines that designs are made of
STUCK = 1000  # moves in a row that the limits forbid: there is no way on


@dataclass(frozen=True, eq=False)
class Canvas:
    """The clean image, where it may be painted, and the two extreme values of every channel."""

    clean: Image
    allowed: Bools  # (h, w)
    low: Image
    high: Image


@dataclass(frozen=True, eq=False)
class Paint:
    """Painted pixels (h, w) and the extreme of every channel (h, w, 3): high where true."""

    where: Bools
    bright: Bools

    def __len__(self) -> int:
        return int(np.count_nonzero(self.where))


def canvas_of(image: Image, allowed: Bools, amplitude: int) -> Canvas:
    """The canvas of an image whose channels may change by that much."""
    wide = image.astype(np.int16)
    low = np.clip(wide - amplitude, 0, 255).astype(np.uint8)
    return Canvas(image, allowed, low, np.clip(wide + amplitude, 0, 255).astype(np.uint8))


def painted(canvas: Canvas, paint: Paint) -> Image:
    """The image with the paint on it."""
    colours = np.where(paint.bright, canvas.high, canvas.low)
    return np.where(paint.where[..., None], colours, canvas.clean)


def empty(canvas: Canvas) -> Paint:
    """No paint at all."""
    return Paint(np.zeros(canvas.allowed.shape, bool), np.zeros(canvas.clean.shape, bool))


def without(paint: Paint, gone: Bools) -> Paint:
    """The paint with some pixels (h, w) taken away."""
    return replace(paint, where=paint.where & ~gone)


def cut(canvas: Canvas, paint: Paint, limits: Limits, rng: np.random.Generator) -> Paint:
    """The paint with no more regions than the limits allow; which ones stay is left to chance."""
    # A pixel whose colour is its clean one joins no region.
    seen = changed(canvas.clean, painted(canvas, paint)) if limits.regions else paint.where
    if not limits.regions or count_regions(seen) <= limits.regions:
        return paint
    _, labels = labelled(seen)
    weights = rng.random(int(labels.max()) + 1)[labels]
    sizes = np.bincount(labels.ravel())[labels]
    return Paint(heaviest(seen, weights / sizes, limits.regions), paint.bright)


def fits(canvas: Canvas, paint: Paint, limits: Limits) -> bool:
    """Whether the paint keeps to the limits of pixels and regions."""
    if len(paint) > limits.pixels:
        return False
    if not limits.regions:
        return True
    return count_regions(changed(canvas.clean, painted(canvas, paint))) <= limits.regions


Judge: TypeAlias = Callable[[Image], Detections]


@dataclass
class Inquiry:
    """The questions asked of one model about one image: counted, timed, the best answer kept."""

    judge: Judge
    target: Target
    method: Method
    limits: Limits
    canvas: Canvas
    began: float = field(default_factory=time.perf_counter)
    queries: int = 0
    first: int = 0  # the query that succeeded first
    best: tuple[float, int, int] = (np.inf, 0, 0)  # shortfall, then pixels, then amplitude
    image: Image = field(default_factory=lambda: np.zeros((0, 0, 3), np.uint8))
    after: Detections | None = None
    trail: dict[tuple[int, bool], None] = field(default_factory=dict)

    def ask(self, paint: Paint) -> float:
        """What the goal lacks with this paint; 0: reached."""
        return self.ask_image(painted(self.canvas, paint))

    def ask_image(self, image: Image) -> float:
        """What the goal lacks in this image."""
        after = self.judge(image)
        self.queries += 1
        lacks = shortfall(self.method.goal, self.target, after, self.method.rule)
        pixels = changed_pixels(self.target.image, image)
        if lacks == 0 and not self.first:
            self.first = self.queries
        if lacks == 0 or not self.trail:
            self.trail[pixels, lacks == 0] = None
        rank = lacks, pixels, amplitude(self.target.image, image)
        if rank < self.best or self.after is None:
            self.best, self.image, self.after = rank, image, after
        return lacks

    def spent(self, queries: int) -> bool:
        """Whether this many queries were asked, or the time is over."""
        late = self.limits.seconds and time.perf_counter() - self.began >= self.limits.seconds
        return bool(late) or self.queries >= queries


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
    candidate = Paint(paint.where | block, bright)
    for _ in range(200):
        over = len(candidate) - budget
        if over <= 0:
            break
        old = candidate.where & ~block
        if not old.any():
            break
        candidate = without(candidate, _some(old, over, max(side, 2), rng))
    return candidate


def _some(old: Bools, most: int, side: int, rng: np.random.Generator) -> Bools:
    """At most `most` pixels of a random window of those there are."""
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
            candidate = recoloured(paint, side, rng)
        else:
            candidate = shifted(inquiry.canvas, paint, budget, side, rng)
        candidate = cut(inquiry.canvas, candidate, free, rng)
        if not fits(inquiry.canvas, candidate, free) or not len(candidate):
            stuck += 1  # no query was spent on it
            continue
        stuck = 0
        now = inquiry.ask(candidate)
        if now <= lacks:
            paint, lacks = candidate, now
    return paint, lacks
