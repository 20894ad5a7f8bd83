"""Bounds of neurons tightened by a small branch and bound of their own.

The triangle of each unstable neuron costs a little; over many layers these costs multiply. A neuron's range
computed with some of the neurons before it split is tighter, and every layer after it gains.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from holdfast.verify.bab.tree import Domain, Root, at_once, children, choose, plant, promising, queries
from holdfast.verify.linear.passes import Region, attained, forward
from holdfast.verify.linear.pieces import Pieces
from holdfast.verify.linear.tune import Queries, bound, tune

Tensor = Any


@dataclass(frozen=True)
class Depth:
    """How far neurons' ranges are refined."""

    rounds: int = 12
    leaves: int = 24
    iterations: int = 8
    candidates: int = 2
    batch: int = 1024  # domains bounded at once
    gain: float = 0.01  # a neuron whose bound rose by less than this share in a round is left alone


def refine(
    pieces: Pieces,
    region: Region,
    asked: Queries,
    depth: Depth,
    stop: Callable[[], bool] = lambda: False,
    goal: float = 0.0,
) -> Tensor:
    """Lower bounds (q,) of tuned queries, each the least over the leaves of its own small tree.

    A query is done when its bound exceeds the goal: above zero, the sign of its neuron is known.
    """
    root = plant(region, asked)
    careful = bound(pieces, region, asked, careful=True).lower
    if not root.layers:
        return careful
    alpha = root.flat({at: asked.theta[at] for at in root.layers})
    none = torch.zeros(0, dtype=torch.int64)
    leaves: list[list[Domain]] = [
        [
            Domain(
                q,
                float(careful[q]),
                torch.zeros(sum(root.sizes), dtype=torch.int8),
                alpha[q],
                torch.zeros(sum(root.widths)),
                None,
                none,
                none.to(alpha.dtype),
            )
        ]
        for q in range(len(asked))
    ]
    start = [group[0] for group in leaves if group[0].lower <= goal]
    batch = 4 * at_once(root, depth.batch)
    for first in range(0, len(start), batch):
        for domain in _scored(pieces, root, start[first : first + batch], depth, goal):
            leaves[domain.case] = [domain]
    active = {domain.case for domain in start}
    for _ in range(depth.rounds):
        if not active or stop():
            break
        before = {q: _least(leaves[q]) for q in active}
        _deepen(pieces, root, leaves, sorted(active), depth, goal, stop)
        active = {q for q in active if _worth(before[q], _least(leaves[q]), len(leaves[q]), depth, goal)}
    least = [_least(group) for group in leaves]
    return torch.maximum(careful, torch.tensor(least, dtype=careful.dtype))


def _least(group: list[Domain]) -> float:
    return min(domain.lower for domain in group)


def _worth(before: float, now: float, leaves: int, depth: Depth, goal: float) -> bool:
    return now <= goal and leaves < depth.leaves and now - before > depth.gain * abs(before)


def _deepen(
    pieces: Pieces,
    root: Root,
    leaves: list[list[Domain]],
    active: list[int],
    depth: Depth,
    goal: float,
    stop: Callable[[], bool],
) -> None:
    """Splits the worse half of the leaves of each active query, as far as the time allows."""
    taken: list[Domain] = []
    for q in active:
        group = sorted(leaves[q], key=lambda d: d.lower)
        taken += [d for d in group[: (len(group) + 1) // 2] if len(d.best) and int(d.best.max()) >= 0]
    batch = at_once(root, depth.batch)
    for start in range(0, len(taken), batch):
        if stop():
            return
        part = taken[start : start + batch]
        splits = choose(pieces, root, part, depth.candidates)
        halves = _scored(pieces, root, children(root, part, splits), depth, goal)
        gone = {id(d) for d in part}
        for q in {d.case for d in part}:
            leaves[q] = [d for d in leaves[q] if id(d) not in gone]
        for domain in halves:
            leaves[domain.case].append(domain)


def _scored(pieces: Pieces, root: Root, domains: list[Domain], depth: Depth, goal: float) -> list[Domain]:
    """The domains with tuned careful bounds and the neurons worth splitting next."""
    if not domains:
        return []
    asked = queries(root, domains)
    tuned = tune(pieces, root.region, asked, depth.iterations, 0.15, 0.9, 0.15, goal).queries
    traced = bound(pieces, root.region, tuned)
    relaxed = forward(pieces, root.region, tuned.top, traced, attained(root.region, traced))
    lower = bound(pieces, root.region, tuned, careful=True).lower.tolist()
    best, points = promising(root, domains, traced, relaxed, depth.candidates)
    alpha = root.flat({at: tuned.theta[at] for at in root.layers})
    beta = root.flat(dict(tuned.beta or {}))
    return [
        replace(d, lower=max(d.lower, lower[i]), alpha=alpha[i], beta=beta[i], best=best[i], points=points[i])
        for i, d in enumerate(domains)
    ]
