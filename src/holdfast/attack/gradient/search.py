"""Momentum PGD on few pixels, then shrinking: the fewest pixels and least amplitude that still succeed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from holdfast.attack.gradient.victim import Oracle, Victim, open_oracle
from holdfast.attack.masks import count_regions, dilated, inside, limited
from holdfast.attack.types import Found, Limits, Method, Target, check_time
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
class Field:
    """How far each channel may move (h, w, 3), and which pixels (h, w) may be touched."""

    clean: Image
    low: Floats
    high: Floats
    allowed: Bools
    regions: int

    def legal(self, pixels: Floats, support: Bools) -> Image:
        """The uint8 image with the pixels on the support, the clean ones elsewhere.

        Where regions are counted every pixel of the support is made to differ: a hole could tear one in two.
        """
        values = np.rint(np.clip(pixels, self.low, self.high)).astype(np.uint8)
        image = np.where(support[..., None], values, self.clean)
        if self.regions:
            same = support & (image == self.clean).all(axis=2)
            image[same, 0] = np.where(
                self.clean[same, 0] < 128, self.clean[same, 0] + 1, self.clean[same, 0] - 1
            )
        return image


def field_of(target: Target, allowed: Bools, limits: Limits) -> Field:
    """The field of an image under limits."""
    clean = target.image.astype(np.float64)
    low, high = np.maximum(clean - limits.amplitude, 0.0), np.minimum(clean + limits.amplitude, 255.0)
    return Field(target.image, low, high, allowed, limits.regions)


@dataclass
class Ledger:
    """What one image's search has spent and seen; the one thing here that changes."""

    until: float = np.inf  # of time.perf_counter: the search ends with what it has
    given_up: float = np.inf  # of time.monotonic: the search is given up
    steps: int = 0
    trail: list[tuple[int, bool]] = field(default_factory=list)

    @property
    def late(self) -> bool:
        """Whether the image's time is over; BudgetSpent if that of the whole work is."""
        check_time(self.given_up)
        return time.perf_counter() >= self.until


@dataclass(frozen=True, eq=False)
class Walk:
    """Where a walk ended: the image judged best, and what the first victim says of it."""

    image: Image
    success: bool
    after: Detections
    loss: float


@dataclass(frozen=True)
class Pace:
    """How a walk goes: steps at most, the budget of pixels, how many are added at each step."""

    steps: int
    budget: int
    first: int = FIRST
    rate: float = 1.0  # of growth of what is added, step by step
    thorough: bool = False  # go on after success, for what is to hold elsewhere

    @staticmethod
    def to(budget: int, steps: int, thorough: bool) -> Pace:
        """A pace at which the budget is spent after half of the steps, at first in small portions."""
        half = max(1, steps // 2)
        first = max(1, min(FIRST, budget))
        rate = 1.0
        while first * sum(rate**i for i in range(half)) < budget and rate < 2.0:
            rate *= 1.01
        return Pace(steps, budget, first, rate, thorough)


def climb(
    oracle: Oracle,
    ground: Field,
    start: Image,
    support: Bools,
    pace: Pace,
    ledger: Ledger,
    rng: np.random.Generator,
    grows: bool,
) -> Walk:
    """The best image of one walk from `start`; with `grows` the support takes in pixels at every step."""
    pixels, momentum = start.astype(np.float64), np.zeros(start.shape)
    decay = LASTING if pace.thorough else MOMENTUM
    best: Walk | None = None
    floor, portion = 1.0, float(pace.first)
    for step in range(pace.steps):
        if step and ledger.late:
            break
        image = ground.legal(pixels, support)
        loss, slope = oracle.slope(image, rng, floor)
        ledger.steps += 1
        if not pace.thorough:
            best = _better(best, _judged(oracle, image, loss, ledger))
            if best.success:
                return best
        if loss == 0.0:
            floor *= 0.8  # dead by the gradient's account but not by the judge's, or to be deader still
        momentum = decay * momentum + slope / max(float(np.abs(slope).mean()), 1e-30)
        if grows:
            support = _taken_in(ground, pixels, momentum, support, round(portion), pace)
            portion *= pace.rate
        pixels = _stepped(ground, image, momentum, support)
    # What is to hold elsewhere is as good as its last step; the losses on the way are of other transforms.
    last = _judged(oracle, ground.legal(pixels, support), best.loss if best else 0.0, ledger)
    return _better(best, last)


def _judged(oracle: Oracle, image: Image, loss: float, ledger: Ledger) -> Walk:
    success, after = oracle.judged(image)
    ledger.trail.append((int((image != oracle.parties[0].target.image).any(axis=2).sum()), success))
    return Walk(image, success, after, loss)


def _better(old: Walk | None, new: Walk) -> Walk:
    """Success first; then what came later, if its loss is no larger."""
    if old is None or new.success > old.success:
        return new
    return new if new.success == old.success and new.loss <= old.loss else old


def _stepped(ground: Field, image: Image, momentum: Floats, support: Bools) -> Floats:
    """The pixels one sign step down; new ones go to the end of their range at once."""
    fresh = support & (image == ground.clean).all(axis=2)
    reach = np.where(fresh[..., None], 255.0, STRIDE * (ground.high - ground.low).max())
    moved = np.clip(image - np.sign(momentum) * reach, ground.low, ground.high)
    return np.where(support[..., None], moved, ground.clean)


def gains(ground: Field, pixels: Floats, momentum: Floats) -> Floats:
    """(h, w): by how much the loss falls, to first order, when a pixel goes to the end of its range."""
    ends = np.where(momentum > 0, ground.low, ground.high)
    return np.asarray(((pixels - ends) * momentum).sum(axis=2), np.float64)


def uses(ground: Field, pixels: Floats, momentum: Floats) -> Floats:
    """(h, w): by how much the loss rises, to first order, when a pixel goes back to the clean image."""
    return np.asarray(((ground.clean - pixels) * momentum).sum(axis=2), np.float64)


def _taken_in(
    ground: Field, pixels: Floats, momentum: Floats, support: Bools, portion: int, pace: Pace
) -> Bools:
    """The support with the portion of pixels that promise most; beyond the budget they replace others."""
    budget = pace.budget
    promise = np.where(ground.allowed & ~support, gains(ground, pixels, momentum), -1.0)
    if ground.regions:
        return _grown(promise, support, portion, budget, ground.regions)
    room = budget - int(support.sum())
    found = support.copy()
    if room > 0:
        _add_best(found, promise, min(portion, room))
        return found
    places = np.flatnonzero(support)
    use = uses(ground, pixels, momentum).ravel()[places]
    worst = np.argsort(use, kind="stable")[: max(1, int(SWAPPED * budget))]
    promised = np.sort(promise.ravel())[::-1][: len(worst)]
    useless = places[worst[promised > use[worst]]]  # both are sorted: those few for which it pays
    found.ravel()[useless] = False
    _add_best(found, promise, len(useless))
    return found


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


def search(
    victims: Sequence[Victim],
    target: Target,
    method: Method,
    limits: Limits,
    rng: np.random.Generator,
    until: float = np.inf,
) -> Found:
    """The image with the fewest changed pixels found that fools all victims, or the nearest to it.

    `victims[0]` is the attacked model; the others are surrogates or deployments. Every image was judged by
    the victims' own pipelines. With `diversity` or transforms a walk goes on after success and is not shrunk.
    At `until` (of time.monotonic) the search is given up: BudgetSpent.
    """
    begun = time.perf_counter()
    ledger = Ledger(begun + limits.seconds if limits.seconds else np.inf, until)
    oracle = open_oracle(victims, target, method)
    within = method.inside and len(target.boxes) > 0  # to fabricate needs no boxes
    allowed = inside(target) if within else np.ones(target.image.shape[:2], bool)
    ground = field_of(target, allowed, limits)
    thorough = method.diversity or bool(method.transforms)
    best = _walked(oracle, ground, target, method, limits, ledger, rng, 0)
    for restart in range(1, limits.restarts):
        if ledger.late or best.success:
            break
        other = _walked(oracle, ground, target, method, limits, ledger, rng, restart)
        best = min(best, other, key=lambda found: (not found.success, found.loss))
    note = ""
    if best.success and method.shrink:
        if thorough:
            note = "not shrunk: what is to hold elsewhere needs all its pixels"
        else:
            best = shrink(oracle, ground, best, limits, ledger, rng)
    seconds = time.perf_counter() - begun
    return Found(best.image, best.after, best.success, ledger.steps, seconds, tuple(ledger.trail), note)


def _walked(
    oracle: Oracle,
    ground: Field,
    target: Target,
    method: Method,
    limits: Limits,
    ledger: Ledger,
    rng: np.random.Generator,
    restart: int,
) -> Walk:
    """One walk: from the clean image, or after the first from a random one on the support."""
    thorough = method.diversity or bool(method.transforms)
    mask = part("mask", method.mask)
    pace = Pace.to(limits.pixels, limits.steps, thorough=thorough)
    nothing = np.zeros(target.image.shape[:2], bool)
    if mask.facts.get("grows"):
        if restart:
            # Another order of growth: some pixels are out of bounds this time.
            some = ground.allowed & (rng.random(nothing.shape) < 0.7)
            ground = Field(ground.clean, ground.low, ground.high, some, ground.regions)
        return climb(oracle, ground, target.image, nothing, pace, ledger, rng, grows=True)
    _, slope = oracle.slope(target.image, rng)
    promise = np.where(ground.allowed, gains(ground, target.image.astype(np.float64), slope), -1.0)
    support: Bools = mask.function(target, limits.pixels, promise, rng) & ground.allowed
    if limits.regions:
        support = limited(support, promise, limits.pixels, limits.regions, ground.allowed)
    start = ground.legal(rng.uniform(ground.low, ground.high), support) if restart else target.image
    return climb(oracle, ground, start, support, pace, ledger, rng, grows=False)


def shrink(
    oracle: Oracle, ground: Field, found: Walk, limits: Limits, ledger: Ledger, rng: np.random.Generator
) -> Walk:
    """A success with fewer pixels, then less amplitude: pruned, then searched anew with a smaller budget."""
    best = pruned(oracle, ground, found, ledger, rng)
    failed, spent = 0, ledger.steps
    while failed < TRIES and ledger.steps - spent < limits.steps and not ledger.late:
        count = _count(ground, best.image)
        if count < 2:
            break
        again = _shorter(oracle, ground, best, count, ledger, rng)
        if again is not None:
            again = pruned(oracle, ground, again, ledger, rng)
        if again is None or _count(ground, again.image) >= count:
            failed += 1
        else:
            best = again
    return quieter(oracle, ground, best, ledger)


def pruned(oracle: Oracle, ground: Field, found: Walk, ledger: Ledger, rng: np.random.Generator) -> Walk:
    """The success without pixels that it does not need, found by judging it without them.

    The least useful by the gradient are tried first, in portions that double after success and shrink after
    failure; the rest is left alone once several single ones were needed.
    """
    order = _least_useful(oracle, ground, found.image, ledger, rng)
    portion, at, needed = max(1, len(order) // 4), 0, 0
    while at < len(order) and needed < NEEDED and not ledger.late:
        chosen = order[at : at + portion]
        fewer = _without(oracle, ground, found, chosen, ledger)
        if fewer is not None:
            found, at, portion = fewer, at + len(chosen), portion * 2
        elif portion > 1:
            portion = max(1, portion // 3)
        else:
            at, needed = at + 1, needed + 1
    return found


def quieter(oracle: Oracle, ground: Field, found: Walk, ledger: Ledger) -> Walk:
    """The success with the least amplitude to which all its changes can be cut, by bisection."""
    change = found.image.astype(np.int16) - ground.clean.astype(np.int16)
    enough, little = int(np.abs(change).max(initial=0)), 0
    while enough - little > 1 and not ledger.late:
        middle = (enough + little) // 2
        image = (ground.clean + np.clip(change, -middle, middle)).astype(np.uint8)
        success, after = oracle.judged(image)
        ledger.trail.append((_count(ground, image), success))
        if success:
            enough, found = middle, replace(found, image=image, after=after)
        else:
            little = middle
    return found


def _shorter(
    oracle: Oracle, ground: Field, best: Walk, count: int, ledger: Ledger, rng: np.random.Generator
) -> Walk | None:
    """A success with fewer pixels than `count`, searched from what is left without the least useful."""
    order = _least_useful(oracle, ground, best.image, ledger, rng)
    support: Bools = (best.image != ground.clean).any(axis=2)
    budget = min(count - 1, max(1, int(KEPT * count)))
    support.ravel()[order[: count - max(1, int(KEPT * budget))]] = False
    if ground.regions and count_regions(support) > ground.regions:
        return None
    start = ground.legal(best.image.astype(np.float64), support)
    left = budget - int(support.sum())
    pace = Pace(ANEW, budget, first=max(1, left // (ANEW // 2)))
    found = climb(oracle, ground, start, support, pace, ledger, rng, grows=True)
    return found if found.success else None


def _least_useful(
    oracle: Oracle, ground: Field, image: Image, ledger: Ledger, rng: np.random.Generator
) -> Ints:
    """The flat places of the changed pixels, those first without which the loss would rise least."""
    _, slope = oracle.slope(image, rng, DEADER)
    ledger.steps += 1
    places = np.flatnonzero((image != ground.clean).any(axis=2))
    return places[np.argsort(uses(ground, image.astype(np.float64), slope).ravel()[places], kind="stable")]


def _without(oracle: Oracle, ground: Field, found: Walk, chosen: Ints, ledger: Ledger) -> Walk | None:
    """The success with these pixels as they were; None if it is none any more."""
    image = found.image.copy()
    image.reshape(-1, 3)[chosen] = ground.clean.reshape(-1, 3)[chosen]
    support = (image != ground.clean).any(axis=2)
    if ground.regions and count_regions(support) > ground.regions:
        return None
    success, after = oracle.judged(image)
    ledger.trail.append((int(support.sum()), success))
    return Walk(image, True, after, found.loss) if success else None


def _count(ground: Field, image: Image) -> int:
    return int((image != ground.clean).any(axis=2).sum())
