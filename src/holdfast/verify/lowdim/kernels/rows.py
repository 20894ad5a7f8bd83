"""The linear program of one case over a box: its rows, forward and backward, phases fixed so far, cuts.

A row's `fixed` has the row's error subtracted already: the program is a relaxation whatever was rounded.
"""

from __future__ import annotations

from holdfast.verify.lowdim.kernels.backward import backward
from holdfast.verify.lowdim.kernels.compiled import U, kernel
from holdfast.verify.lowdim.tables import Program, Signs, Space, Table


@kernel
def put_row(
    net: Table, space: Space, lp: Program, at: int, k: int, i: int, factor: float, shift: float, error: float
) -> None:
    """Nothing; row `at` of the program says factor · (neuron i of layer k) + shift - error <= 0 (or t)."""
    f, m, n = net.first[k - 1], net.sizes[k], space.count[k]
    base = space.owner.size * f + i
    row = lp.row[at]
    for j in range(n):
        row[j] = factor * space.form[base + j * m]
    for j in range(n, space.count[net.sizes.size - 1]):
        row[j] = 0.0
    lp.fixed[at] = factor * space.centre[f + i] + shift - error
    lp.norm[at] = abs(factor) * space.spread[f + i]


@kernel
def goal_rows(net: Table, space: Space, lp: Program, case: int) -> float:
    """The highest certified bound of one of the case's rows, which are the first goals now."""
    last, best, at = net.sizes.size - 1, -1e300, 0
    for i in range(net.start[case], net.start[case + 1]):
        q = net.first[last - 1] + i
        put_row(net, space, lp, at, last, i, 1.0, 0.0, space.error[q])
        best = max(best, space.low[q])
        at += 1  # noqa: SIM113 - a kernel
    return best


@kernel
def back_rows(net: Table, space: Space, lp: Program, case: int) -> float:
    """The highest backward bound of one of the case's rows, which are the next goals now; not certified."""
    n, total = net.sizes[0], space.count[net.sizes.size - 1]
    at, best = net.start[case + 1] - net.start[case], -1e300
    for i in range(net.start[case], net.start[case + 1]):
        row, norm = lp.row[at], 0.0
        for j in range(n, total):
            row[j] = 0.0
        constant, error = backward(net, space, i, row)
        for j in range(n):
            constant += row[j] * space.middle[j]
            row[j] *= space.half[j]
            norm += abs(row[j])
        lp.fixed[at], lp.norm[at] = constant - error, norm
        best = max(best, lp.fixed[at] - norm)
        at += 1
    return best


@kernel
def phase_rows(net: Table, space: Space, lp: Program, phase: Signs, rows: int) -> int:
    """How many rows there are with one for each fixed phase that the ranges do not settle."""
    for k in range(1, net.sizes.size - 1):
        f = net.first[k - 1]
        for i in range(net.sizes[k]):
            q = f + i
            if phase[q] != 0 and space.low[q] < 0.0 and space.high[q] > 0.0 and rows < lp.fixed.size:
                put_row(net, space, lp, rows, k, i, -1.0 if phase[q] > 0 else 1.0, 0.0, space.error[q])
                rows += 1
    return rows


@kernel
def place_of_cut(lp: Program, rank: float, had: int, rows: int, most: int) -> int:
    """Where a cut of this rank goes: a new row, the row of the weakest cut, or -1."""
    if rows - had < most and rows < lp.fixed.size:
        return rows
    weakest = had
    for r in range(had + 1, rows):
        if lp.rank[r] < lp.rank[weakest]:
            weakest = r
    return weakest if rows > had and lp.rank[weakest] < rank else -1


@kernel
def cut_rows(net: Table, space: Space, lp: Program, rows: int, most: int) -> int:
    """How many rows there are with the cuts that the vertex in `point` violates most, by their weight.

    After an open activation y >= z and y >= slope·z; the form of y is keep·z + lift/2 + radius·symbol.
    """
    had = rows
    for k in range(1, net.sizes.size - 1):
        f, m, n = net.first[k - 1], net.sizes[k], space.count[k]
        for i in range(m):
            q = f + i
            s = space.symbol[q]
            if s < 0 or lp.joined[s] == 0.0:
                continue
            z, base = space.centre[q], space.owner.size * f + i
            for j in range(n):
                z += space.form[base + j * m] * lp.point[j]
            slope = 1.0 if z > 0.0 else net.slope[q]
            y = space.keep[q] * z + 0.5 * space.lift[q] + space.radius[q] * lp.point[s]
            by = (slope * z - y) / space.radius[q]
            rank = by * abs(lp.joined[s])
            at = place_of_cut(lp, rank, had, rows, most) if by > 0.02 else -1
            if at < 0:
                continue
            rows = max(rows, at + 1)
            rounding = 4.0 * U * (abs(space.centre[q]) + space.lift[q])  # of the middle of y's form
            error = slope * space.error[q] + rounding
            put_row(net, space, lp, at, k, i, slope - space.keep[q], -0.5 * space.lift[q], error)
            lp.row[at, s] = -space.radius[q]
            lp.norm[at] += space.radius[q]
            lp.rank[at] = rank
    return rows
