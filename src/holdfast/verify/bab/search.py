"""One run of the branch and bound: the net in two precisions, what is proven, and witnesses replayed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from holdfast.verify.domain import first_float, last_float
from holdfast.verify.linear.curves import Bend, Cut, doubled
from holdfast.verify.linear.passes import Region, evaluate
from holdfast.verify.linear.pieces import Pieces
from holdfast.verify.linear.root import Sweep, ball
from holdfast.verify.linear.tune import Queries, bound, exactly
from holdfast.verify.problem import Answer, Case, Clock, Problem

Tensor = Any
ENGINE = "branch and bound"
GOAL = 2e-4  # bounds are tuned until they exceed this, so that a proof seldom hangs by a hair


@dataclass(frozen=True)
class Plan:
    """The figures of the search, the same for every network."""

    root_iterations: int = 60
    iterations: int = 8
    candidates: int = 4
    seconds_a_round: float = 0.8
    largest_batch: int = 512


class Search:
    """What one run shares: the problem, the clock and the least margin proven so far."""

    def __init__(self, problem: Problem, clock: Clock, plan: Plan) -> None:
        self.problem, self.clock, self.plan = problem, clock, plan
        self.pieces = Pieces(problem.net, torch.float32, clock.check)
        self.exact = Pieces(problem.net, torch.float64, clock.check)
        self.margin = math.inf
        self.parked = 0
        self.worst = math.inf

    def late(self, reserve: float = 0.3) -> bool:
        """Whether the time is up."""
        return self.clock.left < reserve

    def park(self, lower: float) -> None:
        """Give up a domain that cannot be split any more: the answer will be unknown."""
        self.parked += 1
        self.worst = min(self.worst, lower)


@dataclass(frozen=True, eq=False)
class Ground:
    """The bounds over one box, in both precisions."""

    sweep: Sweep
    region: Region
    exact: Region


def ground(search: Search, sweep: Sweep, case: Case) -> Ground:
    """The region of a sweep and the same in float64: the bounds carry over, the lines are drawn anew."""
    centre, radius = ball(search.exact, case.lower, case.upper)
    bends = {at: doubled(drawn) for at, drawn in sweep.bends.items()}
    region = sweep.region()
    largest = {at: value.double() for at, value in region.largest.items()}
    return Ground(sweep, region, Region(centre, radius, bends, largest))


def closed(search: Search, land: Ground, asked: Queries) -> Tensor:
    """Which queries (q,) are proven: by a careful pass, in float64 where float32 leaves it open."""
    proven = bound(search.pieces, land.region, asked, careful=True).lower
    again = (proven <= 0).nonzero().reshape(-1)
    if len(again):
        picked = _double(asked.pick(again), land.exact)
        lower = bound(search.exact, land.exact, picked, careful=True).lower
        proven[again] = torch.maximum(proven[again], lower)
    done = proven > 0
    if bool(done.any()):
        search.margin = min(search.margin, float(proven[done].min()))
    return done


def _double(asked: Queries, exact: Region) -> Queries:
    if asked.spec is not None:
        asked = replace(exactly(asked, asked.spec)[1], parts=None)
    split = None
    if asked.split is not None:
        split = {at: _assumed(exact.bends[at], value) for at, value in asked.split.items()}
    return replace(
        asked,
        rows=asked.rows.double(),
        split=split,
        theta={
            at: exact.bends[at].keep(theta.double(), (split or {}).get(at))
            for at, theta in asked.theta.items()
        },
        beta=None if asked.beta is None else {at: beta.double() for at, beta in asked.beta.items()},
    )


def _assumed(bend: Bend, split: Tensor) -> Tensor:
    """What is assumed, in float64: signs stay, lines over a part of an interval are drawn anew."""
    return bend.assumed(split[:, 0].double(), split[:, 1].double()) if isinstance(bend, Cut) else split


def replay(search: Search, points: Tensor, cases: Sequence[Case]) -> Answer | None:
    """A violation among points (q, n) of the cases' box, replayed on the original file."""
    dtype, case = search.problem.dtype, cases[0]
    ends = first_float(case.lower, dtype), last_float(case.upper, dtype)
    inside = np.clip(points.double().numpy().astype(dtype), *ends)
    outputs = evaluate(search.pieces, search.pieces.tensor(inside)).double().numpy()
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
