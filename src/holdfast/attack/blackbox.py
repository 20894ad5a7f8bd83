"""A search from predictions alone: any runtime, no gradient, no torch.

A sparse random search: paint in extreme colours is put down in blocks, moved and painted over; what brings
the goal no nearer is taken back (in the spirit of Square Attack and Sparse-RS, the loss being what the
detections that match the targets say). After success the paint is thinned out.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from holdfast.attack import moves
from holdfast.attack.canvas import Canvas, Paint, canvas_of, cut, empty, fits, painted
from holdfast.attack.goals import shortfall
from holdfast.attack.masks import inside
from holdfast.attack.types import Found, Limits, Method, Target
from holdfast.core.patch import amplitude, changed_pixels
from holdfast.core.registry import part
from holdfast.core.types import Bools, Detections, Floats, Image

Judge = Callable[[Image], Detections]


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
        """Whether so many queries were asked, or the time is over."""
        late = self.limits.seconds and time.perf_counter() - self.began >= self.limits.seconds
        return bool(late) or self.queries >= queries


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
        paint, lacks = _improved(inquiry, paint, lacks, limits.pixels, restart * limits.steps, rng)
        if lacks == 0:
            if method.shrink:
                from holdfast.attack.thin import thinned

                thinned(inquiry, paint, restart * limits.steps, rng)
            return _found(inquiry)
        if inquiry.spent(limits.restarts * limits.steps):
            break
    return _found(inquiry)


def _allowed(target: Target, method: Method, limits: Limits, rng: np.random.Generator) -> Bools:
    """Where paint may lie: in the mask of that name, or, where it would need a gradient, in the boxes."""
    within = inside(target) if method.inside else np.ones(target.image.shape[:2], bool)
    mask = part("mask", method.mask)
    if mask.facts.get("grows"):
        return within
    found: Bools = mask.function(target, limits.pixels, np.where(within, 0.0, -1.0), rng)
    return found


def _started(inquiry: Inquiry, rng: np.random.Generator, end: int) -> tuple[Paint, float]:
    """The best of some random designs, a tenth of the queries."""
    limits, canvas = inquiry.limits, inquiry.canvas
    boxes = _places(inquiry, rng)
    best, least = empty(canvas), np.inf
    tries = max(3, limits.steps // 10)
    for _ in range(tries):
        if inquiry.spent(end) or least == 0:
            break
        paint = cut(canvas, moves.design(canvas, boxes, limits.pixels, rng), limits, rng)
        if not len(paint) or not fits(canvas, paint, limits):
            continue
        lacks = inquiry.ask(paint)
        if lacks < least:
            best, least = paint, lacks
    if not len(best):  # every design was too large: one block is not
        block = moves.shifted(canvas, best, limits.pixels, _side(inquiry, 0.0), rng)
        best = cut(canvas, block, limits, rng)
        least = inquiry.ask(best)
    return best, least


def _places(inquiry: Inquiry, rng: np.random.Generator) -> Floats:
    """The boxes (n, 4) in which designs are laid out."""
    height, width = inquiry.target.image.shape[:2]
    if inquiry.method.inside or inquiry.method.goal != "fabricate":
        return np.clip(inquiry.target.boxes.xyxy, 0, [width, height, width, height])
    return np.array([[0.0, 0.0, width, height]])


def _side(inquiry: Inquiry, spent: float) -> int:
    """The side of a block: a quarter of what is allowed at first, one or two pixels in the end."""
    area = min(int(np.count_nonzero(inquiry.canvas.allowed)), 4 * inquiry.limits.pixels)
    side: float = 0.25 * float(np.sqrt(area)) * 0.5 ** (5.0 * spent)
    return max(1, min(round(side), int(np.sqrt(inquiry.limits.pixels))))


def _improved(
    inquiry: Inquiry, paint: Paint, lacks: float, budget: int, end: int, rng: np.random.Generator
) -> tuple[Paint, float]:
    """The paint after moves that never brought the goal further away, until it is reached or all is spent."""
    first = inquiry.queries
    free = inquiry.limits if budget == inquiry.limits.pixels else _lower(inquiry.limits, budget)
    stuck = 0
    while lacks > 0 and not inquiry.spent(end) and stuck < 1000:
        side = _side(inquiry, (inquiry.queries - first) / max(1, end - first))
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


def _lower(limits: Limits, pixels: int) -> Limits:
    return dataclasses.replace(limits, pixels=pixels)


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
