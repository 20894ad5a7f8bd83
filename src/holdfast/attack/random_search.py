"""Black-box search: predictions of any runtime, no gradient, no torch.

A sparse random search in the spirit of Square Attack and Sparse-RS: blocks in extreme colours are added,
moved and recoloured, and a change is accepted unless the loss rises. The loss is computed from the detections
that match the targets. After success the painted pixels are pruned.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from holdfast.attack.judge import shortfall
from holdfast.attack.masks import count_regions, heaviest, labelled, within
from holdfast.attack.types import Limits, Method, SearchResult, Target
from holdfast.core.patch import amplitude, changed, changed_pixels
from holdfast.core.registry import part
from holdfast.core.types import Bools, Detections, Floats, Image, no_detections

LINE = 3  # width of the lines of a design, in pixels
STUCK = 1000  # consecutive moves rejected by the limits after which the search stops
Judge: TypeAlias = Callable[[Image], Detections]


@dataclass(frozen=True, eq=False)
class Paint:
    """Painted pixels (h, w) and the extreme of every channel (h, w, 3): high where true."""

    where: Bools
    bright: Bools

    def __len__(self) -> int:
        return int(np.count_nonzero(self.where))

    def without(self, removed: Bools) -> Paint:
        """The paint without some pixels (h, w)."""
        return replace(self, where=self.where & ~removed)


def search_black(
    judge: Judge, target: Target, method: Method, limits: Limits, rng: np.random.Generator
) -> SearchResult:
    """The best image of a search with at most `limits.steps` queries to `judge` per restart."""
    allowed, mask = within(target, method), part("mask", method.mask)
    if not mask.facts.get("grows"):  # a growing mask needs a gradient: then anywhere in the boxes
        allowed = mask.function(target, limits.pixels, np.where(allowed, 0.0, -1.0), rng)
    session = QuerySession(judge, target, method, limits, allowed, rng)
    if not allowed.any():
        session.ask(session.blank)
        return session.result("no pixel may be changed: no box meets the image")
    for restart in range(1, limits.restarts + 1):
        end = restart * limits.steps
        paint, loss = session.improved(*session.started(end), limits.pixels, end)
        if loss == 0 and method.shrink:
            session.prune(paint, end)
        if loss == 0 or session.spent(limits.restarts * limits.steps):
            break
    return session.result()


def _extremes(image: Image, amplitude: int) -> tuple[Image, Image]:
    """The lowest and the highest value of every channel."""
    wide = image.astype(np.int16)
    low, high = (np.clip(wide + step, 0, 255).astype(np.uint8) for step in (-amplitude, amplitude))
    return low, high


@dataclass
class QuerySession:
    """The queries to one model about one image: their number, time, and the best result."""

    judge: Judge
    target: Target
    method: Method
    limits: Limits
    allowed: Bools  # (h, w): where the image may be painted
    rng: np.random.Generator
    began: float = field(default_factory=time.perf_counter)
    queries: int = 0
    first: int = 0  # the query that succeeded first
    best: tuple[float, int, int] = (np.inf, 0, 0)  # shortfall, then pixels, then amplitude
    after: Detections = field(default_factory=no_detections)  # of the best image
    trail: dict[tuple[int, bool], None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.image = self.target.image  # the best one
        self.extremes = _extremes(self.target.image, self.limits.amplitude)

    @property
    def blank(self) -> Paint:
        """No paint at all."""
        return Paint(np.zeros(self.allowed.shape, bool), np.zeros(self.target.image.shape, bool))

    def painted(self, paint: Paint, extremes: tuple[Image, Image]) -> Image:
        """The image with the paint on it."""
        colours = np.where(paint.bright, extremes[1], extremes[0])
        return np.where(paint.where[..., None], colours, self.target.image)

    def ask(self, paint: Paint, extremes: tuple[Image, Image] | None = None) -> float:
        """Query the model and return the distance from the goal; 0: reached."""
        image = self.painted(paint, extremes or self.extremes)
        after = self.judge(image)
        self.queries += 1
        loss = shortfall(self.method.goal, self.target, after, self.method.rule)
        pixels = changed_pixels(self.target.image, image)
        if loss == 0 and not self.first:
            self.first = self.queries
        if loss == 0 or not self.trail:
            self.trail[pixels, loss == 0] = None
        rank = loss, pixels, amplitude(self.target.image, image)
        if rank < self.best:
            self.best, self.image, self.after = rank, image, after
        return loss

    def spent(self, queries: int) -> bool:
        """Whether this many queries were used, or the time limit has passed."""
        late = 0 < self.limits.seconds <= time.perf_counter() - self.began
        return late or self.queries >= queries

    def result(self, note: str = "") -> SearchResult:
        """The image nearest to the goal, among equals the one with the fewest pixels."""
        loss, pixels, _ = self.best
        note = note or (f"first success at query {self.first}" if self.first else "")
        trail = tuple({**self.trail, (pixels, loss == 0): None})
        seconds = time.perf_counter() - self.began
        return SearchResult(self.image, self.after, loss == 0, self.queries, seconds, trail, note)

    def visible(self, paint: Paint) -> Bools:
        """(h, w): the pixels that differ from the clean image; only these form regions."""
        return changed(self.target.image, self.painted(paint, self.extremes))

    def exceeds_regions(self, paint: Paint) -> bool:
        """Whether the paint has more regions than the limits allow."""
        return self.limits.regions > 0 and count_regions(self.visible(paint)) > self.limits.regions

    def cut(self, paint: Paint) -> Paint:
        """The paint cut to the allowed number of regions, which are chosen at random."""
        if not self.exceeds_regions(paint):
            return paint
        visible = self.visible(paint)
        _, labels = labelled(visible)
        weights = self.rng.random(int(labels.max()) + 1)[labels]
        sizes = np.bincount(labels.ravel())[labels]
        return Paint(heaviest(visible, weights / sizes, self.limits.regions), paint.bright)

    def started(self, end: int) -> tuple[Paint, float]:
        """The best of several random designs, which use a tenth of the queries."""
        limits, (height, width) = self.limits, self.allowed.shape
        boxes = np.array([[0.0, 0.0, width, height]])
        if len(self.target.boxes) and (self.method.inside or self.method.goal != "fabricate"):
            boxes = np.clip(self.target.boxes.xyxy, 0, [width, height, width, height])
        best, least = self.blank, np.inf
        for _ in range(max(3, limits.steps // 10)):
            if self.spent(end) or least == 0:
                break
            paint = self.cut(design(self.allowed, boxes, limits.pixels, self.rng))
            if 0 < len(paint) <= limits.pixels and (loss := self.ask(paint)) < least:
                best, least = paint, loss
        if not len(best):  # every design was too large: use one block
            best = self.cut(shifted(self.allowed, best, limits.pixels, self.side(0.0), self.rng))
            least = self.ask(best)
        return best, least

    def side(self, spent: float) -> int:
        """The side of a block: a quarter of the allowed area at first, one or two pixels at the end."""
        area = min(int(np.count_nonzero(self.allowed)), 4 * self.limits.pixels)
        side: float = 0.25 * float(np.sqrt(area)) * 0.5 ** (5.0 * spent)
        return max(1, min(round(side), int(np.sqrt(self.limits.pixels))))

    def improved(self, paint: Paint, loss: float, budget: int, end: int) -> tuple[Paint, float]:
        """The paint after moves that never increase the loss, until the goal or the limit is reached."""
        first, stuck = self.queries, 0
        while loss > 0 and not self.spent(end) and stuck < STUCK:
            side = self.side((self.queries - first) / max(1, end - first))
            if self.rng.random() < 0.5:
                candidate = recoloured(paint, side, self.rng)
            else:
                candidate = shifted(self.allowed, paint, budget, side, self.rng)
            candidate = self.cut(candidate)
            if not 0 < len(candidate) <= budget:
                stuck += 1  # no query was spent on it
                continue
            stuck = 0
            if (new_loss := self.ask(candidate)) <= loss:
                paint, loss = candidate, new_loss
        return paint, loss

    def prune(self, paint: Paint, end: int) -> None:
        """Prune the paint; the successful image with the fewest pixels becomes the best image.

        Parts are removed while the attack still succeeds. If no more can be removed, the search continues
        with a smaller budget.
        """
        reserved = max(8, (end - self.queries) // 50)  # queries reserved for the amplitude
        paint = self.without_parts(paint, end - reserved)
        while not self.spent(end - reserved) and len(paint) > 1:
            fewer, budget = paint, max(1, int(0.85 * len(paint)))
            for pixels in _parts(paint, max(1, (len(paint) - budget) // 3), self.rng):
                fewer = fewer.without(pixels) if len(fewer) > budget else fewer
            if self.exceeds_regions(fewer):
                break
            limit = min(end - reserved, self.queries + max(40, (end - self.queries) // 3))
            fewer, loss = self.improved(fewer, self.ask(fewer), budget, limit)
            if loss > 0:
                break
            paint = self.without_parts(fewer, end - reserved)
        low, high = 0, self.limits.amplitude  # the same pixels with less amplitude, by bisection
        while high - low > 4 and not self.spent(end):
            middle = (low + high) // 2
            loss = self.ask(paint, _extremes(self.target.image, middle))
            low, high = (low, middle) if loss == 0 else (middle, high)

    def without_parts(self, paint: Paint, end: int) -> Paint:
        """The paint without unnecessary parts; their size halves from an eighth to single pixels."""
        size = max(1, len(paint) // 8)
        while True:
            for pixels in _parts(paint, size, self.rng):
                if self.spent(end):
                    return paint
                fewer = paint.without(pixels)
                if len(fewer) and not self.exceeds_regions(fewer) and self.ask(fewer) == 0:
                    paint = fewer
            if size == 1 or len(paint) // size > 256:
                return paint
            size = max(1, size // 2)


def _parts(paint: Paint, size: int, rng: np.random.Generator) -> list[Bools]:
    """The painted pixels divided into adjacent parts of about that size, in random order."""
    y, x = np.nonzero(paint.where)
    step = max(1, int(np.sqrt(size)))
    order = np.lexsort([x % step, y % step, x // step, y // step])
    parts = []
    for start in range(0, len(order), size):
        selected = order[start : start + size]
        parts.append(_only(paint.where, (y[selected], x[selected])))
    rng.shuffle(parts)
    return parts


def _only(mask: Bools, part: tuple[Any, Any]) -> Bools:
    """The mask without the pixels outside of a part."""
    selected = np.zeros_like(mask)
    selected[part] = mask[part]
    return selected


def design(allowed: Bools, boxes: Floats, budget: int, rng: np.random.Generator) -> Paint:
    """A random initial design in random colours: lines across each box, blocks, or a square.

    If no more pixels than the budget are allowed, all of them are painted, in blocks or stripes.
    """
    if np.count_nonzero(allowed) <= budget:
        mean = float(np.sqrt(np.prod(boxes[:, 2:] - boxes[:, :2], axis=1).mean()))
        size = max(2.0, mean * rng.uniform(0.03, 0.3))
        steps = [round(size * factor) for factor in ((1, 1), (1, 1000), (1000, 1))[int(rng.integers(3))]]
        rows, columns = (-(-side // step) for side, step in zip(allowed.shape, steps, strict=True))
        coarse = rng.random((rows, columns, 3)) < 0.5
        y, x = (np.arange(side) // step for side, step in zip(allowed.shape, steps, strict=True))
        return Paint(allowed, coarse[y[:, None], x])
    kind = rng.choice(["lines", "blocks", "square"], p=[0.4, 0.4, 0.2])
    where, bright = np.zeros(allowed.shape, bool), np.zeros((*allowed.shape, 3), bool)
    share = max(1, budget // max(1, len(boxes)))
    for box in boxes:
        remaining = share
        for _ in range(400):
            window = _stroke(box, share, str(kind), rng)
            count = int(np.count_nonzero(allowed[window] & ~where[window]))
            if not count:
                continue
            if count > remaining:
                break
            remaining -= count
            where[window] |= allowed[window]
            bright[window] = _colour(rng)
            if remaining <= 0 or kind == "square":
                break
    return Paint(where, bright)


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
    """The paint with one random window recoloured, in one channel or in all."""
    rows, columns = _window(paint.where, side, rng)
    bright = paint.bright.copy()
    if rng.random() < 0.5:
        bright[rows, columns] = _colour(rng)
    else:
        bright[rows, columns, int(rng.integers(3))] ^= True
    return Paint(paint.where, bright)


def shifted(allowed: Bools, paint: Paint, budget: int, side: int, rng: np.random.Generator) -> Paint:
    """The paint with a new block of one colour, and pixels elsewhere removed to stay within the budget."""
    block = _only(allowed, _window(allowed, side, rng))
    bright = paint.bright.copy()
    bright[block] = _colour(rng)
    candidate = Paint(paint.where | block, bright)
    for _ in range(200):
        excess, old = len(candidate) - budget, candidate.where & ~block
        if excess <= 0 or not old.any():
            break
        removed = _only(old, _window(old, max(side, 2), rng))
        removed.flat[np.flatnonzero(removed)[excess:]] = False
        candidate = candidate.without(removed)
    return candidate


def _window(mask: Bools, side: int, rng: np.random.Generator) -> tuple[slice, slice]:
    """A square window around a random pixel of the mask."""
    indices = np.flatnonzero(mask)
    y, x = divmod(int(indices[rng.integers(len(indices))]), mask.shape[1])
    y, x = y - int(rng.integers(side)), x - int(rng.integers(side))
    return slice(max(y, 0), y + side), slice(max(x, 0), x + side)
