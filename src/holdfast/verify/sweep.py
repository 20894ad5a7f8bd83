"""Engine for piecewise-linear nets of one input: bounds on segments that are cut at breakpoints.

On a segment [a, b] every step's values v(x) lie within `off` of the chord c(x) from V(a) to V(b), the values
as computed. A linear step W v + b keeps this with |W| off, plus the rounding of its own sums at both ends. A
relu whose chord runs from -p to q bends away from its new chord by at most p q / (p + q); where the sign is
fixed it does not bend at all. A bound is therefore valid for any segments, and exact up to rounding once
the segments end at the breakpoints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.graph import ir
from holdfast.graph.ir import Activation, Array, Net, Selection, Step, step_values
from holdfast.verify.problem import (
    Case,
    Deadline,
    EngineResult,
    VerificationProblem,
    ends_of,
    products,
    relus_only,
    stacked_rows,
)
from holdfast.verify.rounding import CURVE, MERGED, REPLAYED, SURE, UNIT, magnitude, step_error, terms

ENGINE = "sweep"
SHARP = 1e-6  # after the first breakpoint of a segment, cut only where `off` is below this share of the rise
MOST_PAIRS = 1 << 22  # of segments and cases at the start: with more, cases do not share segments
MOST_WORK = 1 << 29  # multiply-adds of one batch: well below a second
REPLAYED_INSIDE = 17  # points of a doubtful segment
Index = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Chords:
    """The outputs at both ends of s segments and the most they are off the chord (s, k).

    `where` (c,) and `at` (c,) are segments and the places inside them at which a neuron changes its sign.
    """

    left: Array
    right: Array
    off: Array
    where: Index
    at: Array


def piecewise(net: Net) -> bool:
    """Whether a net has at most one input and only linear steps and relus."""
    return net.inputs <= 1 and relus_only(net)


def chords(net: Net, left: Array, right: Array) -> Chords:
    """The net's chords on segments from left (s,) to right (s,)."""
    points, places = np.unique(np.concatenate([left, right]), return_inverse=True)
    walk = _ChordPass(net, left, right, places[: len(left)], places[len(left) :])
    inputs = points[:, None][:, : net.inputs], np.zeros((len(left), net.inputs))
    values, off = ir.forward(net, inputs, walk.apply)
    where, cuts = np.concatenate(walk.where), np.concatenate(walk.cuts)
    return Chords(values[walk.first], values[walk.second], off, where, cuts)


class _ChordPass:
    """A running pass over the steps: their values, deviations from the chords (s, n), and cuts so far."""

    def __init__(self, net: Net, left: Array, right: Array, first: Index, second: Index) -> None:
        self.net, self.left, self.right, self.first, self.second = net, left, right, first, second
        self.where, self.cuts = [np.zeros(0, np.int64)], [np.zeros(0)]
        self.cut = np.zeros(len(left), np.bool_)  # whether a segment has a breakpoint so far

    def apply(self, at: int, step: Step, sources: list[tuple[Array, Array]]) -> tuple[Array, Array]:
        """The values of a step and their deviations, from those of its sources."""
        if isinstance(step, Activation):
            values, off = sources[0]
            return ir.curve_of(step, values), self.bend(step, values, off)
        # Bound on the relative rounding error of its sums, here and in a runtime.
        unit = 2 * (terms(step) + MERGED + 8) * UNIT + step_error(self.net, step)
        parts = []
        for values, off in sources:
            size = np.abs(values)
            largest = np.maximum(size[self.first], size[self.second])
            parts.append(off + (0.0 if isinstance(step, Selection) else unit) * largest)
        deviations: Array = step_values(magnitude(step, unit), parts, self.net) * (1 + 2 * unit)
        return step_values(step, [values for values, _ in sources], self.net), deviations

    def bend(self, step: Activation, values: Array, off: Array) -> Array:
        """The deviations of an activation; add the places where neurons provably change sign."""
        slope = step.slope if step.curve == "leaky" else 0.0
        start, end = values[self.first], values[self.second]
        below, above = np.maximum(-np.minimum(start, end), 0.0), np.maximum(np.maximum(start, end), 0.0)
        rise = below + above
        bow = abs(1.0 - slope) * np.divide(below, rise, out=np.zeros_like(rise), where=rise > 0) * above
        either = max(1.0, abs(slope)) * off + bow * (1 + 16 * UNIT)
        positive, negative = np.minimum(start, end) >= off, np.maximum(start, end) <= -off
        new_off = np.where(positive, off, np.where(negative, abs(slope) * off, either))
        if slope:  # a leaky relu's product is rounded
            new_off += (4 * UNIT + CURVE * self.net.roundoff) * (abs(slope) * below + off)
        # Only certain sign changes: an uncertain one may be a breakpoint at an end of the segment.
        reliable = (off <= SHARP * rise) | ~self.cut[:, None]
        where, neuron = np.nonzero((np.minimum(below, above) > off) & reliable)
        share = start[where, neuron] / (start[where, neuron] - end[where, neuron])
        cuts = self.left[where] + share * (self.right[where] - self.left[where])
        inside = (cuts > self.left[where]) & (cuts < self.right[where])
        self.cut[where[inside]] = True
        self.where.append(where[inside])
        self.cuts.append(cuts[inside])
        return new_off


@dataclass(frozen=True, eq=False)
class SweepCases:
    """All cases side by side: box (c,), widened by a unit; rows (c, m, k), of x (c, m), bounds (c, m).

    A case with fewer rows repeats its first one. `first` and `last` are the numbers of the input's type in
    its box.
    """

    lower: Array
    upper: Array
    first: NDArray[Any]
    last: NDArray[Any]
    rows: Array
    over: Array
    bound: Array


@dataclass(frozen=True, eq=False)
class ProvenMargins:
    """Proven excess of p pairs (p,), rows' lower bounds at both ends (p, m), largest excess there (p,)."""

    margin: Array
    left: Array
    right: Array
    worst_left: Array
    worst_right: Array


def sweep_cases(cases: Sequence[Case], dtype: np.dtype[Any] | type = np.float32) -> SweepCases:
    """The cases whose box is not empty; without an input all boxes are [0, 0]."""
    ends = [(float(c.lower[0]), float(c.upper[0])) if len(c.lower) else (0.0, 0.0) for c in cases]
    nonempty = [(case, end) for case, end in zip(cases, ends, strict=True) if end[0] <= end[1]]
    lower, upper = (np.array([end[side] for _, end in nonempty]) for side in (0, 1))
    first, last = ends_of(lower, upper, dtype)
    rows, over, bound = stacked_rows([case for case, _ in nonempty])
    tied = np.zeros_like(bound) if over is None else over.sum(axis=2)  # of one input, or of none
    wide = np.nextafter(lower, -np.inf), np.nextafter(upper, np.inf)
    return SweepCases(*wide, first, last, rows, tied, bound)


def judged(
    cases: SweepCases, case: Index, x: tuple[Array, Array], y: tuple[Array, Array], off: Array, sure: float
) -> ProvenMargins:
    """How far each case (p,) is exceeded on its segment from x[0] to x[1] (p,).

    Outputs are within `off` (p, k) of the chords y. Rows are mixed where none alone is exceeded by `sure`.
    """
    rows, over, bound = cases.rows[case], cases.over[case], cases.bound[case]
    ends = [np.einsum("pmk,pk->pm", rows, y[s]) + over * x[s][:, None] - bound for s in (0, 1)]
    unit = 2 * (rows.shape[2] + 8) * UNIT
    size = np.maximum(np.abs(y[0]), np.abs(y[1]))
    reach = np.maximum(np.abs(x[0]), np.abs(x[1]))[:, None]
    slack = np.einsum("pmk,pk->pm", np.abs(rows), off + unit * size) * (1 + unit)
    slack += unit * (np.abs(over) * reach + np.abs(bound))
    left, right = ends[0] - slack, ends[1] - slack
    margin = np.minimum(left, right).max(axis=1)
    again = np.flatnonzero(~(margin > sure))
    if rows.shape[1] > 1 and len(again):
        margin[again] = np.fmax(margin[again], _mixed(left[again], right[again]))
    return ProvenMargins(margin, left, right, ends[0].max(axis=1), ends[1].max(axis=1))


def _mixed(left: Array, right: Array) -> Array:
    """The best bound (p,) of w f + (1 - w) g over all pairs of rows, w chosen so that both ends are equal.

    This is optimal on a line: the minimum of the maximum of many rows is attained by two of them.
    """
    best = np.full(len(left), -np.inf)
    fall = left - right
    for one in range(left.shape[1] - 1):
        own, others = fall[:, one : one + 1], fall[:, one + 1 :]
        differences = others - own
        weight = np.divide(others, differences, out=np.zeros_like(differences), where=differences != 0)
        weight = np.where(np.isfinite(weight), np.clip(weight, 0.0, 1.0), 0.0)
        for_ends = []
        for end in (left, right):
            mix = weight * end[:, one : one + 1] + (1.0 - weight) * end[:, one + 1 :]
            size = weight * np.abs(end[:, one : one + 1]) + (1.0 - weight) * np.abs(end[:, one + 1 :])
            for_ends.append(mix - 8 * UNIT * size)
        best = np.fmax(best, np.minimum(*for_ends).max(axis=1))
    return best


def doubtful(left: Array, right: Array) -> tuple[float, float]:
    """The part of a segment, as shares of it, where the rows' lower bounds (m,) are all at most 0."""
    begin, end = 0.0, 1.0
    for start, stop in zip(left.tolist(), right.tolist(), strict=True):
        if start > 0 >= stop:
            begin = max(begin, start / (start - stop))
        elif stop > 0 >= start:
            end = min(end, start / (start - stop))
    return begin, end


def search(problem: VerificationProblem, clock: Deadline) -> EngineResult:
    """Whether a case can be met, for a piecewise-linear net of one input; else unknown.

    "holds" is proven for every evaluation of the net's `roundoff`, all rounding of the proof accounted for.
    """
    if not piecewise(problem.net):
        return EngineResult("unknown", ENGINE, note="not a piecewise-linear network with one input")
    with np.errstate(all="ignore"):  # comparisons with non-finite values are false, so they prove nothing
        return _Sweep(problem, clock).run()


@dataclass(frozen=True, eq=False)
class OpenPairs:
    """Pairs of a segment and a case that are open, each (w,)."""

    left: Array
    right: Array
    case: Index

    def __len__(self) -> int:
        return len(self.left)

    def part(self, which: NDArray[np.generic] | slice) -> OpenPairs:
        """A subset of the pairs."""
        return OpenPairs(self.left[which], self.right[which], self.case[which])


def segments_of(cases: SweepCases) -> OpenPairs:
    """The boxes of the cases, cut at the ends of all others, in order, so that cases share segments."""
    ends = np.unique(np.concatenate([cases.lower, cases.upper]))
    begin, stop = np.searchsorted(ends, cases.lower), np.searchsorted(ends, cases.upper)
    case, count = np.arange(len(cases.lower)), stop - begin
    if count.sum() > MOST_PAIRS:
        return OpenPairs(cases.lower, cases.upper, case)
    case = np.repeat(case, count)
    at = np.arange(len(case)) - np.repeat(np.cumsum(count) - count, count) + begin[case]
    order = np.argsort(at, kind="stable")
    return OpenPairs(ends[at], ends[at + 1], case).part(order)


class _Sweep:
    """A running sweep: the proven margins, and the number of undecided segments."""

    def __init__(self, problem: VerificationProblem, clock: Deadline) -> None:
        self.problem, self.clock = problem, clock
        self.cases = sweep_cases(problem.cases, problem.dtype)
        self.margin, self.doubts, self.segments = np.inf, 0, 0
        self.size = _batch(problem.net, self.cases, clock.budget.memory_bytes)

    def run(self) -> EngineResult:
        stack = [segments_of(self.cases)] if len(self.cases.lower) else []
        while stack:
            if self.clock.left <= 0:
                return EngineResult("timeout", ENGINE, note=f"{sum(map(len, stack)):,} segments open")
            work = stack.pop()
            if len(work) > self.size:
                stack.append(work.part(slice(self.size, None)))
                work = work.part(slice(self.size))
            witness, rest = self.step(work)
            if witness is not None:
                return EngineResult("violated", ENGINE, witness, note=f"{self.segments:,} segments")
            if len(rest):
                stack.append(rest)
            self.clock.tell("sweeping", sum(map(len, stack)), float(self.margin))
        if self.doubts:
            kind = self.problem.dtype.name
            note = f"{self.doubts:,} segments are too close to the threshold; no {kind} in them violates it"
            return EngineResult("unknown", ENGINE, note=note, at_limit=True)
        margin = float(self.margin) if np.isfinite(self.margin) else None
        return EngineResult("holds", ENGINE, margin=margin, note=f"{self.segments:,} segments")

    def step(self, work: OpenPairs) -> tuple[NDArray[Any] | None, OpenPairs]:
        """A witness, if one is found, and the open pairs, cut where neurons change their sign."""
        work = work.part(np.lexsort((work.right, work.left)))
        new = _first_of_equal(work.left, work.right)
        segment = np.cumsum(new) - 1
        left, right = work.left[new], work.right[new]
        self.segments += len(left)
        chord = chords(self.problem.net, left, right)
        outputs = (chord.left[segment], chord.right[segment])
        margins = judged(self.cases, work.case, (work.left, work.right), outputs, chord.off[segment], SURE)
        witness = self.end_witness(work, margins)
        sure = np.minimum(SURE, 1e-3 * np.maximum(np.abs(margins.worst_left), np.abs(margins.worst_right)))
        cuts = np.bincount(chord.where, minlength=len(left))[segment]
        done = (margins.margin > sure) | ((cuts == 0) & (margins.margin > 0))
        if done.any():
            self.margin = min(self.margin, float(margins.margin[done].min()))
        leaves, divisible = np.flatnonzero(~done & (cuts == 0)), ~done & (cuts > 0)
        if witness is None and len(leaves):
            self.doubts += len(leaves)
            witness = self.inside_witness(work, margins, leaves)
        return witness, _cut(work.part(divisible), segment[divisible], left, right, chord)

    def end_witness(self, work: OpenPairs, margins: ProvenMargins) -> NDArray[Any] | None:
        x, case = np.concatenate([work.left, work.right]), np.concatenate([work.case, work.case])
        worst = np.concatenate([margins.worst_left, margins.worst_right])
        near = np.flatnonzero(worst <= 0)
        near = near[np.argsort(worst[near], kind="stable")[:REPLAYED]]
        return self.first_violation(x[near].astype(self.problem.dtype), case[near]) if len(near) else None

    def inside_witness(self, work: OpenPairs, margins: ProvenMargins, leaves: Index) -> NDArray[Any] | None:
        """A replayed witness among the numbers of the doubtful parts of segments."""
        points, cases = [], []
        for at in leaves.tolist():
            case, width = work.case[at], work.right[at] - work.left[at]
            share = doubtful(margins.left[at], margins.right[at])
            low, high = (work.left[at] + width * np.array([part]) for part in share)
            ends = ends_of(low, high, self.problem.dtype)
            first = np.maximum(ends[0], self.cases.first[case])[0]
            last = np.minimum(ends[1], self.cases.last[case])[0]
            if first <= last:
                some = np.linspace(first, last, REPLAYED_INSIDE).astype(self.problem.dtype)
                points.append(np.clip(some, first, last))
                cases.append(np.full(REPLAYED_INSIDE, case))
            if len(points) >= 64:
                witness = self.first_violation(np.concatenate(points), np.concatenate(cases))
                points, cases = [], []
                if witness is not None or self.clock.left <= 0:
                    return witness
        return self.first_violation(np.concatenate(points), np.concatenate(cases)) if points else None

    def first_violation(self, points: NDArray[Any], case: Index) -> NDArray[Any] | None:
        """The first of points (p,), moved into their cases' boxes, that violates on the original file."""
        possible = self.cases.first[case] <= self.cases.last[case]
        inside = np.clip(points, self.cases.first[case], self.cases.last[case])[possible]
        points_inside = np.unique(inside)[:, None][:, : self.problem.net.inputs]
        return self.problem.witness(points_inside) if len(points_inside) else None


def _first_of_equal(*columns: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each row of sorted columns (n,) differs from the one before it."""
    changes = np.any([np.diff(column) != 0 for column in columns], axis=0)
    return np.concatenate([[True], changes])


def _cut(work: OpenPairs, segment: Index, left: Array, right: Array, chord: Chords) -> OpenPairs:
    """The pairs with their segments cut at the places inside; `left` and `right` are of all segments."""
    own = np.arange(len(left))
    where, at = np.concatenate([own, chord.where]), np.concatenate([left, chord.at])
    order = np.lexsort((at, where))
    where, at = where[order], at[order]
    new = _first_of_equal(where, at)
    where, at = where[new], at[new]
    begin = np.searchsorted(where, own)
    end = np.append(at[1:], 0.0)
    end[np.append(begin[1:], len(at)) - 1] = right
    count = np.append(begin[1:], len(at)) - begin
    many = count[segment]
    place = np.arange(int(many.sum())) - np.repeat(np.cumsum(many) - many, many)
    place += np.repeat(begin[segment], many)
    return OpenPairs(at[place], end[place], np.repeat(work.case, many))


def _batch(net: Net, cases: SweepCases, memory: int) -> int:
    values = sum(prod(step.shape) for step in net.steps) + cases.rows[:1].size
    return max(1, min(MOST_WORK // (3 * (values + products(net))), memory // 16 // (64 * values), 1 << 15))
