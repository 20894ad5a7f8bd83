"""Decides a problem: bounds over the whole box, then branching, in turns that grow.

A turn makes the bounds before activations tighter (CROWN, then alpha-CROWN, then small trees of growing
size) and then branches for about as long as the bounds took. What branching reached is carried over.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from holdfast.graph.ir import Activation
from holdfast.verify.bab.ask import ask, same_box
from holdfast.verify.bab.grow import grow, seed, settle
from holdfast.verify.bab.move import Move
from holdfast.verify.bab.pool import Pool
from holdfast.verify.bab.refine import Depth, refine
from holdfast.verify.bab.search import ENGINE, GOAL, Ground, Plan, Search, closed, ground, replay
from holdfast.verify.bab.tree import Domain, Root, plant
from holdfast.verify.linear.passes import Region, attained
from holdfast.verify.linear.pieces import Pieces, full_precision
from holdfast.verify.linear.root import Effort, bounds, unstable
from holdfast.verify.linear.tune import Queries, bound, tune
from holdfast.verify.problem import Answer, Case, Clock, OutOfTime, Problem

Tensor = Any
SIGNED = ("relu", "leaky", "sign")  # curves of which only the sign of what they read matters


def decide(problem: Problem, clock: Clock, plan: Plan | None = None) -> Answer:
    """The answer by linear bounds and branching, or what was reached when the time was up."""
    torch.set_num_threads(max(1, clock.budget.jobs))
    search = Search(problem, clock, plan or Plan())
    with torch.no_grad(), full_precision():
        for group in same_box(problem.cases):
            try:
                found = _group(search, [problem.cases[i] for i in group])
            except OutOfTime:
                return Answer("timeout", ENGINE, note="the time was up within a pass over the network")
            if found is not None:
                return found
    if search.parked:
        note = f"{search.parked} domains with no undecided neuron left could not be closed"
        return Answer("unknown", ENGINE, margin=search.worst, note=note)
    return Answer("holds", ENGINE, margin=search.margin)


def _group(search: Search, cases: Sequence[Case]) -> Answer | None:
    """None when all cases of one box are closed or parked."""
    state = _root(search, cases, None, _effort(search, 0))
    if state.cases and state.found is None and not search.late():
        state = _root(search, state.cases, state.land, _effort(search, 1))
    if state.found is not None or not state.cases:
        return state.found
    if not state.root.layers:
        return _smooth(search, state)
    pool = Pool(_room(search, sum(state.root.widths)))
    found = settle(search, state.land, state.root, state.cases, pool, seed(state.root, state.lower))
    level, more = 2, True
    while found is None and len(pool) and not search.late():
        seconds = max(2.0, state.seconds) if more else math.inf
        found = grow(search, state.land, state.root, state.cases, pool, _until(search, seconds))
        if found is not None or not len(pool) or search.late():
            break
        before = state
        state = _root(search, before.cases, before.land, _effort(search, level))
        if state.found is not None or not state.cases:
            return state.found
        if not state.root.layers:
            return _smooth(search, state)
        found = _carry(search, before, state, pool)
        more = _gained(before, state)
        level += 1
    if found is None and len(pool):
        return Answer("timeout", ENGINE, margin=pool.lowest(), note=f"{len(pool)} domains open")
    return found


def _smooth(search: Search, state: State) -> Answer | None:
    """Without a neuron to split (sigmoids), longer tuning is all that can be done; None when that ended."""
    for iterations in (40, 120):
        if search.late():
            break
        effort = Effort(
            iterations, decay=0.96, stop=_until(search, 0.5 * search.clock.left), abort=search.late
        )
        state = _root(search, state.cases, state.land, effort)
        if state.found is not None or not state.cases:
            return state.found
    for lower in state.lower.tolist():
        search.park(lower)
    return None


@dataclass(frozen=True, eq=False)
class State:
    """Where a box stands: its bounds, the cases still open, their bounds, and what all that took."""

    land: Ground
    root: Root
    cases: Sequence[Case]
    kept: Sequence[int]  # the open cases' numbers among those that were given
    lower: Tensor
    seconds: float
    found: Answer | None


def _root(search: Search, cases: Sequence[Case], known: Ground | None, effort: Effort) -> State:
    """The box's bounds made tighter, and the cases that are still open after tuning on them."""
    begun = time.monotonic()
    search.clock.tell("bounds", len(cases), -math.inf)
    first = cases[0]
    sweep = bounds(search.pieces, first.lower, first.upper, effort, known.sweep if known else None)
    land = ground(search, sweep, first)
    asked = ask(search.pieces, land.region, cases)
    turns = search.plan.root_iterations
    tuned = tune(search.pieces, land.region, asked, turns, 0.3, 0.96, goal=GOAL, stop=search.late)
    point = attained(land.region, bound(search.pieces, land.region, tuned.queries))
    found = replay(search, point, cases)
    kept = (~closed(search, land, tuned.queries)).nonzero().reshape(-1)
    left, lower = [cases[i] for i in kept.tolist()], tuned.lower[kept]
    if left:
        search.clock.tell(f"{unstable(sweep)} undecided neurons", len(left), float(lower.min()))
    root = plant(land.region, tuned.queries.pick(kept))
    return State(land, root, left, kept.tolist(), lower, time.monotonic() - begun, found)


def _gained(before: State, now: State) -> bool:
    """Whether tighter bounds have paid: undecided neurons or the cases' bounds are markedly better."""
    fewer = unstable(now.land.sweep) < 0.9 * unstable(before.land.sweep)
    old = before.lower[torch.tensor(now.kept)]
    return fewer or len(now.kept) < len(before.kept) or bool((now.lower > 0.8 * old).any())


def _effort(search: Search, level: int) -> Effort:
    """CROWN, then alpha-CROWN, then small trees of growing size."""
    if level == 0:
        return Effort(iterations=0, abort=search.late)
    used = time.monotonic() - search.clock.started
    stop = _until(search, min(0.35 * search.clock.left, max(5.0, 2 * used)))
    if level == 1:
        return Effort(stop=stop, abort=search.late)
    depth = Depth(leaves=12 * 4 ** (level - 2), rounds=4 * level)
    # Touching points of curves take longer to find their place than slopes of relus.
    curved = any(isinstance(s, Activation) and s.curve not in SIGNED for s in search.problem.net.steps)
    turns, decay = (20 * level, 0.96) if curved else (10, 0.85)

    def finish(pieces: Pieces, region: Region, asked: Queries, goal: float) -> Tensor:
        return refine(pieces, region, asked, depth, stop, goal)

    return Effort(turns, decay=decay, stop=stop, abort=search.late, finish=finish)


def _until(search: Search, seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: search.late() or time.monotonic() > end


def _room(search: Search, width: int) -> int:
    """How many domains memory may hold before the best are worked on first."""
    return max(1000, int(search.clock.budget.memory_bytes * 0.25 / (9 * width + 2000)))


def _carry(search: Search, before: State, now: State, pool: Pool) -> Answer | None:
    """Moves the pool to the tighter bounds; domains without a neuron to split next are bounded anew."""
    number = {old: new for new, old in enumerate(now.kept)}
    move = Move.between(before.root, now.root)
    again: list[Domain] = []
    rows = 0 if now.root.asked.mix is None else now.root.asked.mix.shape[1]
    for domain in pool.drain():
        moved = move.domain(domain, number[domain.case], rows) if domain.case in number else None
        if moved is not None and len(moved.best):
            pool.add(moved)
        elif moved is not None:
            again.append(moved)
    for start in range(0, len(again), 256):
        found = settle(search, now.land, now.root, now.cases, pool, again[start : start + 256])
        if found is not None:
            return found
    return None
