"""The tree grown round by round: take open domains, split, bound, close, put back."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from holdfast.verify.bab.leaf import settle_leaf
from holdfast.verify.bab.pool import Pool
from holdfast.verify.bab.search import GOAL, Ground, Search, closed, replay
from holdfast.verify.bab.tree import Domain, Root, at_once, children, choose, promising, queries
from holdfast.verify.linear.passes import attained, forward
from holdfast.verify.linear.tune import bound, tune
from holdfast.verify.problem import Answer, Case

Tensor = Any


def seed(root: Root, lower: Tensor) -> list[Domain]:
    """One domain a case, nothing assumed yet."""
    alpha = root.flat({at: root.asked.theta[at] for at in root.layers})
    none = torch.zeros(0)
    mix = root.asked.mix
    return [
        Domain(
            case,
            float(lower[case]),
            torch.zeros(sum(root.sizes), dtype=torch.int8),
            alpha[case],
            torch.zeros(sum(root.widths)),
            None if mix is None else mix[case],
            none.to(torch.int64),
            none,
        )
        for case in range(len(root.asked))
    ]


def grow(
    search: Search, land: Ground, root: Root, cases: Sequence[Case], pool: Pool, until: Callable[[], bool]
) -> Answer | None:
    """Works on the pool until it is empty, a violation is found or `until` says stop."""
    batch, most = 8, at_once(root, search.plan.largest_batch)
    while len(pool) and not until():
        search.clock.tell("branching", len(pool), pool.lowest())
        begun = time.monotonic()
        taken = pool.take(min(batch, most))
        splits = choose(search.pieces, root, taken, search.plan.candidates)
        found = settle(search, land, root, cases, pool, children(root, taken, splits))
        if found is not None:
            return found
        spent = time.monotonic() - begun
        if spent < search.plan.seconds_a_round / 2 and len(taken) == batch:
            batch = min(2 * batch, most)
        elif spent > 2 * search.plan.seconds_a_round:
            batch = max(4, batch // 2)
    return None


def settle(
    search: Search, land: Ground, root: Root, cases: Sequence[Case], pool: Pool, domains: list[Domain]
) -> Answer | None:
    """Bounds the domains, closes what can be closed and puts the rest into the pool."""
    asked = queries(root, domains)
    turns = search.plan.iterations
    tuned = tune(search.pieces, root.region, asked, turns, 0.1, 0.95, 0.1, GOAL, search.late)
    done = torch.zeros(len(domains), dtype=torch.bool)
    sure = (tuned.lower > 0).nonzero().reshape(-1)
    if len(sure):
        done[sure] = closed(search, land, tuned.queries.pick(sure))
    index = (~done).nonzero().reshape(-1)
    if not len(index):
        return None
    asked = tuned.queries.pick(index)
    traced = bound(search.pieces, root.region, asked)
    point = attained(root.region, traced)
    found = replay(search, point, cases)
    if found is not None:
        return found
    relaxed = forward(search.pieces, root.region, asked.top, traced, point)
    left = [domains[i] for i in index.tolist()]
    best, points = promising(root, left, traced, relaxed, search.plan.candidates)
    alpha = root.flat({at: asked.theta[at] for at in root.layers})
    beta = root.flat(dict(asked.beta or {}))
    lower = traced.lower.tolist()
    for i, domain in enumerate(left):
        if not bool((best[i] >= 0).any()):
            shut, found = False, None
            if not root.curved and not search.late():
                shut, found = settle_leaf(search, land, root, cases, domain)
            if found is not None:
                return found
            if not shut:
                search.park(lower[i])
            continue
        mix = None if asked.mix is None else asked.mix[i]
        tuned_ = replace(domain, lower=lower[i], alpha=alpha[i], beta=beta[i], mix=mix)
        pool.add(replace(tuned_, best=best[i], points=points[i]))
    return None
