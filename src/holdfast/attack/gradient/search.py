"""The search by gradient, then shrinking: the fewest pixels, then the least amplitude, that still succeed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from holdfast.attack.gradient.pgd import Climbed, Field, Ledger, Pace, climb, field_of, gains, uses
from holdfast.attack.gradient.victim import Oracle, Victim, open_oracle
from holdfast.attack.masks import inside, limited
from holdfast.attack.regions import count_regions
from holdfast.attack.types import Found, Limits, Method, Target
from holdfast.core.registry import part
from holdfast.core.types import Bools, Image, Ints

KEPT = 0.8  # of the pixels: with how many a shorter attack is tried
TRIES = 2  # times that may fail before the search for fewer pixels ends
NEEDED = 8  # single pixels found needed before pruning ends
ANEW = 12  # gradient steps of a search with a smaller budget
DEADER = 0.3  # factor on the floor, so that dead candidates have a slope


def search(
    victims: Sequence[Victim], target: Target, method: Method, limits: Limits, rng: np.random.Generator,
    until: float = np.inf,
) -> Found:  # fmt: skip
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
    oracle: Oracle, ground: Field, target: Target, method: Method, limits: Limits, ledger: Ledger,
    rng: np.random.Generator, restart: int,
) -> Climbed:  # fmt: skip
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
    oracle: Oracle, ground: Field, found: Climbed, limits: Limits, ledger: Ledger, rng: np.random.Generator
) -> Climbed:
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


def pruned(
    oracle: Oracle, ground: Field, found: Climbed, ledger: Ledger, rng: np.random.Generator
) -> Climbed:
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


def quieter(oracle: Oracle, ground: Field, found: Climbed, ledger: Ledger) -> Climbed:
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
    oracle: Oracle, ground: Field, best: Climbed, count: int, ledger: Ledger, rng: np.random.Generator
) -> Climbed | None:
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


def _without(oracle: Oracle, ground: Field, found: Climbed, chosen: Ints, ledger: Ledger) -> Climbed | None:
    """The success with these pixels as they were; None if it is none any more."""
    image = found.image.copy()
    image.reshape(-1, 3)[chosen] = ground.clean.reshape(-1, 3)[chosen]
    support = (image != ground.clean).any(axis=2)
    if ground.regions and count_regions(support) > ground.regions:
        return None
    success, after = oracle.judged(image)
    ledger.trail.append((int(support.sum()), success))
    return Climbed(image, True, after, found.loss) if success else None


def _count(ground: Field, image: Image) -> int:
    return int((image != ground.clean).any(axis=2).sum())
