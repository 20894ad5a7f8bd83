"""Branch and bound on a problem: bounds over the whole box, then branching, in rounds of growing effort.

A round tightens the bounds before activations (CROWN, then alpha-CROWN, then small trees of growing size)
and then branches for about as long as the bounds took. The open domains carry over to the next round.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import torch

from holdfast.graph.ir import Activation
from holdfast.verify.bab import tree
from holdfast.verify.bab.search import (
    ENGINE,
    GOAL,
    SearchSettings,
    SearchState,
    closed,
    queries_for,
    replay,
    settle_leaf,
)
from holdfast.verify.bab.tree import BranchDomain, DomainPool, RootMapping, SearchRoot, children, choose
from holdfast.verify.linear.passes import BackwardPass, Region, attained, forward
from holdfast.verify.linear.pieces import full_precision, threads
from holdfast.verify.linear.root import Effort, bounds, unstable
from holdfast.verify.linear.tune import Queries, bound, tune
from holdfast.verify.problem import Case, Deadline, EngineResult, OutOfTime, VerificationProblem, same_box

Tensor = Any
Stop: TypeAlias = Callable[[], bool]
Leaves: TypeAlias = list[list[BranchDomain]]  # of the tree of each query
SIGNED = ("relu", "leaky", "sign")  # curves of which only the sign of what they read matters


def decide(problem: VerificationProblem, clock: Deadline, plan: SearchSettings | None = None) -> EngineResult:
    """The result by linear bounds and branching, or a timeout with the bound reached."""
    search = SearchState(problem, clock, plan or SearchSettings())
    with threads(clock.budget.jobs), torch.no_grad(), full_precision():
        for group in same_box(problem.cases):
            try:
                answer = _group(search, [problem.cases[i] for i in group])
            except OutOfTime:
                note = "the time limit was reached within one pass over the network"
                return EngineResult("timeout", ENGINE, note=note)
            if answer is not None:
                return answer
    if search.parked:
        note = f"{search.parked} domains without unstable neurons could not be decided"
        return EngineResult("unknown", ENGINE, margin=search.worst, note=note)
    return EngineResult("holds", ENGINE, margin=search.margin)


def _group(search: SearchState, cases: Sequence[Case]) -> EngineResult | None:
    """The result for the cases of one box; None if all are closed or parked."""
    state = _root(search, cases, None, _effort(search, 0))
    if state.cases and state.answer is None and not search.late():
        state = _root(search, state.cases, state.root.region, _effort(search, 1))
    # The number of domains that fit in memory; beyond it the best ones are processed first.
    room = search.clock.budget.memory_bytes * 0.25 / (9 * sum(state.root.widths) + 2000)
    pool = DomainPool(max(1000, int(room)))
    before, more = None, True
    for level in itertools.count(2):
        if state.answer is not None or not state.cases:
            return state.answer
        if not state.root.layers:
            return _smooth(search, state)
        if before is None:
            answer = settle(search, state, pool, seed(state.root, state.lower))
        else:
            answer, more = _carry(search, before, state, pool), _gained(before, state)
        if answer is None and len(pool) and not search.late():
            seconds = max(2.0, state.seconds) if more else math.inf
            answer = grow(search, state, pool, _until(search, seconds))
        if answer is not None or not len(pool):
            return answer
        if search.late():
            return EngineResult("timeout", ENGINE, margin=pool.lowest(), note=f"{len(pool)} domains open")
        before, state = state, _root(search, state.cases, state.root.region, _effort(search, level))
    return None


def _smooth(search: SearchState, state: BoxState) -> EngineResult | None:
    """Tune for longer, as there is no neuron to split (sigmoids); None if that does not decide."""
    for iterations in (40, 120):
        if search.late():
            break
        stop = _until(search, 0.5 * search.clock.left)
        effort = Effort(iterations, decay=0.96, stop=stop, abort=search.late)
        state = _root(search, state.cases, state.root.region, effort)
        if state.answer is not None or not state.cases:
            return state.answer
    for lower in state.lower.tolist():
        search.park(lower)
    return None


@dataclass(frozen=True, eq=False)
class BoxState:
    """The state of a box: its bounds, the open cases, their bounds, and the effort spent."""

    root: SearchRoot
    exact: Region  # the root's in float64
    cases: Sequence[Case]
    open_numbers: Sequence[int]  # indices of the open cases in the input cases
    lower: Tensor
    seconds: float
    answer: EngineResult | None


def _root(search: SearchState, cases: Sequence[Case], earlier: Region | None, effort: Effort) -> BoxState:
    """Tighten the box's bounds; return them with the cases that are still open after tuning."""
    begun = time.monotonic()
    search.clock.tell("bounds", len(cases), -math.inf)
    first = cases[0]
    region = bounds(search.pieces, first.lower, first.upper, effort, earlier)
    exact = search.in_float64(region, first)
    turns = search.plan.root_iterations
    lower, tuned = tune(region, queries_for(region, cases), turns, 0.3, 0.96, goal=GOAL, stop=search.late)
    answer = replay(search, attained(region, bound(region, tuned)), cases)
    open_index = (~closed(search, region, exact, tuned)).nonzero().reshape(-1)
    open_cases, lower = [cases[i] for i in open_index.tolist()], lower[open_index]
    if open_cases:
        search.clock.tell(f"{unstable(region)} unstable neurons", len(open_cases), float(lower.min()))
    root = tree.plant(region, tuned.pick(open_index))
    return BoxState(root, exact, open_cases, open_index.tolist(), lower, time.monotonic() - begun, answer)


def _gained(before: BoxState, now: BoxState) -> bool:
    """Whether tighter bounds paid off: markedly fewer unstable neurons or better bounds of cases."""
    fewer = unstable(now.root.region) < 0.9 * unstable(before.root.region)
    old = before.lower[torch.tensor(now.open_numbers)]
    return fewer or len(now.open_numbers) < len(before.open_numbers) or bool((now.lower > 0.8 * old).any())


def _effort(search: SearchState, level: int) -> Effort:
    """CROWN, then alpha-CROWN, then small trees of growing size."""
    if level == 0:
        return Effort(iterations=0, abort=search.late)
    used = time.monotonic() - search.clock.started
    stop = _until(search, min(0.35 * search.clock.left, max(5.0, 2 * used)))
    if level == 1:
        return Effort(stop=stop, abort=search.late)
    depth = RefinementDepth(leaves=12 * 4 ** (level - 2), rounds=4 * level)
    # Tangent points of curves converge more slowly than slopes of relus.
    curved = any(isinstance(s, Activation) and s.curve not in SIGNED for s in search.problem.net.steps)
    turns, decay = (20 * level, 0.96) if curved else (10, 0.85)
    finish = partial(refine, depth=depth, stop=stop)
    return Effort(turns, decay=decay, stop=stop, abort=search.late, finish=finish)


def _until(search: SearchState, seconds: float) -> Stop:
    end = time.monotonic() + seconds
    return lambda: search.late() or time.monotonic() > end


def _carry(search: SearchState, before: BoxState, now: BoxState, pool: DomainPool) -> EngineResult | None:
    """Move the pool to the tighter bounds; domains without a neuron to split are bounded again."""
    number = {old: new for new, old in enumerate(now.open_numbers)}
    move = RootMapping.between(before.root, now.root)
    again: list[BranchDomain] = []
    rows = 0 if now.root.queries.mix is None else now.root.queries.mix.shape[1]
    for domain in pool.drain():
        moved = move.domain(domain, number[domain.case], rows) if domain.case in number else None
        if moved is not None and len(moved.best):
            pool.add(moved)
        elif moved is not None:
            again.append(moved)
    for start in range(0, len(again), 256):
        answer = settle(search, now, pool, again[start : start + 256])
        if answer is not None:
            return answer
    return None


def seed(root: SearchRoot, lower: Tensor) -> list[BranchDomain]:
    """One domain per case, with no assumed signs."""
    alpha = root.flat({at: root.queries.theta[at] for at in root.layers})
    mix = root.queries.mix
    return [
        BranchDomain(
            case=case,
            lower=float(lower[case]),
            split=torch.zeros(sum(root.sizes), dtype=torch.int8),
            alpha=alpha[case],
            beta=torch.zeros(sum(root.widths)),
            mix=None if mix is None else mix[case],
            best=torch.zeros(0, dtype=torch.int64),
            points=torch.zeros(0),
        )
        for case in range(len(root.queries))
    ]


def grow(search: SearchState, state: BoxState, pool: DomainPool, until: Stop) -> EngineResult | None:
    """Process the pool until it is empty, a violation is found or `until` returns True."""
    batch, most = 8, state.root.at_once(search.plan.largest_batch)
    while len(pool) and not until():
        search.clock.tell("branching", len(pool), pool.lowest())
        begun = time.monotonic()
        domains = pool.take(min(batch, most))
        splits = choose(state.root, domains, search.plan.candidates)
        answer = settle(search, state, pool, children(state.root, domains, splits))
        if answer is not None:
            return answer
        spent = time.monotonic() - begun
        if spent < search.plan.seconds_a_round / 2 and len(domains) == batch:
            batch = min(2 * batch, most)
        elif spent > 2 * search.plan.seconds_a_round:
            batch = max(4, batch // 2)
    return None


def settle(
    search: SearchState, state: BoxState, pool: DomainPool, domains: list[BranchDomain]
) -> EngineResult | None:
    """Bound the domains, close those that are proven and add the others to the pool."""
    root, exact, queries = state.root, state.exact, tree.queries_of(state.root, domains)
    lower, tuned = tune(root.region, queries, search.plan.iterations, 0.1, 0.95, 0.1, GOAL, search.late)
    done = torch.zeros(len(domains), dtype=torch.bool)
    sure = (lower > 0).nonzero().reshape(-1)
    if len(sure):
        done[sure] = closed(search, root.region, exact, tuned.pick(sure))
    index = (~done).nonzero().reshape(-1)
    if not len(index):
        return None
    queries = tuned.pick(index)
    traced = bound(root.region, queries)
    answer = replay(search, attained(root.region, traced), state.cases)
    if answer is not None:
        return answer
    open_domains = [domains[i] for i in index.tolist()]
    updated = _update(root, open_domains, queries, traced, search.plan.candidates)
    for domain, moved, least in zip(open_domains, updated, traced.lower.tolist(), strict=True):
        if bool((moved.best >= 0).any()):
            pool.add(replace(moved, lower=least))
            continue
        shut = False
        if not root.curved and not search.late():
            shut, answer = settle_leaf(search, exact, root, state.cases[domain.case], domain)
        if answer is not None:
            return answer
        if not shut:
            search.park(least)
    return None


def _update(
    root: SearchRoot, domains: list[BranchDomain], queries: Queries, traced: BackwardPass, count: int
) -> list[BranchDomain]:
    """The domains with the parameters of these queries and the neurons worth splitting next."""
    relaxed = forward(root.region, queries.top, traced, attained(root.region, traced))
    best, points = tree.promising(root, domains, traced, relaxed, count)
    alpha = root.flat({at: queries.theta[at] for at in root.layers})
    beta = root.flat(dict(queries.beta or {}))
    mix = [None] * len(domains) if queries.mix is None else queries.mix
    return [
        replace(d, alpha=alpha[i], beta=beta[i], mix=mix[i], best=best[i], points=points[i])
        for i, d in enumerate(domains)
    ]


@dataclass(frozen=True)
class RefinementDepth:
    """How far neurons' ranges are refined."""

    rounds: int = 12
    leaves: int = 24
    iterations: int = 8
    candidates: int = 2
    batch: int = 1024  # domains bounded at once
    gain: float = 0.01  # stop refining a neuron whose bound rose by less than this share in a round


def refine(
    region: Region, queries: Queries, goal: float, depth: RefinementDepth, stop: Stop = lambda: False
) -> Tensor:
    """Lower bounds (q,) of tuned queries, each the least over the leaves of its own small tree.

    The triangle relaxation of each unstable neuron loses a little, and over many layers these losses
    multiply. Splitting some earlier neurons tightens a neuron's range, and every later layer benefits.
    A query is done when its bound exceeds the goal: above zero, the sign of its neuron is known.
    """
    root = tree.plant(region, queries)
    careful = bound(region, queries, careful=True).lower
    if not root.layers:
        return careful
    leaves = [[domain] for domain in seed(root, careful)]
    start = [group[0] for group in leaves if group[0].lower <= goal]
    batch = 4 * root.at_once(depth.batch)
    for first in range(0, len(start), batch):
        for domain in _scored(root, start[first : first + batch], depth, goal):
            leaves[domain.case] = [domain]
    active = {domain.case for domain in start}
    for _ in range(depth.rounds):
        if not active or stop():
            break
        before = {q: _least(leaves[q]) for q in active}
        _deepen(root, leaves, sorted(active), depth, goal, stop)
        for q in sorted(active):
            now = _least(leaves[q])
            gained = now - before[q] > depth.gain * abs(before[q])
            if now > goal or len(leaves[q]) >= depth.leaves or not gained:
                active.remove(q)
    least = [_least(group) for group in leaves]
    return torch.maximum(careful, torch.tensor(least, dtype=careful.dtype))


def _least(group: list[BranchDomain]) -> float:
    return min(domain.lower for domain in group)


def _deepen(
    root: SearchRoot, leaves: Leaves, active: list[int], depth: RefinementDepth, goal: float, stop: Stop
) -> None:
    """Split the worse half of the leaves of each active query, as far as the time allows."""
    selected: list[BranchDomain] = []
    for q in active:
        group = sorted(leaves[q], key=lambda d: d.lower)
        selected += [d for d in group[: (len(group) + 1) // 2] if len(d.best) and int(d.best.max()) >= 0]
    batch = root.at_once(depth.batch)
    for start in range(0, len(selected), batch):
        if stop():
            return
        part = selected[start : start + batch]
        halves = children(root, part, choose(root, part, depth.candidates))
        split_ids = {id(d) for d in part}
        for q in {d.case for d in part}:
            leaves[q] = [d for d in leaves[q] if id(d) not in split_ids]
        for domain in _scored(root, halves, depth, goal):
            leaves[domain.case].append(domain)


def _scored(
    root: SearchRoot, domains: list[BranchDomain], depth: RefinementDepth, goal: float
) -> list[BranchDomain]:
    """The domains with tuned careful bounds and the neurons worth splitting next."""
    if not domains:
        return []
    queries = tree.queries_of(root, domains)
    tuned = tune(root.region, queries, depth.iterations, 0.15, 0.9, 0.15, goal)[1]
    updated = _update(root, domains, tuned, bound(root.region, tuned), depth.candidates)
    lower = bound(root.region, tuned, careful=True).lower.tolist()
    return [replace(d, lower=max(d.lower, proven)) for d, proven in zip(updated, lower, strict=True)]
