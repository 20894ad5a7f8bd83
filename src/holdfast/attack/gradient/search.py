"""Sparse PGD with momentum, then pruning to the fewest pixels and the smallest amplitude that succeed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from holdfast.attack.gradient.victim import Oracle, Victim, open_oracle
from holdfast.attack.masks import count_regions, dilated, limited, within
from holdfast.attack.types import Limits, Method, SearchResult, Target, check_time
from holdfast.core.patch import changed, changed_pixels
from holdfast.core.registry import part
from holdfast.core.types import Bools, Detections, Floats, Image, Ints

MOMENTUM = 0.5
LASTING = 0.9  # momentum if every step uses another transform
STRIDE = 0.5  # step size of a changed channel, as a share of the amplitude
SWAPPED = 0.05  # share of the support that is replaced per step once the budget is used up
FIRST = 8  # pixels added at the first step
SHRINK = 0.8  # pixel budget of the next search, as a share of the current one
TRIES = 2  # failures after which the search for fewer pixels ends
NEEDED = 8  # required single pixels after which pruning ends
ANEW = 12  # gradient steps of a search with a smaller budget
DEADER = 0.3  # factor on the floor, so that suppressed candidates have a gradient


@dataclass(frozen=True, eq=False)
class Candidate:
    """The best image of a run, and the first victim's detections in it."""

    image: Image
    success: bool
    after: Detections
    loss: float


@dataclass(frozen=True)
class Schedule:
    """The schedule of a run: maximum steps, pixel budget, pixels added per step."""

    steps: int
    budget: int
    first: int = FIRST
    rate: float = 1.0  # growth of the number of added pixels per step

    @staticmethod
    def to(budget: int, steps: int) -> Schedule:
        """A schedule that uses up the budget after half of the steps, in growing portions."""
        half, first, rate = max(1, steps // 2), max(1, min(FIRST, budget)), 1.0
        while first * sum(rate**i for i in range(half)) < budget and rate < 2.0:
            rate *= 1.01
        return Schedule(steps, budget, first, rate)


def search(
    victims: Sequence[Victim],
    target: Target,
    method: Method,
    limits: Limits,
    rng: np.random.Generator,
    until: float = np.inf,
) -> SearchResult:
    """The image with the fewest changed pixels that fools all victims, or the one with the lowest loss.

    `victims[0]` is the attacked model; the others are surrogates or deployments. With `diversity` or
    transforms a run continues after success and is not shrunk. Raise BudgetSpent at `until` (time.monotonic).
    """
    began = time.perf_counter()
    oracle, allowed = open_oracle(victims, target, method), within(target, method)
    state = Search(oracle, limits, allowed, rng, until, began)
    best = state.run_restart(0)
    for restart in range(1, limits.restarts):
        if state.late or best.success:
            break
        best = min(best, state.run_restart(restart), key=lambda c: (not c.success, c.loss))
    note = ""
    if best.success and method.shrink:
        if method.lasting:
            note = "not shrunk, because it must work under other conditions"
        else:
            best = state.shrink(best)
    seconds, trail = time.perf_counter() - began, tuple(state.trail)
    return SearchResult(best.image, best.after, best.success, state.steps, seconds, trail, note)


@dataclass
class Search:
    """The state of the search on one image: what it may change, steps used, images judged."""

    oracle: Oracle
    limits: Limits
    allowed: Bools  # (h, w)
    rng: np.random.Generator
    until: float  # deadline of the search, of time.monotonic
    began: float  # of time.perf_counter
    steps: int = 0
    trail: list[tuple[int, bool]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clean = self.oracle.parties[0].target.image
        clean, amplitude = self.clean.astype(np.float64), self.limits.amplitude
        self.low, self.high = np.maximum(clean - amplitude, 0.0), np.minimum(clean + amplitude, 255.0)

    @property
    def late(self) -> bool:
        """Whether the time limit of the image has passed; raise BudgetSpent after the overall deadline."""
        check_time(self.until)
        return 0 < self.limits.seconds <= time.perf_counter() - self.began

    def legal(self, pixels: Floats, support: Bools) -> Image:
        """The uint8 image with the pixels on the support and the clean ones elsewhere.

        If regions are limited, every pixel of the support is forced to differ: a hole could split a region.
        """
        values = np.rint(np.clip(pixels, self.low, self.high)).astype(np.uint8)
        image = np.where(support[..., None], values, self.clean)
        if self.limits.regions:
            same = support & ~changed(self.clean, image)
            red = self.clean[same, 0]
            image[same, 0] = np.where(red < 128, red + 1, red - 1)
        return image

    def judged(self, image: Image, loss: float) -> Candidate:
        """Judge the image by all victims and record the result in the trail."""
        success, after = self.oracle.judged(image)
        self.trail.append((changed_pixels(self.clean, image), success))
        return Candidate(image, success, after, loss)

    def exceeds_regions(self, support: Bools) -> bool:
        """Whether the support has more regions than the limits allow."""
        return 0 < self.limits.regions < count_regions(support)

    def run_restart(self, restart: int) -> Candidate:
        """Run one restart: the first from the clean image, the others from random pixels on the support."""
        target, method, limits = self.oracle.parties[0].target, self.oracle.method, self.limits
        mask, schedule = part("mask", method.mask), Schedule.to(limits.pixels, limits.steps)
        if mask.facts.get("grows"):
            room = self.allowed
            if restart:  # another order of growth: exclude some pixels this time
                room = room & (self.rng.random(room.shape) < 0.7)
            return self.climb(self.clean, np.zeros_like(room), schedule, room)
        _, slope = self.oracle.slope(self.clean, self.rng)
        gains = np.where(self.allowed, self.gains(self.clean.astype(np.float64), slope), -1.0)
        support: Bools = mask.function(target, limits.pixels, gains, self.rng) & self.allowed
        if limits.regions:
            support = limited(support, gains, limits.pixels, limits.regions, self.allowed)
        start = self.legal(self.rng.uniform(self.low, self.high), support) if restart else self.clean
        return self.climb(start, support, schedule)

    def climb(self, start: Image, support: Bools, schedule: Schedule, room: Bools | None = None) -> Candidate:
        """Run PGD and return the best image; with `room` (h, w) the support grows within it at every step."""
        lasting = self.oracle.method.lasting
        pixels, momentum = start.astype(np.float64), np.zeros(start.shape)
        best: Candidate | None = None
        floor, portion = 1.0, float(schedule.first)
        for step in range(schedule.steps):
            if step and self.late:
                break
            image = self.legal(pixels, support)
            loss, slope = self.oracle.slope(image, self.rng, floor)
            self.steps += 1
            if not lasting:
                best = _better(best, self.judged(image, loss))
                if best.success:
                    return best
            if loss == 0.0:  # suppressed here but not for the judge, or to be suppressed by a larger margin
                floor *= 0.8
            decay = LASTING if lasting else MOMENTUM
            momentum = decay * momentum + slope / max(float(np.abs(slope).mean()), 1e-30)
            if room is not None:
                support = self.grow_support(pixels, momentum, support, room, round(portion), schedule.budget)
                portion *= schedule.rate
            # One sign step down; new pixels go to the end of their range at once.
            new_pixels = support & ~changed(self.clean, image)
            step_size = np.where(new_pixels[..., None], 255.0, STRIDE * (self.high - self.low).max())
            stepped = np.clip(image - np.sign(momentum) * step_size, self.low, self.high)
            pixels = np.where(support[..., None], stepped, self.clean)
        # With transforms the last step counts: earlier losses belong to other transforms.
        return _better(best, self.judged(self.legal(pixels, support), best.loss if best else 0.0))

    def grow_support(
        self, pixels: Floats, momentum: Floats, support: Bools, room: Bools, portion: int, budget: int
    ) -> Bools:
        """The support plus the pixels of largest gain; once the budget is used up they replace others."""
        gains = np.where(room & ~support, self.gains(pixels, momentum), -1.0)
        if self.limits.regions:
            return _grown(gains, support, portion, budget, self.limits.regions)
        grown, remaining = support.copy(), budget - int(support.sum())
        if remaining > 0:
            _add_best(grown, gains, min(portion, remaining))
            return grown
        indices = np.flatnonzero(support)
        usefulness = self.uses(pixels, momentum).ravel()[indices]
        worst = np.argsort(usefulness, kind="stable")[: max(1, int(SWAPPED * budget))]
        best_gains = np.sort(gains.ravel())[::-1][: len(worst)]
        # Both are sorted: only where the swap lowers the loss.
        useless = indices[worst[best_gains > usefulness[worst]]]
        grown.ravel()[useless] = False
        _add_best(grown, gains, len(useless))
        return grown

    def gains(self, pixels: Floats, momentum: Floats) -> Floats:
        """(h, w): by how much the loss falls, to first order, when a pixel goes to the end of its range."""
        ends = np.where(momentum > 0, self.low, self.high)
        return np.asarray(((pixels - ends) * momentum).sum(axis=2), np.float64)

    def uses(self, pixels: Floats, momentum: Floats) -> Floats:
        """(h, w): by how much the loss rises, to first order, when a pixel goes back to the clean image."""
        return np.asarray(((self.clean - pixels) * momentum).sum(axis=2), np.float64)

    def shrink(self, success: Candidate) -> Candidate:
        """Prune a success, search again with smaller budgets, then reduce the amplitude."""
        best = self.pruned(success)
        failed, spent = 0, self.steps
        while failed < TRIES and self.steps - spent < self.limits.steps and not self.late:
            count = changed_pixels(self.clean, best.image)
            if count < 2:
                break
            smaller = self.search_fewer(best, count)
            smaller = smaller and self.pruned(smaller)
            if smaller is None or changed_pixels(self.clean, smaller.image) >= count:
                failed += 1
            else:
                best = smaller
        # The least amplitude to which all changes can be cut, by bisection.
        change = best.image.astype(np.int16) - self.clean.astype(np.int16)
        high, low = int(np.abs(change).max(initial=0)), 0
        while high - low > 1 and not self.late:
            middle = (high + low) // 2
            reduced = self.judged((self.clean + np.clip(change, -middle, middle)).astype(np.uint8), best.loss)
            if reduced.success:
                high, best = middle, reduced
            else:
                low = middle
        return best

    def pruned(self, success: Candidate) -> Candidate:
        """The success without unnecessary pixels, tried from the least useful by the gradient.

        Portions double after success and shrink after failure, until several single pixels were required.
        """
        order = self.least_useful(success.image)
        portion, start, needed = max(1, len(order) // 4), 0, 0
        while start < len(order) and needed < NEEDED and not self.late:
            tested = order[start : start + portion]
            fewer = self.without(success, tested)
            if fewer is not None:
                success, start, portion = fewer, start + len(tested), portion * 2
            elif portion > 1:
                portion = max(1, portion // 3)
            else:
                start, needed = start + 1, needed + 1
        return success

    def search_fewer(self, best: Candidate, count: int) -> Candidate | None:
        """A success with fewer than `count` pixels, searched without the least useful pixels; else None."""
        order = self.least_useful(best.image)
        support = changed(self.clean, best.image)
        budget = min(count - 1, max(1, int(SHRINK * count)))
        support.ravel()[order[: count - max(1, int(SHRINK * budget))]] = False
        if self.exceeds_regions(support):
            return None
        start = self.legal(best.image.astype(np.float64), support)
        schedule = Schedule(ANEW, budget, first=max(1, (budget - int(support.sum())) // (ANEW // 2)))
        candidate = self.climb(start, support, schedule, self.allowed)
        return candidate if candidate.success else None

    def least_useful(self, image: Image) -> Ints:
        """Flat indices of the changed pixels, sorted by how little the loss rises without them."""
        _, slope = self.oracle.slope(image, self.rng, DEADER)
        self.steps += 1
        indices = np.flatnonzero(changed(self.clean, image))
        return indices[np.argsort(self.uses(image.astype(np.float64), slope).ravel()[indices], kind="stable")]

    def without(self, success: Candidate, chosen: Ints) -> Candidate | None:
        """The success with these pixels restored; None if it no longer succeeds."""
        image = success.image.copy()
        image.reshape(-1, 3)[chosen] = self.clean.reshape(-1, 3)[chosen]
        if self.exceeds_regions(changed(self.clean, image)):
            return None
        fewer = self.judged(image, success.loss)
        return fewer if fewer.success else None


def _better(old: Candidate | None, new: Candidate) -> Candidate:
    """The better candidate: success first, then the later one unless its loss is larger."""
    if old is None or new.success > old.success:
        return new
    return new if new.success == old.success and new.loss <= old.loss else old


def _add_best(mask: Bools, gains: Floats, count: int) -> None:
    """Add the `count` pixels of largest positive gain to the mask."""
    flat = gains.ravel()
    count = min(count, int((flat > 0).sum()))
    if count > 0:
        mask.ravel()[np.argpartition(-flat, count - 1)[:count]] = True


def _grown(gains: Floats, support: Bools, portion: int, budget: int, regions: int) -> Bools:
    """The support grown at its edge only; an empty support first gets one seed per allowed region."""
    grown = support.copy()
    if not grown.any():
        available = gains.copy()
        for _ in range(min(regions, budget)):
            y, x = np.unravel_index(int(available.argmax()), available.shape)
            if available[y, x] <= 0:
                break
            grown[y, x] = True
            available[max(0, y - 8) : y + 9, max(0, x - 8) : x + 9] = -1.0  # keep a distance between seeds
    room = min(portion, budget - int(grown.sum()))
    while room > 0:
        edge = np.where(dilated(grown) & ~grown, gains, -1.0)
        if not (edge > 0).any():
            break
        count = min(room, max(1, int((edge > 0).sum()) // 3))
        _add_best(grown, edge, count)
        room -= count
    return grown
