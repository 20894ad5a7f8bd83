"""The search for few inputs: boxes settled by forms and small programs, split by inputs and relus."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from holdfast.verify.lowdim.layers import Layers, layers_of
from holdfast.verify.lowdim.tables import FOUND, LEAF
from holdfast.verify.lowdim.walker import SURE, Walker, ready, table_of
from holdfast.verify.problem import Answer, Case, Clock, Problem, same_box

ENGINE = "boxes"
CLIMBS = 32  # before the first box of a group
PARKED = 256  # undecided boxes after which the search ends
COMPILING = 55.0  # seconds that must be left for kernels to be compiled on the way


def search(problem: Problem, clock: Clock) -> Answer:
    """Whether a case can be met, for a net of few inputs made of linear steps and relus; else unknown.

    "holds" is proven for every evaluation of the net's `roundoff`, all rounding of the proof accounted for.
    """
    cases = [case for case in problem.cases if not (case.lower > case.upper).any()]  # NaN is no proof
    layers = layers_of(problem.net, inputs=any(case.inputs is not None for case in cases))
    if layers is None:
        return Answer("unknown", ENGINE, note="not a small net of linear steps and relus")
    if clock.left < COMPILING and not ready():
        note = "its kernels are not compiled yet and there is no time to; run `holdfast vnncomp warm` once"
        return Answer("unknown", ENGINE, note=note)
    with ThreadPoolExecutor(max(1, clock.budget.jobs)) as pool:
        return _Search(problem, clock, layers, pool).run(cases)


class _Search:
    """A search under way: what was proven and what was left open."""

    def __init__(self, problem: Problem, clock: Clock, layers: Layers, pool: ThreadPoolExecutor) -> None:
        self.problem, self.clock, self.layers, self.pool = problem, clock, layers, pool
        self.margin, self.seen, self.parked = np.inf, 0, 0

    def run(self, cases: Sequence[Case]) -> Answer:
        """The answer for all cases."""
        for numbers in same_box(cases):
            group = [cases[number] for number in numbers]
            answer = self.trivial(group) or self.group([case for case in group if len(case.bound)])
            if answer is not None:
                return answer
        note = f"{self.seen:,} boxes"
        if self.parked:
            note = f"{note}, {self.parked} of them at the limit of float64"
            return Answer("unknown", ENGINE, note=note, at_limit=True)
        margin = float(self.margin) if np.isfinite(self.margin) else None
        return Answer("holds", ENGINE, margin=margin, note=note)

    def trivial(self, group: Sequence[Case]) -> Answer | None:
        """The answer if a case has no rows: every point of its box is a witness."""
        for case in group:
            if not len(case.bound):
                point = 0.5 * case.lower + 0.5 * case.upper
                if self.problem.violates(point[None])[0]:
                    return Answer("violated", ENGINE, point)
                self.parked += 1
        return None

    def group(self, cases: Sequence[Case]) -> Answer | None:
        """The answer if the cases, all of one box, decide it."""
        if not cases:
            return None
        net, target = table_of(self.layers, cases), _target(self.layers, cases)
        jobs, seed = max(1, self.clock.budget.jobs), self.clock.budget.seed
        kind = self.problem.dtype
        walkers = [Walker(net, cases, target, seed, kind)]
        walkers[0].put_box(cases[0])
        climbs = CLIMBS
        while any(walker.open for walker in walkers):
            if self.clock.left <= 0:
                return Answer("timeout", ENGINE, note=f"{self.seen + sum(w.seen for w in walkers):,} boxes")
            busy = [walker for walker in walkers if walker.open]
            codes = self.pool.map(partial(Walker.walk, climbs=climbs), busy)
            for walker, code in zip(busy, codes, strict=True):
                answer = self.judged(walker, code)
                if answer is not None:
                    return answer
            climbs = walkers[0].fair_climbs()
            if jobs > len(walkers) and walkers[0].open > 1 and walkers[0].seen > 256:
                walkers.append(Walker(net, cases, target, seed + 7919 * len(walkers), kind))
            _level(walkers)
            worst = min(float(walker.state.worst) for walker in walkers)
            self.clock.tell("splitting boxes", sum(walker.open for walker in walkers), worst)
        self.margin = min(self.margin, *(float(walker.state.margin) for walker in walkers))
        self.seen += sum(walker.seen for walker in walkers)
        return None

    def judged(self, walker: Walker, code: int) -> Answer | None:
        """The answer if the walker paused at a point that is a counterexample, or at too many doubts."""
        if code not in (FOUND, LEAF):
            return None
        point = walker.point()
        if self.problem.violates(point[None])[0]:
            return Answer("violated", ENGINE, point, note=f"{self.seen + walker.seen:,} boxes")
        if code == FOUND:
            # Do not pause again at a point as bad as this one.
            state = walker.state
            state.wanted = min(state.wanted, 2.0 * state.best - 1e-9)
            return None
        self.parked += 1
        if self.parked < PARKED:
            return None
        note = f"{self.parked} boxes at the limit of float64"
        return Answer("unknown", ENGINE, note=note, at_limit=True)


def _target(layers: Layers, cases: Sequence[Case]) -> float:
    """The bound with which a box is settled at once, small beside what the rows are in the box's middle."""
    values = 0.5 * cases[0].lower + 0.5 * cases[0].upper
    start = values
    for layer in layers.hidden:
        values = layer.weight @ values + layer.bias
        values = np.maximum(values, layer.slope * values)
    values = layers.output.weight @ values + layers.output.bias
    rows = [case.rows @ values - case.bound for case in cases]
    rows += [case.inputs @ start for case in cases if case.inputs is not None]
    return min(SURE, 1e-3 * float(np.abs(np.concatenate(rows)).max()) + 1e-12)


def _level(walkers: Sequence[Walker]) -> None:
    """Give a walker without boxes half of those of the one with the most."""
    for walker in walkers:
        if not walker.open:
            richest = max(walkers, key=lambda w: w.open)
            if richest.open > 1:
                richest.share(walker)
