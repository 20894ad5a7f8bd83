"""Which cases are out of reach on a segment: rows of chords bounded, alone and mixed in pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.graph.ir import Array
from holdfast.verify.domain import first_float, last_float
from holdfast.verify.problem import Case
from holdfast.verify.sweep.chords import UNIT, Index


@dataclass(frozen=True, eq=False)
class Asked:
    """All cases side by side: box (c,), widened by a unit; rows (c, m, k), of x (c, m), bounds (c, m).

    A case with fewer rows says its first one again. `first` and `last` are the numbers of the input's type in
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
class Judged:
    """By how much p pairs of segment and case are proven to be exceeded (p,).

    And the rows' lower bounds at both ends (p, m), and the largest excess as computed there (p,).
    """

    margin: Array
    left: Array
    right: Array
    worst_left: Array
    worst_right: Array


def asked_of(cases: Sequence[Case], dtype: np.dtype[Any] | type = np.float32) -> Asked:
    """The cases whose box is not empty; without an input all boxes are [0, 0]."""
    ends = [(float(c.lower[0]), float(c.upper[0])) if len(c.lower) else (0.0, 0.0) for c in cases]
    kept = [(case, end) for case, end in zip(cases, ends, strict=True) if end[0] <= end[1]]
    most = max((len(case.bound) for case, _ in kept), default=1)
    lower, upper = (np.array([end[side] for _, end in kept]) for side in (0, 1))
    outputs = kept[0][0].rows.shape[1] if kept else 0
    rows, over = np.zeros((len(kept), max(most, 1), outputs)), np.zeros((len(kept), max(most, 1)))
    bound = np.ones_like(over)  # 0 <= 1: a case without rows is met by any output
    for at, (case, _) in enumerate(kept):
        count = len(case.bound)
        if count:
            again = np.minimum(np.arange(most), count) % count
            rows[at], bound[at] = case.rows[again], case.bound[again]
            if case.inputs is not None and case.inputs.shape[1]:
                over[at] = case.inputs[again, 0]
    first, last = first_float(lower, dtype), last_float(upper, dtype)
    return Asked(np.nextafter(lower, -np.inf), np.nextafter(upper, np.inf), first, last, rows, over, bound)


def judged(
    asked: Asked, case: Index, x: tuple[Array, Array], y: tuple[Array, Array], off: Array, sure: float
) -> Judged:
    """How far each case (p,) is exceeded on its segment from x[0] to x[1] (p,).

    Outputs are within `off` (p, k) of the chords y. Rows are mixed where none alone is exceeded by `sure`.
    """
    rows, over, bound = asked.rows[case], asked.over[case], asked.bound[case]
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
    return Judged(margin, left, right, ends[0].max(axis=1), ends[1].max(axis=1))


def _mixed(left: Array, right: Array) -> Array:
    """The best bound (p,) of w f + (1 - w) g over all pairs of rows, w chosen so that both ends are equal.

    On a line this is all there is: the least maximum of many rows is that of two of them.
    """
    best = np.full(len(left), -np.inf)
    fall = left - right
    for one in range(left.shape[1] - 1):
        mine, others = fall[:, one : one + 1], fall[:, one + 1 :]
        apart = others - mine
        weight = np.divide(others, apart, out=np.zeros_like(apart), where=apart != 0)
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
