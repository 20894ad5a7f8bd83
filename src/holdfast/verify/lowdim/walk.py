"""Kernels of the search over boxes, depth first, on one thread: bound a box, clip it, split it."""

from collections.abc import Callable

import numpy as np
from numba import njit

from holdfast.verify.lowdim.points import burst, evaluate, record_best, rounded
from holdfast.verify.lowdim.program import BEST, NONE, find_vertex, settle
from holdfast.verify.lowdim.tables import (
    DONE,
    FOUND,
    FULL,
    LEAF,
    MORE,
    BoxStack,
    LayerTable,
    LinearProgram,
    Reals,
    State,
    Workspace,
)
from holdfast.verify.lowdim.zonotope import EMPTY, TINY, UP, WILD, U, forward, kernel, part

ALONE = 0.05  # a symbol counts at least this share of its weight in the individual rows


@kernel
def clip_by(space: Workspace, row: Reals, fixed: float, norm: float, level: float, slack: float) -> None:
    """Clip one case's range of the input symbols to where fixed + row·e <= level + slack is possible."""
    for j in range(space.middle.size):
        a = row[j]
        if abs(a) > 1e-6 * norm:
            reach = (level - fixed + norm * UP - abs(a) + slack) / abs(a)
            if reach < 1.0:
                reach += 1e-12
                if a > 0.0:
                    space.high_one[j] = min(space.high_one[j], reach)
                else:
                    space.low_one[j] = max(space.low_one[j], -reach)


@kernel
def clip(space: Workspace, lp: LinearProgram, rows: int, total: int, level: float) -> None:
    """Widen the range of the input symbols by what this case needs."""
    n = space.middle.size
    for j in range(n):
        space.low_one[j], space.high_one[j] = -1.0, 1.0
    fixed, norm, size, unit = 0.0, 0.0, level, 8.0 * U * (rows + total + 8)
    for i in range(rows):
        slack = unit * (abs(lp.fixed[i]) + lp.norm[i] + level)
        clip_by(space, lp.row[i, :total], lp.fixed[i], lp.norm[i], level, slack)
        fixed += lp.weight[i] * lp.fixed[i]
        norm += lp.weight[i] * lp.norm[i]
        size += lp.weight[i] * (abs(lp.fixed[i]) + lp.norm[i])
    clip_by(space, lp.joined[:total], fixed, norm, level, unit * size)
    for j in range(n):
        space.low_clip[j] = min(space.low_clip[j], space.low_one[j])
        space.high_clip[j] = max(space.high_clip[j], space.high_one[j])


@kernel
def cut_box(space: Workspace, lower: Reals, upper: Reals) -> bool:
    """Clip the box to the required ranges of its symbols; return whether it shrank."""
    cut = False
    for j in range(lower.size):
        slack = 8.0 * U * (abs(space.middle[j]) + space.half[j])
        if space.high_clip[j] < 1.0:
            edge = space.middle[j] + space.half[j] * space.high_clip[j] + slack
            if edge < upper[j]:
                upper[j], cut = max(lower[j], edge), True
        if space.low_clip[j] > -1.0:
            edge = space.middle[j] + space.half[j] * space.low_clip[j] - slack
            if edge > lower[j]:
                lower[j], cut = min(upper[j], edge), True
    return cut


@kernel
def share_symbols(net: LayerTable, space: Workspace) -> None:
    """Set the share of each input in each symbol."""
    n, share = net.sizes[0], space.share
    for j in range(n):
        for d in range(n):
            share[j, d] = 1.0 if j == d else 0.0
    for k in range(1, net.sizes.size - 1):
        f, m, total = net.first[k - 1], net.sizes[k], space.count[k]
        for i in range(m):
            s, base = space.symbol[f + i], space.owner.size * f + i
            if s < 0:
                continue
            own = share[s]
            for d in range(n):
                own[d] = 0.0
            part = 1.0 / max(space.spread[f + i], TINY)
            for j in range(total):
                a, theirs = abs(space.form[base + j * m]) * part, share[j]
                for d in range(n):
                    own[d] += a * theirs[d]


@kernel
def best_input(space: Workspace, lp: LinearProgram, total: int, floor: Reals) -> tuple[int, float]:
    """The input with the largest share in the weighted row, and that share; -1 if none is wide enough."""
    n, best, most = floor.size, -1, -1.0
    for d in range(n):
        part = 0.5 * (space.high_clip[d] - space.low_clip[d])
        if part * space.half[d] > floor[d]:
            weight = abs(lp.split_row[d])
            for s in range(n, total):
                weight += abs(lp.split_row[s]) * space.share[s, d]
            if weight * part > most:
                best, most = d, weight * part
    return best, most


@kernel
def best_neuron(space: Workspace, lp: LinearProgram, n: int, total: int) -> tuple[int, float]:
    """The open neuron with the largest weight in the weighted row, and that weight; -1 if there is none."""
    best, most = -1, 0.0
    for s in range(n, total):
        if abs(lp.split_row[s]) > most:
            best, most = space.owner[s], abs(lp.split_row[s])
    return best, most


@kernel
def copy_up(stack: BoxStack, top: int) -> None:
    """Copy the box at `top` to the place above it."""
    for d in range(stack.lower.shape[1]):
        stack.lower[top + 1, d], stack.upper[top + 1, d] = stack.lower[top, d], stack.upper[top, d]
    for q in range(stack.phase.shape[1]):
        stack.phase[top + 1, q] = stack.phase[top, q]
    for c in range(stack.alive.shape[1]):
        stack.alive[top + 1, c] = stack.alive[top, c]


@kernel
def halve(stack: BoxStack, top: int, d: int, x: float) -> None:
    """Replace the box at `top` by its halves along input d, the one with x on top."""
    copy_up(stack, top)
    at = 0.5 * stack.lower[top, d] + 0.5 * stack.upper[top, d]
    if x <= at:
        stack.lower[top, d], stack.upper[top + 1, d] = at, at
    else:
        stack.upper[top, d], stack.lower[top + 1, d] = at, at


@kernel
def split(net: LayerTable, space: Workspace, lp: LinearProgram, stack: BoxStack, top: int) -> bool:
    """Split the box at `top` into `top` and the place above; return whether that was possible."""
    n, total = net.sizes[0], space.count[net.sizes.size - 1]
    share_symbols(net, space)
    d, most = best_input(space, lp, total, stack.floor)
    neuron, weight = best_neuron(space, lp, n, total)
    if neuron >= 0 and (d < 0 or weight >= most):
        copy_up(stack, top)
        stack.phase[top, neuron], stack.phase[top + 1, neuron] = 1, -1
        return True
    if d >= 0:
        halve(stack, top, d, space.middle[d] + space.half[d] * lp.split_point[d])
    return d >= 0


@kernel
def split_widest(stack: BoxStack, top: int) -> bool:
    """Halve the box at `top` along its widest input; return whether that was possible."""
    best, most = -1, 1.0
    for d in range(stack.floor.size):
        width = 0.5 * (stack.upper[top, d] - stack.lower[top, d]) / stack.floor[d]
        if width > most:
            best, most = d, width
    if best >= 0:
        halve(stack, top, best, stack.lower[top, best])
    return best >= 0


@kernel
def remember(net: LayerTable, space: Workspace, lp: LinearProgram, case: int, rows: int) -> None:
    """Store the weighted row that guides the split; weights of backward rows go to forward ones.

    At a vertex inside the cube the rows cancel in all symbols except insignificant ones. To avoid splitting
    only those, a symbol counts at least a share of its weight in the individual rows.
    """
    m, total = net.start[case + 1] - net.start[case], space.count[net.sizes.size - 1]
    for j in range(total):
        lp.split_row[j], lp.split_point[j], lp.ratio[j] = 0.0, lp.point[j], 0.0
    for i in range(rows):
        w = lp.weight[i]
        if i < m:
            w += lp.weight[i + m]
        if w > 0.0 and (i < m or i >= 2 * m):
            row = lp.row[i]
            for j in range(total):
                lp.split_row[j] += w * row[j]
                lp.ratio[j] += w * abs(row[j])
    for j in range(total):
        lp.split_row[j] = max(abs(lp.split_row[j]), ALONE * lp.ratio[j])


@kernel
def try_vertex(net: LayerTable, space: Workspace, lp: LinearProgram, stack: BoxStack, state: State) -> bool:
    """Whether the program's vertex looks unsafe in the net itself."""
    for j in range(net.sizes[0]):
        x = space.middle[j] + space.half[j] * lp.point[j]
        space.trial[j] = rounded(x, stack.lower32[j], stack.upper32[j])
    _, value = evaluate(net, space, space.trial)
    return record_best(stack, space.trial, value, state)


@part
def look(
    net: LayerTable, space: Workspace, lp: LinearProgram, stack: BoxStack, state: State
) -> tuple[int, int]:
    """DONE if no case can be met in the top box, FOUND, or MORE; and the status of the worst program."""
    total, top = space.count[net.sizes.size - 1], state.top
    for j in range(net.sizes[0]):
        space.low_clip[j], space.high_clip[j] = 1.0, -1.0
    worst, ended, undecided = np.inf, NONE, False
    for case in range(stack.alive.shape[1]):
        if stack.alive[top, case] == 0:
            continue
        how, rows, bound = settle(net, space, lp, stack, case, state)
        if how == NONE:
            stack.alive[top, case] = 0
            continue
        find_vertex(lp, rows, total)
        if try_vertex(net, space, lp, stack, state):
            return FOUND, how
        clip(space, lp, rows, total, state.target)
        undecided = True
        if not bound >= worst:  # also if it is NaN
            worst, ended = bound, how
            remember(net, space, lp, case, rows)
    state.worst = min(state.worst, worst)
    return MORE if undecided else DONE, ended


@kernel
def any_open(net: LayerTable, space: Workspace) -> bool:
    """Whether an activation is open in the box."""
    for q in range(net.first[net.sizes.size - 2]):  # noqa: SIM110 - a kernel
        if space.state[q] >= 2:
            return True
    return False


@part
def step(net: LayerTable, space: Workspace, lp: LinearProgram, stack: BoxStack, state: State) -> int:
    """Drop or split the top box; return MORE, FOUND, or LEAF for one dropped undecided, nearly unsafe."""
    top = state.top
    kind = forward(net, space, stack.lower[top], stack.upper[top], stack.phase[top])
    if kind == EMPTY:
        state.top -= 1
        return MORE
    if kind == WILD:
        state.top += 1 if split_widest(stack, top) else -1
        return MORE if state.top > top else LEAF
    state.symbols += space.count[net.sizes.size - 1]
    code, how = look(net, space, lp, stack, state)
    if code == FOUND:
        return FOUND
    if code == DONE:
        state.top -= 1
        return MORE
    exact = how == BEST and not any_open(net, space)
    if not exact:
        if cut_box(space, stack.lower[top], stack.upper[top]):
            state.margin = min(state.margin, state.target)
        if split(net, space, lp, stack, top):
            state.top += 1
            return MORE
    state.top -= 1
    for j in range(net.sizes[0]):
        stack.point[j] = space.trial[j]
    return LEAF


@kernel
def walk(net: LayerTable, space: Workspace, lp: LinearProgram, stack: BoxStack, state: State) -> int:
    """Process boxes; return DONE if none is open, MORE after the requested number, FULL, FOUND or LEAF."""
    if burst(net, space, lp, stack, state):
        return FOUND
    for _ in range(state.most):
        if state.top < 0:
            return DONE
        if state.top + 2 >= stack.lower.shape[0]:
            return FULL
        state.visited += 1
        code = step(net, space, lp, stack, state)
        if code != MORE:
            return code
    return MORE


def cached_walk(sources: str) -> Callable[..., int]:
    """The compiled walk. `sources` is a hash of the sources of all kernels.

    numba's cache notices changes of this file alone. Variables of a closure are part of the cache's key,
    and so a change of any kernel is noticed too.
    """

    def run(net: LayerTable, space: Workspace, lp: LinearProgram, stack: BoxStack, state: State) -> int:
        _ = sources
        return walk(net, space, lp, stack, state)

    compiled: Callable[..., int] = njit(cache=True, nogil=True, _nrt=False)(run)
    return compiled
