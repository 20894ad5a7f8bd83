"""Momentum PGD on few pixels, then shrinking: the fewest pixels and least amplitude that still succeed."""

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
LASTING = 0.9  # momentum where a walk sees another transform at every step
STRIDE = 0.5  # of the amplitude: how far a changed channel moves in a step
SWAPPED = 0.05  # of the support: exchanged at a step once the budget is spent
FIRST = 8  # pixels added at the first step
KEPT = 0.8  # of the pixels: with how many a shorter attack is tried
TRIES = 2  # times that may fail before the search for fewer pixels ends
NEEDED = 8  # single pixels found needed before pruning ends
ANEW = 12  # gradient steps of a search with a smaller budget
DEADER = 0.3  # factor on the floor, so that dead candidates have a slope


@dataclass(frozen=True, eq=False)
class Candidate:
    """Where a walk ended: the image judged best, and what the first victim says of it."""

    image: Image
    success: bool
    after: Detections
    loss: float


@dataclass(frozen=True)
class Schedule:
    """How a walk goes: steps at most, the budget of pixels, how many are added at each step."""

    steps: int
    budget: int
    first: int = FIRST
    rate: float = 1.0  # of growth of what is added, step by step

    @staticmethod
    def to(budget: int, steps: int) -> Schedule:
        """A pace at which the budget is spent after half of the steps, at first in small portions."""
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
    """The image with the fewest changed pixels found that fools all victims, or the nearest to it.

    `victims[0]` is the attacked model; the others are surrogates or deployments. With `diversity` or
    transforms a walk continues after success and is not shrunk. BudgetSpent at `until` (of time.monotonic).
    """
    began = time.perf_counter()
    state = Search(
        open_oracle(victims, target, method), limits, within(target, method), rng, until=until, began=began
    )
    best = state.walk(0)
    for restart in range(1, limits.restarts):
        if state.late or best.success:
            break
        best = min(best, state.walk(restart), key=lambda found: (not found.success, found.loss))
    note = ""
    if best.success and method.shrink:
        if method.lasting:
            note = "not shrunk, because it must work under other conditions"
        else:
            best = state.shrink(best)
    seconds = time.perf_counter() - began
    return SearchResult(
        image=best.image,
        after=best.after,
        success=best.success,
        steps=state.steps,
        seconds=seconds,
        trail=tuple(state.trail),
        note=note,
    )


@dataclass
class Search:
    """The search on one image: what it may change, and what it has spent and judged so far."""

    oracle: Oracle
    limits: Limits
    allowed: Bools  # (h, w)
    rng: np.random.Generator
    until: float  # of time.monotonic: the search is given up
    began: float  # of time.perf_counter
    steps: int = 0
    trail: list[tuple[int, bool]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clean = self.oracle.parties[0].target.image
        clean, amplitude = self.clean.astype(np.float64), self.limits.amplitude
        self.low, self.high = np.maximum(clean - amplitude, 0.0), np.minimum(clean + amplitude, 255.0)

    @property
    def late(self) -> bool:
        """Whether the image's time is over; BudgetSpent if that of the whole work is."""
        check_time(self.until)
        return 0 < self.limits.seconds <= time.perf_counter() - self.began

    def legal(self, pixels: Floats, support: Bools) -> Image:
        """The uint8 image with the pixels on the support, the clean ones elsewhere.

        Where regions are counted every pixel of the support is made to differ: a hole could tear one in two.
        """
        values = np.rint(np.clip(pixels, self.low, self.high)).astype(np.uint8)
        image = np.where(support[..., None], values, self.clean)
        if self.limits.regions:
            same = support & ~changed(self.clean, image)
            red = self.clean[same, 0]
            image[same, 0] = np.where(red < 128, red + 1, red - 1)
        return image

    def judged(self, image: Image, loss: float) -> Candidate:
        """The image with what the victims say of it, noted in the trail."""
        success, after = self.oracle.judged(image)
        self.trail.append((changed_pixels(self.clean, image), success))
        return Candidate(image, success, after, loss)

    def torn(self, support: Bools) -> bool:
        """Whether the support has more regions than the limits allow."""
        return 0 < self.limits.regions < count_regions(support)

    def walk(self, restart: int) -> Candidate:
        """One walk: from the clean image, or after the first from a random one on the support."""
        target, method, limits = self.oracle.parties[0].target, self.oracle.method, self.limits
        mask, pace = part("mask", method.mask), Schedule.to(limits.pixels, limits.steps)
        if mask.facts.get("grows"):
            room = self.allowed
            if restart:  # another order of growth: some pixels are out of bounds this time
                room = room & (self.rng.random(room.shape) < 0.7)
            return self.climb(self.clean, np.zeros_like(room), pace, room)
        _, slope = self.oracle.slope(self.clean, self.rng)
        promise = np.where(self.allowed, self.gains(self.clean.astype(np.float64), slope), -1.0)
        support: Bools = mask.function(target, limits.pixels, promise, self.rng) & self.allowed
        if limits.regions:
            support = limited(support, promise, limits.pixels, limits.regions, self.allowed)
        start = self.legal(self.rng.uniform(self.low, self.high), support) if restart else self.clean
        return self.climb(start, support, pace)

    def climb(self, start: Image, support: Bools, pace: Schedule, room: Bools | None = None) -> Candidate:
        """The best image of one walk; with `room` (h, w) the support takes in pixels of it at every step."""
        lasting = self.oracle.method.lasting
        pixels, momentum = start.astype(np.float64), np.zeros(start.shape)
        best: Candidate | None = None
        floor, portion = 1.0, float(pace.first)
        for step in range(pace.steps):
            if step and self.late:
                break
            image = self.legal(pixels, support)
            loss, slope = self.oracle.slope(image, self.rng, floor)
            self.steps += 1
            if not lasting:
                best = _better(best, self.judged(image, loss))
                if best.success:
                    return best
            if loss == 0.0:
                floor *= 0.8  # dead by the gradient's account but not by the judge's, or to be deader still
            decay = LASTING if lasting else MOMENTUM
            momentum = decay * momentum + slope / max(float(np.abs(slope).mean()), 1e-30)
            if room is not None:
                support = self.taken_in(pixels, momentum, support, room, round(portion), pace.budget)
                portion *= pace.rate
            # One sign step down; new pixels go to the end of their range at once.
            fresh = support & ~changed(self.clean, image)
            reach = np.where(fresh[..., None], 255.0, STRIDE * (self.high - self.low).max())
            moved = np.clip(image - np.sign(momentum) * reach, self.low, self.high)
            pixels = np.where(support[..., None], moved, self.clean)
        # What is to hold elsewhere is as good as its last step; losses on the way are of other transforms.
        return _better(best, self.judged(self.legal(pixels, support), best.loss if best else 0.0))

    def taken_in(
        self, pixels: Floats, momentum: Floats, support: Bools, room: Bools, portion: int, budget: int
    ) -> Bools:
        """The support with the portion of pixels that promise most; beyond the budget they replace others."""
        promise = np.where(room & ~support, self.gains(pixels, momentum), -1.0)
        if self.limits.regions:
            return _grown(promise, support, portion, budget, self.limits.regions)
        found, left = support.copy(), budget - int(support.sum())
        if left > 0:
            _add_best(found, promise, min(portion, left))
            return found
        places = np.flatnonzero(support)
        use = self.uses(pixels, momentum).ravel()[places]
        worst = np.argsort(use, kind="stable")[: max(1, int(SWAPPED * budget))]
        promised = np.sort(promise.ravel())[::-1][: len(worst)]
        useless = places[worst[promised > use[worst]]]  # both are sorted: those few for which it pays
        found.ravel()[useless] = False
        _add_best(found, promise, len(useless))
        return found

    def gains(self, pixels: Floats, momentum: Floats) -> Floats:
        """(h, w): by how much the loss falls, to first order, when a pixel goes to the end of its range."""
        ends = np.where(momentum > 0, self.low, self.high)
        return np.asarray(((pixels - ends) * momentum).sum(axis=2), np.float64)

    def uses(self, pixels: Floats, momentum: Floats) -> Floats:
        """(h, w): by how much the loss rises, to first order, when a pixel goes back to the clean image."""
        return np.asarray(((self.clean - pixels) * momentum).sum(axis=2), np.float64)

    def shrink(self, found: Candidate) -> Candidate:
        """A success with fewer pixels, then less amplitude: pruned, then searched anew with less budget."""
        best = self.pruned(found)
        failed, spent = 0, self.steps
        while failed < TRIES and self.steps - spent < self.limits.steps and not self.late:
            count = changed_pixels(self.clean, best.image)
            if count < 2:
                break
            again = self.shorter(best, count)
            again = again and self.pruned(again)
            if again is None or changed_pixels(self.clean, again.image) >= count:
                failed += 1
            else:
                best = again
        # The least amplitude to which all changes can be cut, by bisection.
        change = best.image.astype(np.int16) - self.clean.astype(np.int16)
        enough, little = int(np.abs(change).max(initial=0)), 0
        while enough - little > 1 and not self.late:
            middle = (enough + little) // 2
            cut = self.judged((self.clean + np.clip(change, -middle, middle)).astype(np.uint8), best.loss)
            if cut.success:
                enough, best = middle, cut
            else:
                little = middle
        return best

    def pruned(self, found: Candidate) -> Candidate:
        """The success without pixels that it does not need: the least useful by the gradient are tried first.

        Portions double after success and shrink after failure, until several single pixels were needed.
        """
        order = self.least_useful(found.image)
        portion, at, needed = max(1, len(order) // 4), 0, 0
        while at < len(order) and needed < NEEDED and not self.late:
            chosen = order[at : at + portion]
            fewer = self.without(found, chosen)
            if fewer is not None:
                found, at, portion = fewer, at + len(chosen), portion * 2
            elif portion > 1:
                portion = max(1, portion // 3)
            else:
                at, needed = at + 1, needed + 1
        return found

    def shorter(self, best: Candidate, count: int) -> Candidate | None:
        """A success with fewer pixels than `count`, searched from what is left without the least useful."""
        order = self.least_useful(best.image)
        support = changed(self.clean, best.image)
        budget = min(count - 1, max(1, int(KEPT * count)))
        support.ravel()[order[: count - max(1, int(KEPT * budget))]] = False
        if self.torn(support):
            return None
        start = self.legal(best.image.astype(np.float64), support)
        pace = Schedule(ANEW, budget, first=max(1, (budget - int(support.sum())) // (ANEW // 2)))
        found = self.climb(start, support, pace, self.allowed)
        return found if found.success else None

    def least_useful(self, image: Image) -> Ints:
        """The flat places of the changed pixels, those first without which the loss would rise least."""
        _, slope = self.oracle.slope(image, self.rng, DEADER)
        self.steps += 1
        places = np.flatnonzero(changed(self.clean, image))
        return places[np.argsort(self.uses(image.astype(np.float64), slope).ravel()[places], kind="stable")]

    def without(self, found: Candidate, chosen: Ints) -> Candidate | None:
        """The success with these pixels as they were; None if it is none any more."""
        image = found.image.copy()
        image.reshape(-1, 3)[chosen] = self.clean.reshape(-1, 3)[chosen]
        if self.torn(changed(self.clean, image)):
            return None
        fewer = self.judged(image, found.loss)
        return fewer if fewer.success else None


def _better(old: Candidate | None, new: Candidate) -> Candidate:
    """Success first; then what came later, if its loss is no larger."""
    if old is None or new.success > old.success:
        return new
    return new if new.success == old.success and new.loss <= old.loss else old


def _add_best(found: Bools, promise: Floats, count: int) -> None:
    """Set the `count` pixels of largest promise, where there is any."""
    flat = promise.ravel()
    count = min(count, int((flat > 0).sum()))
    if count > 0:
        found.ravel()[np.argpartition(-flat, count - 1)[:count]] = True


def _grown(promise: Floats, support: Bools, portion: int, budget: int, regions: int) -> Bools:
    """The support with new pixels at its edge only; the first time, seeds of all regions it may have."""
    found = support.copy()
    if not found.any():
        left = promise.copy()
        for _ in range(min(regions, budget)):
            y, x = np.unravel_index(int(left.argmax()), left.shape)
            if left[y, x] <= 0:
                break
            found[y, x] = True
            left[max(0, y - 8) : y + 9, max(0, x - 8) : x + 9] = -1.0  # seeds lie apart
    room = min(portion, budget - int(found.sum()))
    while room > 0:
        edge = np.where(dilated(found) & ~found, promise, -1.0)
        if not (edge > 0).any():
            break
        count = min(room, max(1, int((edge > 0).sum()) // 3))
        _add_best(found, edge, count)
        room -= count
    return found
