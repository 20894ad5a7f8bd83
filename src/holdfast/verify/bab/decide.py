"""Decides a problem: root bounds, then branch and bound on the signs of neurons."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from holdfast.verify.bab.ask import ask, same_box
from holdfast.verify.bab.tree import Domain, Pool, Root, children, choose, plant, promising, queries
from holdfast.verify.linear.curves import bend
from holdfast.verify.linear.passes import Region, attained, evaluate, forward
from holdfast.verify.linear.pieces import Pieces
from holdfast.verify.linear.root import Effort, Sweep, ball, bounds, unstable
from holdfast.verify.linear.tune import Queries, bound, tune
from holdfast.verify.problem import Answer, Case, Clock, Problem

Tensor = Any
ENGINE = "branch and bound"


@dataclass(frozen=True)
class Plan:
    """The figures of the search, the same for every network."""

    root_iterations: int = 60
    iterations: int = 12
    candidates: int = 4
    seconds_a_round: float = 0.8
    largest_batch: int = 512


class Search:
    """One run on one problem: the net in two precisions and what was found."""

    def __init__(self, problem: Problem, clock: Clock, plan: Plan) -> None:
        self.problem, self.clock, self.plan = problem, clock, plan
        self.pieces = Pieces(problem.net, torch.float32)
        self.exact = Pieces(problem.net, torch.float64)
        self.margin = math.inf
        self.parked = 0
        self.worst = math.inf

    def late(self, reserve: float = 0.3) -> bool:
        """Whether the time is up."""
        return self.clock.left < reserve


def decide(problem: Problem, clock: Clock, plan: Plan | None = None) -> Answer:
    """The answer by linear bounds and branching, or what was reached when the time was up."""
    torch.set_num_threads(max(1, clock.budget.jobs))
    search = Search(problem, clock, plan or Plan())
    with torch.no_grad():
        for group in same_box(problem.cases):
            found = _group(search, [problem.cases[i] for i in group])
            if found is not None:
                return found
    if search.parked:
        note = f"{search.parked} domains without an undecided neuron could not be closed"
        return Answer("unknown", ENGINE, margin=search.worst, note=note)
    return Answer("holds", ENGINE, margin=search.margin)


def _group(search: Search, cases: list[Case]) -> Answer | None:
    """None when all cases of one box are closed."""
    lower, upper = cases[0].lower, cases[0].upper
    for effort in (Effort(iterations=0), _effort(search)):
        search.clock.tell("bounds", len(cases), -math.inf)
        sweep = bounds(search.pieces, lower, upper, effort)
        region = sweep.region()
        asked = ask(search.pieces, region, cases)
        tuned = tune(search.pieces, region, asked, search.plan.root_iterations, 0.3, 0.96, stop=search.late)
        exact = _widened(search, sweep, lower, upper)
        closed = _closed(search, region, exact, tuned.queries)
        found = _try(search, region, tuned.queries, cases)
        if found is not None:
            return found
        left = [i for i in range(len(cases)) if not closed[i]]
        if not left:
            return None
        cases = [cases[i] for i in left]
        if search.late():
            break
    index = torch.tensor(left)
    root = plant(region, tuned.queries.pick(index))
    search.clock.tell(f"{unstable(sweep)} undecided neurons", len(left), float(tuned.lower[index].min()))
    return _branch(search, root, exact, cases, tuned.lower[index])


def _effort(search: Search) -> Effort:
    share = search.clock.left * 0.4
    until = time.monotonic() + share
    return Effort(iterations=12, stop=lambda: time.monotonic() > until)


def _widened(search: Search, sweep: Sweep, lower: Any, upper: Any) -> Region:
    """The same region in float64: the bounds carry over, the lines are drawn anew."""
    centre, radius = ball(search.exact, lower, upper)
    steps = search.problem.net.steps
    bends = {
        at: bend(steps[at], sweep.lower[steps[at].source].double(), sweep.upper[steps[at].source].double())  # type: ignore[union-attr,arg-type]
        for at in sweep.bends
    }
    largest = {at: torch.maximum(sweep.lower[at].abs(), sweep.upper[at].abs()).double() for at in sweep.lower}
    return Region(centre, radius, bends, largest)


def _closed(search: Search, region: Region, exact: Region, asked: Queries) -> list[bool]:
    """Which queries are proven: by a careful pass, in float64 where float32 leaves it open."""
    proven = bound(search.pieces, region, asked, careful=True).lower
    again = (proven <= 0).nonzero().reshape(-1)
    if len(again):
        picked = _double(asked.pick(again), exact)
        proven[again] = torch.maximum(proven[again], bound(search.exact, exact, picked, careful=True).lower)
    done = proven > 0
    if bool(done.any()):
        search.margin = min(search.margin, float(proven[done].min()))
    return [bool(d) for d in done]


def _double(asked: Queries, exact: Region) -> Queries:
    def wide(value: Tensor | None) -> Tensor | None:
        return None if value is None else value.double()

    theta = {at: exact.bends[at].keep(v.double()) for at, v in asked.theta.items()}
    beta = None if asked.beta is None else {k: v.double() for k, v in asked.beta.items()}
    return replace(
        asked,
        rows=wide(asked.rows),
        offset=wide(asked.offset),
        rows_in=wide(asked.rows_in),
        theta=theta,
        beta=beta,
        parts=None,
        mix=None,
    )


def _try(search: Search, region: Region, asked: Queries, cases: list[Case]) -> Answer | None:
    """A counterexample among the inputs at which the linear bounds are attained."""
    traced = bound(search.pieces, region, asked)
    points = attained(region, traced)
    return _replay(search, points, cases)


def _replay(search: Search, points: Tensor, cases: list[Case]) -> Answer | None:
    """A violation among points (q, n) of one box, replayed on the original file."""
    lower, upper = _inside(cases[0])
    inside = np.clip(points.double().numpy(), lower, upper).astype(np.float32)
    outputs = evaluate(search.pieces, torch.as_tensor(inside)).double().numpy()
    near = np.zeros(len(inside), bool)
    for case in cases:
        slack = outputs @ case.rows.T - case.bound
        if case.inputs is not None:
            slack = slack + inside.astype(np.float64) @ case.inputs.T
        near |= slack.max(1) <= 1e-4 * (1 + np.abs(case.bound).max(initial=0.0))
    for point in inside[near][:4]:
        if bool(search.problem.violates(point[None])[0]):
            return Answer("violated", ENGINE, witness=point)
    return None


def _inside(case: Case) -> tuple[Any, Any]:
    """The box's float32 ends: the least and the largest float32 inside."""
    low, high = case.lower.astype(np.float32), case.upper.astype(np.float32)
    low = np.where(low.astype(np.float64) < case.lower, np.nextafter(low, np.float32(np.inf)), low)
    high = np.where(high.astype(np.float64) > case.upper, np.nextafter(high, np.float32(-np.inf)), high)
    return low.astype(np.float64), high.astype(np.float64)


def _branch(search: Search, root: Root, exact: Region, cases: list[Case], lower: Tensor) -> Answer | None:
    width = sum(root.sizes)
    pool = Pool(_room(search, width))
    first = (
        [
            Domain(
                case,
                float(lower[case]),
                torch.zeros(width, dtype=torch.int8),
                root.flat({at: root.asked.theta[at] for at in root.layers})[case],
                torch.zeros(width),
                None if root.asked.mix is None else root.asked.mix[case],
                torch.zeros(0, dtype=torch.int64),
            )
            for case in range(len(cases))
        ]
        if width
        else []
    )
    if not first:
        search.parked, search.worst = search.parked + len(cases), float(lower.min())
        return None
    found = _settle(search, root, exact, cases, pool, first, tuning=False)
    batch = 8
    while len(pool) and found is None:
        if search.late():
            return Answer("timeout", ENGINE, margin=pool.lowest(), note=f"{len(pool)} domains open")
        search.clock.tell("branching", len(pool), pool.lowest())
        begun = time.monotonic()
        taken = pool.take(batch)
        neurons = choose(search.pieces, root, taken, search.plan.candidates)
        found = _settle(search, root, exact, cases, pool, children(taken, neurons))
        spent = time.monotonic() - begun
        if spent < search.plan.seconds_a_round / 2 and len(taken) == batch:
            batch = min(2 * batch, search.plan.largest_batch)
        elif spent > 2 * search.plan.seconds_a_round:
            batch = max(4, batch // 2)
    return found


def _room(search: Search, width: int) -> int:
    """How many domains memory may hold before the best are worked on first."""
    return max(1000, int(search.clock.budget.memory_bytes * 0.25 / (9 * width + 2000)))


def _settle(
    search: Search,
    root: Root,
    exact: Region,
    cases: list[Case],
    pool: Pool,
    domains: list[Domain],
    tuning: bool = True,
) -> Answer | None:
    """Bounds the domains, closes what can be closed and puts the rest into the pool."""
    asked = queries(root, domains)
    if tuning:
        tuned = tune(
            search.pieces, root.region, asked, search.plan.iterations, 0.1, 0.95, 0.1, stop=search.late
        )
        asked = tuned.queries
        closed = torch.zeros(len(domains), dtype=torch.bool)
        sure = (tuned.lower > 0).nonzero().reshape(-1)
        if len(sure):
            closed[sure] = torch.tensor(_closed(search, root.region, exact, asked.pick(sure)))
        index = (~closed).nonzero().reshape(-1)
        if not len(index):
            return None
        asked, domains = asked.pick(index), [domains[i] for i in index.tolist()]
    traced = bound(search.pieces, root.region, asked)
    point = attained(root.region, traced)
    relaxed = forward(search.pieces, root.region, asked.top, traced, point)
    found = _replay(search, point, cases)
    if found is not None:
        return found
    split = torch.stack([d.split for d in domains])
    best = promising(root, split, traced, relaxed, search.plan.candidates)
    alpha = root.flat({at: asked.theta[at] for at in root.layers})
    beta = root.flat(dict(asked.beta or {}))
    for i, domain in enumerate(domains):
        if not bool((split[i] == 0).any()):
            search.parked += 1
            search.worst = min(search.worst, float(traced.lower[i]))
            continue
        mix = None if asked.mix is None else asked.mix[i]
        pool.add(
            replace(domain, lower=float(traced.lower[i]), alpha=alpha[i], beta=beta[i], mix=mix, best=best[i])
        )
    return None
