"""A small dual simplex method with bound flips: whether rows are met anywhere in the cube [-1, 1]^n.

Minimise t with fixed[i] + row[i]·e <= t for the first `goals` rows and <= 0 for the others. Every iterate is
a lower bound on t, so the search may end at any time. Nothing is believed of the floating-point tableau:
`certified` recomputes the bound from the multipliers, made non-negative, and the rows as they came.
"""

from __future__ import annotations

from holdfast.verify.lowdim.kernels.compiled import TINY, UP, U, kernel
from holdfast.verify.lowdim.tables import Program

OPEN, BEST, NONE = 0, 1, 2  # stopped on the way, at the optimum, no point meets the rows
NEAR = 1e-9  # how far outside its range a variable may stand


@kernel
def certified(lp: Program, rows: int, n: int) -> float:
    """A lower bound on Σ weight·(fixed + row·e) over the cube, all rounding subtracted.

    When it is positive, no point meets all rows: the sum would be at most 0 there.
    """
    joined = lp.joined[:n]
    for j in range(n):
        joined[j] = 0.0
    value, size = 0.0, 0.0
    for i in range(rows):
        w = lp.weight[i]
        if w > 0.0:
            row = lp.row[i]
            for j in range(n):
                joined[j] += w * row[j]
            value += w * lp.fixed[i]
            size += w * (abs(lp.fixed[i]) + lp.norm[i])
        else:
            lp.weight[i] = 0.0
    for j in range(n):
        value -= abs(joined[j])
    return value - 2.0 * U * (rows + n + 8) * size * UP - TINY


@kernel
def begin(lp: Program, goals: int, rows: int, n: int) -> None:
    """Nothing; the tableau in which t is given by the goal whose own bound is highest."""
    best = 0
    for i in range(1, goals):
        if lp.fixed[i] - lp.norm[i] > lp.fixed[best] - lp.norm[best]:
            best = i
    lead = lp.row[best]
    for j in range(n):
        lp.column[j] = j
        lp.cost[j] = lead[j]
        lp.place[j] = -1.0 if lead[j] > 0.0 else 1.0
    lp.column[n], lp.cost[n], lp.place[n] = n + best, 1.0, 0.0
    for i in range(rows):
        table, row = lp.table[i], lp.row[i]
        if i == best:  # t = fixed + lead·e + slack
            lp.basic[i] = -1
            value = lp.fixed[i]
            for j in range(n):
                table[j] = -lead[j]
                value += lead[j] * lp.place[j]
            table[n] = -1.0
        else:  # slack = (t) - fixed - row·e
            lp.basic[i] = n + i
            goal = i < goals
            value = (lp.fixed[best] if goal else 0.0) - lp.fixed[i]
            for j in range(n):
                table[j] = row[j] - lead[j] if goal else row[j]
                value -= table[j] * lp.place[j]
            table[n] = -1.0 if goal else 0.0
        lp.value[i] = value


@kernel
def append(lp: Program, r: int, n: int) -> None:
    """Nothing; row r, written into `row`, `fixed` and `norm`, is put into the tableau too."""
    table, row = lp.table[r], lp.row[r]
    value = -lp.fixed[r]
    for j in range(n + 1):
        kind = lp.column[j]
        table[j] = 0.0
        if kind < n:
            table[j] = row[kind]
            value -= row[kind] * lp.place[j]
    for i in range(r):
        kind = lp.basic[i]
        if kind >= 0 and kind < n and row[kind] != 0.0:
            a, other = row[kind], lp.table[i]
            value -= a * lp.value[i]
            for j in range(n + 1):
                table[j] -= a * other[j]
    lp.basic[r], lp.value[r] = n + r, value


@kernel
def worst_row(lp: Program, rows: int, n: int) -> tuple[int, float]:
    """The basic variable furthest outside its range and by how much (negative: above it), or -1."""
    row, far, by = -1, NEAR, 0.0
    for i in range(rows):
        kind, value = lp.basic[i], lp.value[i]
        out = 0.0
        if kind >= n:
            out = max(-value, 0.0)
        elif kind >= 0 and abs(value) > 1.0:
            out = 1.0 - value if value > 0.0 else -1.0 - value
        if abs(out) > far:
            row, far, by = i, abs(out), out
    return row, by


@kernel
def entering(lp: Program, row: int, by: float, rows: int, n: int) -> int:
    """The column that replaces the row's variable, after the flips on the way there; -1 when none can."""
    table = lp.table[row]
    count = 0
    for j in range(n + 1):
        a = -table[j] if by > 0.0 else table[j]
        if (a > NEAR and lp.place[j] <= 0.0) or (a < -NEAR and lp.place[j] > 0.0):
            lp.order[count] = j
            lp.ratio[count] = abs(lp.cost[j]) / abs(a)
            count += 1
    rest = abs(by)
    while count > 0:
        at = 0
        for q in range(1, count):
            if lp.ratio[q] < lp.ratio[at]:
                at = q
        j = lp.order[at]
        if lp.column[j] >= n or rest <= 2.0 * abs(table[j]):
            return int(j)
        rest -= 2.0 * abs(table[j])
        step = -2.0 * lp.place[j]
        for i in range(rows):
            lp.value[i] -= lp.table[i, j] * step
        lp.place[j] = -lp.place[j]
        count -= 1
        lp.order[at], lp.ratio[at] = lp.order[count], lp.ratio[count]
    return -1


@kernel
def pivot(lp: Program, row: int, col: int, by: float, rows: int, n: int) -> None:
    """Nothing; the row's variable leaves to its violated end, the column's enters."""
    lead = lp.table[row]
    a = lead[col]
    kind = lp.basic[row]
    end = 0.0 if kind >= n else -1.0 if by > 0.0 else 1.0
    step = (lp.value[row] - end) / a
    entered = lp.place[col] + step
    for i in range(rows):
        lp.value[i] -= lp.table[i, col] * step
    lp.value[row] = entered
    # x_row = v - Σ a_j·x_j becomes x_col = v/a - x_row/a - Σ (a_j/a)·x_j
    for j in range(n + 1):
        lead[j] /= a
    lead[col] = 1.0 / a
    for i in range(rows):
        f = lp.table[i, col]
        if i != row and f != 0.0:
            other = lp.table[i]
            other[col] = 0.0
            for j in range(n + 1):
                other[j] -= f * lead[j]
    f = lp.cost[col]
    lp.cost[col] = 0.0
    for j in range(n + 1):
        lp.cost[j] -= f * lead[j]
    lp.basic[row], lp.column[col] = lp.column[col], kind
    lp.place[col] = end


@kernel
def weigh(lp: Program, row: int, by: float, rows: int, n: int) -> None:
    """Nothing; the multipliers of the optimum (row -1), or of the row that cannot be met."""
    for i in range(rows):
        lp.weight[i] = 0.0
    for j in range(n + 1):
        slack = lp.column[j] - n
        if slack >= 0:
            lp.weight[slack] = lp.cost[j] if row < 0 else lp.table[row, j] if by > 0.0 else -lp.table[row, j]
    if row >= 0 and lp.basic[row] >= n:
        lp.weight[lp.basic[row] - n] = 1.0


@kernel
def improve(lp: Program, rows: int, n: int, enough: float) -> tuple[int, float]:
    """How it ended, and a certified bound (of the weighted sum; positive: no point meets the rows).

    Goes on from the tableau as it is; ends as soon as the bound is above `enough`, at the optimum, or after
    some pivots. The multipliers are left in `weight`, the rows weighted by them in `joined`.
    """
    lead = 0
    while lp.basic[lead] != -1:
        lead += 1
    for _ in range(30 + 2 * rows):
        if lp.value[lead] > enough:
            weigh(lp, -1, 0.0, rows, n)
            bound = certified(lp, rows, n)
            if bound > enough:
                return OPEN, bound
        row, by = worst_row(lp, rows, n)
        if row < 0:
            weigh(lp, -1, 0.0, rows, n)
            return BEST, certified(lp, rows, n)
        col = entering(lp, row, by, rows, n)
        if col < 0:
            weigh(lp, row, by, rows, n)
            bound = certified(lp, rows, n)
            if bound > 0.0:
                return NONE, bound
            break
        pivot(lp, row, col, by, rows, n)
    weigh(lp, -1, 0.0, rows, n)
    return OPEN, certified(lp, rows, n)


@kernel
def find_vertex(lp: Program, rows: int, n: int) -> None:
    """Nothing; where the symbols stand in the last tableau, in `point`."""
    for j in range(n + 1):
        if lp.column[j] < n:
            lp.point[lp.column[j]] = lp.place[j]
    for i in range(rows):
        kind = lp.basic[i]
        if kind >= 0 and kind < n:
            lp.point[kind] = min(1.0, max(-1.0, lp.value[i]))
