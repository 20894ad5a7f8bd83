"""Evaluation of the net at a point, and local search towards the unsafe set."""

import numpy as np

from holdfast.verify.lowdim.program import begin, find_vertex, improve
from holdfast.verify.lowdim.tables import BoxStack, LayerTable, LinearProgram, Reals, State, Workspace
from holdfast.verify.lowdim.zonotope import add_rows, gradient, kernel, part

STEPS = 30  # of one local search


@kernel
def evaluate(net: LayerTable, space: Workspace, point: Reals) -> tuple[int, float]:
    """The case nearest to being met at a point, and the approximate value of its worst row (at most 0: met).

    Only a replay in ONNX Runtime is decisive. The values of all neurons are stored in `preactivation`.
    """
    now, then = space.here, space.there
    for i in range(point.size):
        now[i] = point[i]
    last = net.sizes.size - 1
    for k in range(1, last + 1):
        m, f, used = net.sizes[k], net.first[k - 1], 0
        for i in range(net.sizes[k - 1]):
            if now[i] != 0.0:
                space.pick[used], space.coef[used] = i, now[i]
                used += 1
        out = then[:m]
        for i in range(m):
            out[i] = net.bias[f + i]
        add_rows(out, space.coef, space.pick, used, net.column[net.at[k - 1] : net.at[k]])
        for i in range(m):
            space.preactivation[f + i] = out[i]
            if out[i] < 0.0:
                out[i] *= net.slope[f + i]
        now, then = then, now
    case, value, rows = 0, np.inf, space.preactivation[net.first[last - 1] : net.first[last]]
    for c in range(net.start.size - 1):
        worst = rows[net.start[c]]
        for i in range(net.start[c] + 1, net.start[c + 1]):
            worst = max(worst, rows[i])
        if worst < value:
            case, value = c, worst
    return case, value


@kernel
def rounded(x: float, low: float, high: float) -> float:
    """The value rounded to float32, inside a range of float32 ends."""
    return min(high, max(low, np.float64(np.float32(x))))


@part
def aim(space: Workspace, lp: LinearProgram, stack: BoxStack, goals: int, trust: float) -> None:
    """Solve the linear program of one local-search step, in a part of the box around the point."""
    n = stack.point.size
    for g in range(goals):
        lp.fixed[g], lp.norm[g] = lp.rank[g], 0.0
    for j in range(n):
        x, reach = space.trial[j], trust * (stack.upper32[j] - stack.lower32[j])
        low, high = max(stack.lower32[j], x - reach), min(stack.upper32[j], x + reach)
        space.middle[j], space.half[j] = 0.5 * (low + high), 0.5 * (high - low)
        for g in range(goals):
            lp.fixed[g] += lp.slope[g, j] * (space.middle[j] - x)
            lp.row[g, j] = lp.slope[g, j] * space.half[j]
            lp.norm[g] += abs(lp.row[g, j])
    begin(lp, goals, goals, n)
    improve(lp, goals, n, np.inf)
    find_vertex(lp, goals, n)


@part
def climb(net: LayerTable, space: Workspace, lp: LinearProgram, stack: BoxStack, goal: float) -> float:
    """The value of the nearest case's worst row at the best point found, which is stored in `trial`.

    Each step minimises the case's linearised rows within a trust region around the point; the region grows
    after an improvement and shrinks otherwise.
    """
    n, trust, goals, fresh = stack.point.size, 0.3, net.start[0], True
    case, value = evaluate(net, space, space.trial)
    rows = space.preactivation[net.first[net.sizes.size - 2] :]
    for _ in range(STEPS):
        if value <= goal or trust < 1e-5:
            break
        if fresh:
            goals = net.start[case + 1] - net.start[case]
            for g in range(goals):
                lp.rank[g] = rows[net.start[case] + g]
                gradient(net, space, net.start[case] + g, lp.slope[g])
        aim(space, lp, stack, goals, trust)
        for j in range(n):
            x = space.middle[j] + space.half[j] * lp.point[j]
            space.low_one[j] = rounded(x, stack.lower32[j], stack.upper32[j])
        near, new_value = evaluate(net, space, space.low_one)
        fresh = new_value < value
        if fresh:
            for j in range(n):
                space.trial[j] = space.low_one[j]
            case, value = near, new_value
            trust = min(1.0, trust * 1.6)
        else:
            trust *= 0.35
    return value


@kernel
def chance(state: State) -> float:
    """The next random number of [0, 1), by the minimal standard generator."""
    state.random = state.random * 48271 % 2147483647
    return float(state.random / 2147483647.0)


@part
def burst(net: LayerTable, space: Workspace, lp: LinearProgram, stack: BoxStack, state: State) -> bool:
    """Whether one of several local searches, from random points or open boxes, ended unsafe at `point`."""
    for c in range(state.climbs):
        box = int(chance(state) * (state.top + 1))
        for j in range(stack.point.size):
            low, high = stack.lower32[j], stack.upper32[j]
            if c % 2 == 1 and state.top >= 0:
                low, high = stack.lower[box, j], stack.upper[box, j]
            x = low + (high - low) * chance(state)
            space.trial[j] = rounded(x, stack.lower32[j], stack.upper32[j])
        if record_best(stack, space.trial, climb(net, space, lp, stack, state.goal), state):
            return True
    return False


@kernel
def record_best(stack: BoxStack, point: Reals, value: float, state: State) -> bool:
    """Record the point if it is the best so far; return whether its value reaches the goal."""
    if value < state.best:
        state.best = value
        for j in range(point.size):
            stack.point[j] = point[j]
    return bool(value <= state.goal)
