"""Kernels of the linear program of one case over a box: its rows, and a small dual simplex method.

Rows come from the forms and from one backward pass each; phases fixed so far and cuts are rows too. A row's
`fixed` has the row's error subtracted already, so the program is a sound relaxation despite rounding.

The simplex method uses bound flips. It decides whether the rows are met anywhere in the cube [-1, 1]^n, and
minimises t with fixed[i] + row[i]·e <= t for the first `goals` rows and <= 0 for the others. Every
iterate is a lower bound on t, so the search may end at any time. The floating-point tableau is not trusted:
`certified` recomputes the bound from the multipliers, clamped to be non-negative, and the original rows.
"""

from holdfast.verify.lowdim.tables import BoxStack, LayerTable, LinearProgram, Signs, State, Workspace
from holdfast.verify.lowdim.zonotope import TINY, UP, U, backward, kernel, part

OPEN, BEST, NONE = 0, 1, 2  # stopped early, at the optimum, no point meets the rows
ROUNDS, CUTS = 3, 6  # rounds of cuts, and cuts in each
TOLERANCE = 1e-9  # how far outside its range a variable may stand


@kernel
def put_row(
    net: LayerTable,
    space: Workspace,
    lp: LinearProgram,
    at: int,
    k: int,
    i: int,
    factor: float,
    shift: float,
    error: float,
) -> None:
    """Set row `at` of the program to factor · (neuron i of layer k) + shift - error <= 0 (or t)."""
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
def goal_rows(net: LayerTable, space: Workspace, lp: LinearProgram, case: int) -> float:
    """Set the first goals to the case's rows; return the highest certified bound of one of them."""
    last, best, at = net.sizes.size - 1, -1e300, 0
    for i in range(net.start[case], net.start[case + 1]):
        q = net.first[last - 1] + i
        put_row(net, space, lp, at, last, i, 1.0, 0.0, space.error[q])
        best = max(best, space.low[q])
        at += 1  # noqa: SIM113 - a kernel
    return best


@kernel
def back_rows(net: LayerTable, space: Workspace, lp: LinearProgram, case: int) -> float:
    """Set the next goals to the case's backward rows; return the highest bound, which is not certified."""
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
def phase_rows(net: LayerTable, space: Workspace, lp: LinearProgram, phase: Signs, rows: int) -> int:
    """Add a row for each fixed phase that the ranges do not imply; return the number of rows."""
    for k in range(1, net.sizes.size - 1):
        f = net.first[k - 1]
        for i in range(net.sizes[k]):
            q = f + i
            if phase[q] != 0 and space.low[q] < 0.0 and space.high[q] > 0.0 and rows < lp.fixed.size:
                put_row(net, space, lp, rows, k, i, -1.0 if phase[q] > 0 else 1.0, 0.0, space.error[q])
                rows += 1
    return rows


@kernel
def place_of_cut(lp: LinearProgram, rank: float, had: int, rows: int, most: int) -> int:
    """The row for a cut of this rank: a new one, that of the weakest cut, or -1."""
    if rows - had < most and rows < lp.fixed.size:
        return rows
    weakest = had
    for r in range(had + 1, rows):
        if lp.rank[r] < lp.rank[weakest]:
            weakest = r
    return weakest if rows > had and lp.rank[weakest] < rank else -1


@kernel
def cut_rows(net: LayerTable, space: Workspace, lp: LinearProgram, rows: int, most: int) -> int:
    """Add the cuts that the vertex in `point` violates most, by their weight; return the number of rows.

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


@kernel
def certified(lp: LinearProgram, rows: int, n: int) -> float:
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
def begin(lp: LinearProgram, goals: int, rows: int, n: int) -> None:
    """Set up the tableau in which t is given by the goal whose own bound is highest."""
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
def append(lp: LinearProgram, r: int, n: int) -> None:
    """Add row r of `row`, `fixed` and `norm` to the tableau."""
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
def worst_row(lp: LinearProgram, rows: int, n: int) -> tuple[int, float]:
    """The basic variable furthest outside its range and by how much (negative: above it), or -1."""
    row, far, by = -1, TOLERANCE, 0.0
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
def entering(lp: LinearProgram, row: int, by: float, rows: int, n: int) -> int:
    """The column that replaces the row's variable, after bound flips; -1 if there is none."""
    table = lp.table[row]
    count = 0
    for j in range(n + 1):
        a = -table[j] if by > 0.0 else table[j]
        if (a > TOLERANCE and lp.place[j] <= 0.0) or (a < -TOLERANCE and lp.place[j] > 0.0):
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
def pivot(lp: LinearProgram, row: int, col: int, by: float, rows: int, n: int) -> None:
    """Let the row's variable leave to its violated end and the column's enter."""
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
def weigh(lp: LinearProgram, row: int, by: float, rows: int, n: int) -> None:
    """Set the multipliers of the optimum (row -1), or of the row that cannot be met."""
    for i in range(rows):
        lp.weight[i] = 0.0
    for j in range(n + 1):
        slack = lp.column[j] - n
        if slack >= 0:
            lp.weight[slack] = lp.cost[j] if row < 0 else lp.table[row, j] if by > 0.0 else -lp.table[row, j]
    if row >= 0 and lp.basic[row] >= n:
        lp.weight[lp.basic[row] - n] = 1.0


@kernel
def improve(lp: LinearProgram, rows: int, n: int, enough: float) -> tuple[int, float]:
    """The status, and a certified bound (of the weighted sum; positive: no point meets the rows).

    Continues from the current tableau; ends when the bound exceeds `enough`, at the optimum, or after a
    number of pivots. The multipliers are stored in `weight`, the rows weighted by them in `joined`.
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
def find_vertex(lp: LinearProgram, rows: int, n: int) -> None:
    """Set `point` to the values of the symbols in the last tableau."""
    for j in range(n + 1):
        if lp.column[j] < n:
            lp.point[lp.column[j]] = lp.place[j]
    for i in range(rows):
        kind = lp.basic[i]
        if kind >= 0 and kind < n:
            lp.point[kind] = min(1.0, max(-1.0, lp.value[i]))


@part
def solve_case(
    net: LayerTable, space: Workspace, lp: LinearProgram, case: int, rows: int, enough: float
) -> tuple[int, int, float]:
    """The status of the case's program, its number of rows with cuts, and its certified bound."""
    total, goals = space.count[net.sizes.size - 1], 2 * (net.start[case + 1] - net.start[case])
    begin(lp, goals, rows, total)
    how, bound = improve(lp, rows, total, enough)
    for _ in range(ROUNDS):
        if how != BEST or bound > 0.0:
            break
        find_vertex(lp, rows, total)
        now = cut_rows(net, space, lp, rows, CUTS)
        if now == rows:
            break
        while rows < now:
            append(lp, rows, total)
            rows += 1
        how, bound = improve(lp, rows, total, enough)
    return how, rows, bound


@part
def settle(
    net: LayerTable, space: Workspace, lp: LinearProgram, stack: BoxStack, case: int, state: State
) -> tuple[int, int, float]:
    """NONE if the case cannot be met in the top box, else the status of its program; its rows and bound."""
    bound = goal_rows(net, space, lp, case)
    if bound > state.target:
        state.margin = min(state.margin, bound)
        return NONE, 0, bound
    back_rows(net, space, lp, case)
    goals = 2 * (net.start[case + 1] - net.start[case])
    rows = phase_rows(net, space, lp, stack.phase[state.top], goals)
    how, rows, bound = solve_case(net, space, lp, case, rows, state.target)
    if bound > 0.0:
        share = 0.0
        for i in range(goals):
            share += lp.weight[i]
        if how != NONE or share > 0.0:  # otherwise the phases alone contradict one another
            state.margin = min(state.margin, bound / max(share, 0.5) * (1.0 - 1e-12))
        return NONE, rows, bound
    return how, rows, bound
