"""The white-box search of one image: mask, momentum PGD, restarts, then shrink."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from holdfast.attack.blackbox.oracle import Oracle, open_oracle
from holdfast.attack.gradient.pgd import Climbed, Field, Ledger, Pace, climb, field_of, gains
from holdfast.attack.gradient.shrink import shrink
from holdfast.attack.gradient.victim import Victim
from holdfast.attack.masks import inside, limited
from holdfast.attack.types import Found, Limits, Method, Target
from holdfast.core.registry import part
from holdfast.core.types import Bools


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
        best = min(best, _walked(oracle, ground, target, method, limits, ledger, rng, restart), key=_rank)
    note = ""
    if best.success and method.shrink:
        if thorough:
            note = "not shrunk: what is to hold elsewhere needs all its pixels"
        else:
            best = shrink(oracle, ground, best, limits, ledger, rng)
    seconds = time.perf_counter() - begun
    return Found(best.image, best.after, best.success, ledger.steps, seconds, tuple(ledger.trail), note)


def _rank(found: Climbed) -> tuple[bool, float]:
    return not found.success, found.loss


def _walked(
    oracle: Oracle,
    ground: Field,
    target: Target,
    method: Method,
    limits: Limits,
    ledger: Ledger,
    rng: np.random.Generator,
    restart: int,
) -> Climbed:
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
    start = target.image
    if restart:
        noise = rng.uniform(ground.low, ground.high)
        start = ground.legal(noise, support)
    return climb(oracle, ground, start, support, pace, ledger, rng, grows=False)
