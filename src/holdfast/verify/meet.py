"""Which points, with their outputs, meet which of many cases: all at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.types import Floats
from holdfast.verify.problem import Case

_AT_A_TIME = 1 << 23  # comparisons with boxes

Pairs = NDArray[np.int64]


def meeting(cases: Sequence[Case]) -> Callable[[NDArray[Any], Floats], Pairs]:
    """A function from free inputs (b, n) and outputs (b, k) to the pairs (point, case) that meet."""
    groups: dict[int, list[int]] = {}
    for at, case in enumerate(cases):
        groups.setdefault(id(case.lower), []).append(at)
    firsts = [cases[group[0]] for group in groups.values()]
    lower = np.stack([case.lower for case in firsts]) if firsts else np.zeros((0, 1))
    upper = np.stack([case.upper for case in firsts]) if firsts else np.zeros((0, 1))
    members = [np.array(group, np.int64) for group in groups.values()]
    judges = [_judge([cases[at] for at in group]) for group in groups.values()]

    def meets(points: NDArray[Any], outputs: Floats) -> Pairs:
        found = [np.zeros((0, 2), np.int64)]
        step = max(1, _AT_A_TIME // max(lower.size, 1))
        for start in range(0, len(points) if judges else 0, step):
            some = points[start : start + step, None]
            inside: NDArray[np.bool_] = np.all((lower <= some) & (some <= upper), axis=2)
            for which in np.flatnonzero(inside.any(axis=0)):
                at = start + np.flatnonzero(inside[:, which])
                point, case = np.nonzero(judges[which](points[at].astype(np.float64), outputs[at]))
                found.append(np.stack([at[point], members[which][case]], axis=1))
        return np.concatenate(found)

    return meets


def _judge(cases: Sequence[Case]) -> Callable[[Floats, Floats], NDArray[np.bool_]]:
    """A function from points (b, n) and outputs (b, k) to whether each meets all rows of each case."""
    inputs, outputs = len(cases[0].lower), cases[0].rows.shape[1]
    # A case without rows is met by any output: 0 <= 0.
    sizes = [max(len(case.bound), 1) for case in cases]
    rows, bound = np.zeros((sum(sizes), outputs)), np.zeros(sum(sizes))
    over = np.zeros((sum(sizes), inputs)) if any(case.inputs is not None for case in cases) else None
    starts = np.cumsum([0, *sizes[:-1]])
    for start, case in zip(starts, cases, strict=True):
        part = slice(start, start + len(case.bound))
        rows[part], bound[part] = case.rows, case.bound
        if over is not None and case.inputs is not None:
            over[part] = case.inputs

    def meets(points: Floats, values: Floats) -> NDArray[np.bool_]:
        left = values @ rows.T if over is None else values @ rows.T + points @ over.T
        met: NDArray[np.bool_] = np.logical_and.reduceat(left <= bound, starts, axis=1)
        return met

    return meets
