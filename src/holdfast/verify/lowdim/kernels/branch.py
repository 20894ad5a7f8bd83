"""What to do with a box that could not be settled: cut off what no case needs, then split it."""

from __future__ import annotations

from holdfast.verify.lowdim.kernels.compiled import TINY, UP, U, kernel
from holdfast.verify.lowdim.tables import Program, Reals, Space, Stack, Table

LEAN = 1.0  # how much more a neuron must weigh than an input to be split instead


@kernel
def clip_by(space: Space, row: Reals, fixed: float, norm: float, level: float, slack: float) -> None:
    """Nothing; one case's range of the input symbols, cut to where fixed + row·e <= level + slack can be."""
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
def clip(space: Space, lp: Program, rows: int, total: int, level: float) -> None:
    """Nothing; the range of the input symbols widened by what this case needs."""
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
def cut_box(space: Space, lower: Reals, upper: Reals) -> bool:
    """Whether anything was cut off the box by the ranges of its symbols that are needed."""
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
def share_symbols(net: Table, space: Space) -> None:
    """Nothing; for each symbol, which part of it comes from which input."""
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
            mine = share[s]
            for d in range(n):
                mine[d] = 0.0
            part = 1.0 / max(space.spread[f + i], TINY)
            for j in range(total):
                a, theirs = abs(space.form[base + j * m]) * part, share[j]
                for d in range(n):
                    mine[d] += a * theirs[d]


@kernel
def best_input(space: Space, lp: Program, total: int, floor: Reals) -> tuple[int, float]:
    """The input that the weighted row owes most to, and how much; -1 when none is wide enough."""
    n, best, most = floor.size, -1, -1.0
    for d in range(n):
        part = 0.5 * (space.high_clip[d] - space.low_clip[d])
        if part * space.half[d] > floor[d]:
            mine = abs(lp.kept[d])
            for s in range(n, total):
                mine += abs(lp.kept[s]) * space.share[s, d]
            if mine * part > most:
                best, most = d, mine * part
    return best, most


@kernel
def best_neuron(space: Space, lp: Program, n: int, total: int) -> tuple[int, float]:
    """The open neuron that weighs most in the weighted row, and how much; -1 when none does."""
    best, most = -1, 0.0
    for s in range(n, total):
        if abs(lp.kept[s]) > most:
            best, most = space.owner[s], abs(lp.kept[s])
    return best, most


@kernel
def copy_up(stack: Stack, top: int) -> None:
    """Nothing; the box at `top` again above it."""
    for d in range(stack.lower.shape[1]):
        stack.lower[top + 1, d], stack.upper[top + 1, d] = stack.lower[top, d], stack.upper[top, d]
    for q in range(stack.phase.shape[1]):
        stack.phase[top + 1, q] = stack.phase[top, q]
    for c in range(stack.alive.shape[1]):
        stack.alive[top + 1, c] = stack.alive[top, c]


@kernel
def halve(stack: Stack, top: int, d: int, x: float) -> None:
    """Nothing; the box at `top` in two halves along input d, the one with x on top."""
    copy_up(stack, top)
    at = 0.5 * stack.lower[top, d] + 0.5 * stack.upper[top, d]
    if x <= at:
        stack.lower[top, d], stack.upper[top + 1, d] = at, at
    else:
        stack.upper[top, d], stack.lower[top + 1, d] = at, at


@kernel
def split(net: Table, space: Space, lp: Program, stack: Stack, top: int) -> bool:
    """Whether the box at `top` could be split in two; they are then at `top` and above."""
    n, total = net.sizes[0], space.count[net.sizes.size - 1]
    share_symbols(net, space)
    d, most = best_input(space, lp, total, stack.floor)
    neuron, weight = best_neuron(space, lp, n, total)
    if neuron >= 0 and (d < 0 or weight * LEAN >= most):
        copy_up(stack, top)
        stack.phase[top, neuron], stack.phase[top + 1, neuron] = 1, -1
        return True
    if d >= 0:
        halve(stack, top, d, space.middle[d] + space.half[d] * lp.kept_point[d])
    return d >= 0


@kernel
def split_widest(stack: Stack, top: int) -> bool:
    """Whether the box at `top` could be halved where it is widest."""
    best, most = -1, 1.0
    for d in range(stack.floor.size):
        width = 0.5 * (stack.upper[top, d] - stack.lower[top, d]) / stack.floor[d]
        if width > most:
            best, most = d, width
    if best >= 0:
        halve(stack, top, best, stack.lower[top, best])
    return best >= 0
