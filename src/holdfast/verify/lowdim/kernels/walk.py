"""The search over boxes, depth first, on one thread."""

from __future__ import annotations

import numpy as np

from holdfast.verify.lowdim.kernels.branch import clip, cut_box, split, split_widest
from holdfast.verify.lowdim.kernels.compiled import kernel, part
from holdfast.verify.lowdim.kernels.points import burst, evaluate, rounded, seen_best
from holdfast.verify.lowdim.kernels.rows import back_rows, cut_rows, goal_rows, phase_rows
from holdfast.verify.lowdim.kernels.simplex import BEST, NONE, append, begin, find_vertex, improve
from holdfast.verify.lowdim.kernels.zonotope import EMPTY, WILD, forward
from holdfast.verify.lowdim.tables import (
    CLIMBS,
    DONE,
    FOUND,
    FULL,
    LEAF,
    MARGIN,
    MORE,
    MOST,
    SEEN,
    SOLVED,
    SYMBOLS,
    TARGET,
    TOP,
    WORST,
    Program,
    Reals,
    Space,
    Stack,
    Table,
    Whole,
)  # fmt: skip

ROUNDS, CUTS = 3, 6  # rounds of cuts, and cuts in each
ALONE = 0.05  # the least part of its weight in the rows one by one that a symbol counts


@part
def solve_case(
    net: Table, space: Space, lp: Program, case: int, rows: int, enough: float
) -> tuple[int, int, float]:
    """How the case's program ended, how many rows it has with its cuts, and its certified bound."""
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
    net: Table, space: Space, lp: Program, stack: Stack, case: int, real: Reals, whole: Whole
) -> tuple[int, int, float]:
    """NONE when the case cannot be met in the top box; else how its program ended, its rows and its bound."""
    bound = goal_rows(net, space, lp, case)
    if bound > real[TARGET]:
        real[MARGIN] = min(real[MARGIN], bound)
        return NONE, 0, bound
    back_rows(net, space, lp, case)
    goals = 2 * (net.start[case + 1] - net.start[case])
    rows = phase_rows(net, space, lp, stack.phase[whole[TOP]], goals)
    how, rows, bound = solve_case(net, space, lp, case, rows, real[TARGET])
    whole[SOLVED] += 1
    if bound > 0.0:
        share = 0.0
        for i in range(goals):
            share += lp.weight[i]
        if how != NONE or share > 0.0:  # otherwise the phases alone contradict one another
            real[MARGIN] = min(real[MARGIN], bound / max(share, 0.5) * (1.0 - 1e-12))
        return NONE, rows, bound
    return how, rows, bound


@kernel
def remember(net: Table, space: Space, lp: Program, case: int, rows: int) -> None:
    """Nothing; the weighted row that says where to split: weights of backward rows go to forward ones.

    At a vertex inside the cube the rows cancel in all symbols but those that hardly matter. So that not
    only these are split, a symbol counts at least a part of what it weighs in the rows one by one.
    """
    m, total = net.start[case + 1] - net.start[case], space.count[net.sizes.size - 1]
    for j in range(total):
        lp.kept[j], lp.kept_point[j], lp.ratio[j] = 0.0, lp.point[j], 0.0
    for i in range(rows):
        w = lp.weight[i]
        if i < m:
            w += lp.weight[i + m]
        if w > 0.0 and (i < m or i >= 2 * m):
            row = lp.row[i]
            for j in range(total):
                lp.kept[j] += w * row[j]
                lp.ratio[j] += w * abs(row[j])
    for j in range(total):
        lp.kept[j] = max(abs(lp.kept[j]), ALONE * lp.ratio[j])


@kernel
def try_vertex(net: Table, space: Space, lp: Program, stack: Stack, real: Reals) -> bool:
    """Whether the program's vertex looks unsafe in the net itself."""
    for j in range(net.sizes[0]):
        x = space.middle[j] + space.half[j] * lp.point[j]
        space.trial[j] = rounded(x, stack.lower32[j], stack.upper32[j])
    _, value = evaluate(net, space, space.trial)
    return seen_best(stack, space.trial, value, real)


@part
def look(net: Table, space: Space, lp: Program, stack: Stack, real: Reals, whole: Whole) -> tuple[int, int]:
    """DONE when no case can be met in the top box, FOUND, or MORE; and how the worst case's program ended."""
    total, top = space.count[net.sizes.size - 1], whole[TOP]
    for j in range(net.sizes[0]):
        space.low_clip[j], space.high_clip[j] = 1.0, -1.0
    worst, ended, left = np.inf, NONE, False
    for case in range(stack.alive.shape[1]):
        if stack.alive[top, case] == 0:
            continue
        how, rows, bound = settle(net, space, lp, stack, case, real, whole)
        if how == NONE:
            stack.alive[top, case] = 0
            continue
        find_vertex(lp, rows, total)
        if try_vertex(net, space, lp, stack, real):
            return FOUND, how
        clip(space, lp, rows, total, real[TARGET])
        left = True
        if not bound >= worst:  # also when it is no number
            worst, ended = bound, how
            remember(net, space, lp, case, rows)
    real[WORST] = min(real[WORST], worst)
    return MORE if left else DONE, ended


@kernel
def any_open(net: Table, space: Space) -> bool:
    """Whether an activation is open in the box."""
    for q in range(net.first[net.sizes.size - 2]):  # noqa: SIM110 - a kernel
        if space.state[q] >= 2:
            return True
    return False


@part
def step(net: Table, space: Space, lp: Program, stack: Stack, real: Reals, whole: Whole) -> int:
    """MORE, FOUND or LEAF, after the box on top was looked at, and dropped or split.

    A LEAF was dropped undecided, with a point that nearly is a counterexample.
    """
    top = whole[TOP]
    state = forward(net, space, stack.lower[top], stack.upper[top], stack.phase[top])
    if state == EMPTY:
        whole[TOP] -= 1
        return MORE
    if state == WILD:
        whole[TOP] += 1 if split_widest(stack, top) else -1
        return MORE if whole[TOP] > top else LEAF
    whole[SYMBOLS] += space.count[net.sizes.size - 1]
    code, how = look(net, space, lp, stack, real, whole)
    if code == FOUND:
        return FOUND
    if code == DONE:
        whole[TOP] -= 1
        return MORE
    exact = how == BEST and not any_open(net, space)
    if not exact:
        if cut_box(space, stack.lower[top], stack.upper[top]):
            real[MARGIN] = min(real[MARGIN], real[TARGET])
        if split(net, space, lp, stack, top):
            whole[TOP] += 1
            return MORE
    whole[TOP] -= 1
    for j in range(net.sizes[0]):
        stack.point[j] = space.trial[j]
    return LEAF


@kernel
def walk(net: Table, space: Space, lp: Program, stack: Stack, real: Reals, whole: Whole) -> int:
    """Why it paused: DONE when nothing is open, MORE after as many boxes as asked, FULL, FOUND, LEAF."""
    if burst(net, space, lp, stack, real, whole, whole[CLIMBS]):
        return FOUND
    for _ in range(whole[MOST]):
        if whole[TOP] < 0:
            return DONE
        if whole[TOP] + 2 >= stack.lower.shape[0]:
            return FULL
        whole[SEEN] += 1
        code = step(net, space, lp, stack, real, whole)
        if code != MORE:
            return code
    return MORE
