"""The sweep: segments of the input are settled or cut at breakpoints until none is left."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.graph.ir import Array, Conv, Dense, Net
from holdfast.verify.domain import first_float, last_float
from holdfast.verify.problem import Answer, Clock, Problem
from holdfast.verify.sweep.chords import Chords, Index, chords, piecewise, sizes_of
from holdfast.verify.sweep.judge import Asked, Judged, asked_of, doubtful, judged

ENGINE = "sweep"
SURE = 2e-4  # a margin above this is not improved any more: float32 runtimes differ by less
MOST_PAIRS = 1 << 22  # of segments and cases at the start: with more, cases do not share segments
MOST_WORK = 1 << 29  # multiply-adds of one batch: well below a second
REPLAYED = 16  # points of one batch that are replayed at most
TRIED = 17  # points of a doubtful segment


def search(problem: Problem, clock: Clock) -> Answer:
    """Whether a case can be met, for a piecewise-linear net of one input; else unknown.

    "holds" is proven for every evaluation of the net's `roundoff`, all rounding of the proof accounted for.
    """
    if not piecewise(problem.net):
        return Answer("unknown", ENGINE, note="not a piecewise-linear net of one input")
    with np.errstate(all="ignore"):  # what is not finite compares false, and nothing is proven
        return _Sweep(problem, clock).run()


@dataclass(frozen=True, eq=False)
class Work:
    """Pairs of a segment and a case that are open, each (w,)."""

    left: Array
    right: Array
    case: Index

    def __len__(self) -> int:
        return len(self.left)

    def part(self, which: NDArray[np.generic] | slice) -> Work:
        """Some of them."""
        return Work(self.left[which], self.right[which], self.case[which])


def segments_of(asked: Asked) -> Work:
    """The boxes of the cases, cut where another one begins or ends, in order: cases share segments then."""
    ends = np.unique(np.concatenate([asked.lower, asked.upper]))
    begin, stop = np.searchsorted(ends, asked.lower), np.searchsorted(ends, asked.upper)
    case, count = np.arange(len(asked.lower)), stop - begin
    if count.sum() > MOST_PAIRS:
        return Work(asked.lower, asked.upper, case)
    case = np.repeat(case, count)
    at = np.arange(len(case)) - np.repeat(np.cumsum(count) - count, count) + begin[case]
    order = np.argsort(at, kind="stable")
    return Work(ends[at], ends[at + 1], case).part(order)


class _Sweep:
    """A sweep under way: what was proven, and how many segments were left in doubt."""

    def __init__(self, problem: Problem, clock: Clock) -> None:
        self.problem, self.clock = problem, clock
        self.asked = asked_of(problem.cases, problem.dtype)
        self.sizes = sizes_of(problem.net)
        self.margin, self.doubts, self.seen = np.inf, 0, 0
        self.size = _batch(problem.net, self.asked, clock.budget.memory_bytes)

    def run(self) -> Answer:
        """The answer once no segment is open, or the time is up."""
        stack = [segments_of(self.asked)] if len(self.asked.lower) else []
        while stack:
            if self.clock.left <= 0:
                return Answer("timeout", ENGINE, note=f"{sum(map(len, stack)):,} segments open")
            work = stack.pop()
            if len(work) > self.size:
                stack.append(work.part(slice(self.size, None)))
                work = work.part(slice(self.size))
            witness, rest = self.step(work)
            if witness is not None:
                return Answer("violated", ENGINE, witness, note=f"{self.seen:,} segments")
            if len(rest):
                stack.append(rest)
            self.clock.tell("sweeping", sum(map(len, stack)), float(self.margin))
        if self.doubts:
            kind = self.problem.dtype.name
            note = f"{self.doubts:,} segments come too near, and no {kind} there was seen to violate"
            return Answer("unknown", ENGINE, note=note, at_limit=True)
        margin = float(self.margin) if np.isfinite(self.margin) else None
        return Answer("holds", ENGINE, margin=margin, note=f"{self.seen:,} segments")

    def step(self, work: Work) -> tuple[NDArray[Any] | None, Work]:
        """A witness met on the way, and what is still open, cut where neurons change their sign."""
        order = np.lexsort((work.right, work.left))
        work = work.part(order)
        new = np.ones(len(work), np.bool_)
        new[1:] = (np.diff(work.left) != 0) | (np.diff(work.right) != 0)
        segment = np.cumsum(new) - 1
        left, right = work.left[new], work.right[new]
        self.seen += len(left)
        drawn = chords(self.problem.net, left, right, self.sizes)
        ends = (work.left, work.right)
        outputs = (drawn.left[segment], drawn.right[segment])
        found = judged(self.asked, work.case, ends, outputs, drawn.off[segment], SURE)
        witness = self.met(work, found)
        sure = np.minimum(SURE, 1e-3 * np.maximum(np.abs(found.worst_left), np.abs(found.worst_right)))
        cuts = np.bincount(drawn.where, minlength=len(left))[segment]
        done = (found.margin > sure) | ((cuts == 0) & (found.margin > 0))
        if done.any():
            self.margin = min(self.margin, float(found.margin[done].min()))
        leaves = np.flatnonzero(~done & (cuts == 0))
        if witness is None and len(leaves):
            self.doubts += len(leaves)
            witness = self.replayed(work, found, leaves)
        return witness, _cut(work.part(~done & (cuts > 0)), segment[~done & (cuts > 0)], left, right, drawn)

    def met(self, work: Work, found: Judged) -> NDArray[Any] | None:
        """A replayed witness among the ends of segments."""
        x, case = np.concatenate([work.left, work.right]), np.concatenate([work.case, work.case])
        worst = np.concatenate([found.worst_left, found.worst_right])
        near = np.flatnonzero(worst <= 0)
        near = near[np.argsort(worst[near], kind="stable")[:REPLAYED]]
        return self.real(x[near].astype(self.problem.dtype), case[near]) if len(near) else None

    def replayed(self, work: Work, found: Judged, leaves: Index) -> NDArray[Any] | None:
        """A replayed witness among the numbers of the doubtful parts of segments."""
        points, cases = [], []
        for at in leaves.tolist():
            case, width = work.case[at], work.right[at] - work.left[at]
            share = doubtful(found.left[at], found.right[at])
            low, high = (work.left[at] + width * np.array([part]) for part in share)
            first = np.maximum(first_float(low, self.problem.dtype), self.asked.first[case])[0]
            last = np.minimum(last_float(high, self.problem.dtype), self.asked.last[case])[0]
            if first <= last:
                some = np.linspace(first, last, TRIED).astype(self.problem.dtype)
                points.append(np.clip(some, first, last))
                cases.append(np.full(TRIED, case))
            if len(points) >= 64:
                witness = self.real(np.concatenate(points), np.concatenate(cases))
                points, cases = [], []
                if witness is not None or self.clock.left <= 0:
                    return witness
        return self.real(np.concatenate(points), np.concatenate(cases)) if points else None

    def real(self, points: NDArray[Any], case: Index) -> NDArray[Any] | None:
        """The first of points (p,), moved into their cases' boxes, that violates on the original file."""
        possible = self.asked.first[case] <= self.asked.last[case]
        inside = np.clip(points, self.asked.first[case], self.asked.last[case])[possible]
        whole = np.unique(inside)[:, None][:, : self.problem.net.inputs]
        if not len(whole):
            return None
        hit = np.flatnonzero(self.problem.violates(whole))
        return whole[hit[0]].copy() if len(hit) else None


def _cut(work: Work, segment: Index, left: Array, right: Array, drawn: Chords) -> Work:
    """The pairs with their segments cut at the places inside; `left` and `right` are of all segments."""
    own = np.arange(len(left))
    where, at = np.concatenate([own, drawn.where]), np.concatenate([left, drawn.at])
    order = np.lexsort((at, where))
    where, at = where[order], at[order]
    new = np.ones(len(at), np.bool_)
    new[1:] = (np.diff(where) != 0) | (np.diff(at) != 0)
    where, at = where[new], at[new]
    begin = np.searchsorted(where, own)
    end = np.append(at[1:], 0.0)
    end[np.append(begin[1:], len(at)) - 1] = right
    count = np.append(begin[1:], len(at)) - begin
    many = count[segment]
    place = np.arange(int(many.sum())) - np.repeat(np.cumsum(many) - many, many)
    place += np.repeat(begin[segment], many)
    return Work(at[place], end[place], np.repeat(work.case, many))


def _batch(net: Net, asked: Asked, memory: int) -> int:
    """How many pairs are looked at together."""
    values = sum(prod(step.shape) for step in net.steps) + asked.rows[:1].size
    work = values
    for step in net.steps:
        if isinstance(step, Dense):
            work += step.weight.size
        elif isinstance(step, Conv):
            work += prod(step.shape) * prod(step.weight.shape[1:])
    return max(1, min(MOST_WORK // (3 * work), memory // 16 // (64 * values), 1 << 15))
