"""Sizes before and after a change: an axis as a product of runs, so that a flattened H·W can be split again.

A run of 52 cells that became 53 is `Run(52, 53)`. Flattening a 52×52 map gives an axis of two runs; the
axis keeps them through Transpose and Concat, and a Reshape that unflattens it finds them again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

import numpy as np

from holdfast.graph.rewrite.follow.infer import Array


@dataclass(frozen=True)
class AxisCells:
    """Cells in a row: how many there were and are; `parts` if they are several axes one after the other."""

    old: int
    new: int
    parts: tuple[tuple[AxisCells, ...], ...] = ()

    @property
    def changed(self) -> bool:
        """Whether there are now more or fewer, in all or in a part."""
        return self.old != self.new or any(run.changed for part in self.parts for run in part)


Axis: TypeAlias = tuple[AxisCells, ...]  # the product of its runs, the first one outermost


def axis(old: int, new: int) -> Axis:
    """An axis with a size but no further structure."""
    return (AxisCells(old, new),)


def old_size(runs: Axis) -> int:
    """How long the axis was."""
    return prod(run.old for run in runs)


def new_size(runs: Axis) -> int:
    """How long the axis is."""
    return prod(run.new for run in runs)


def changed(runs: Axis) -> bool:
    """Whether the axis is another one now."""
    return any(run.changed for run in runs)


def joined(parts: Sequence[Axis]) -> Axis:
    """The axis that has these one after the other."""
    if not any(changed(part) for part in parts):
        total = sum(old_size(part) for part in parts)
        return axis(total, total)
    old, new = sum(map(old_size, parts)), sum(map(new_size, parts))
    return (AxisCells(old, new, tuple(parts)),)


def offset(runs: Axis, at: int) -> int | None:
    """Where the cell with `at` old cells before it is now; None if it is inside of a part that changed."""
    if at == 0 or not changed(runs):
        return at
    if at >= old_size(runs):
        return new_size(runs)
    if len(runs) == 1 and runs[0].parts:
        before_old = before_new = 0
        for part in runs[0].parts:
            if at < before_old + old_size(part):
                inside = offset(part, at - before_old)
                return None if inside is None else before_new + inside
            before_old, before_new = before_old + old_size(part), before_new + new_size(part)
    return None


def regrouped(axes: Sequence[Axis], shape: Sequence[int]) -> tuple[Axis, ...] | AxisCells:
    """The axes of a Reshape to the old `shape`, or the changed run that the new axes would cut through."""
    remaining = _merged(axes)
    out: list[Axis] = []
    for i, size in enumerate(shape):
        runs: list[AxisCells] = []
        rest = size
        while rest > 1 and remaining:
            run = remaining.pop(0)
            if rest % run.old == 0:
                rest //= run.old
                runs.append(run)
            elif not run.changed and run.old % rest == 0:
                runs.append(AxisCells(rest, rest))
                remaining.insert(0, AxisCells(run.old // rest, run.old // rest))
                rest = 1
            else:
                return next((r for r in (run, *remaining) if r.changed), run)
        # Runs of one cell that grew (1×1 maps) go to an axis of one cell if there is one, else they stay.
        last = i + 1 == len(shape)
        while (
            remaining and remaining[0].old == 1 and (last or (not runs if size == 1 else shape[i + 1] != 1))
        ):
            runs.append(remaining.pop(0))
        out.append(tuple(runs) or axis(1, 1))
    return tuple(out) if not remaining else remaining[0]


def _merged(axes: Sequence[Axis]) -> list[AxisCells]:
    """All runs in order, unchanged neighbours as one: how those are cut does not matter."""
    runs: list[AxisCells] = []
    for run in (run for each in axes for run in each):
        if not run.changed and runs and not runs[-1].changed:
            runs[-1] = AxisCells(runs[-1].old * run.old, runs[-1].new * run.new)
        elif run.changed or run.old != 1:
            runs.append(run)
    return runs


STRAIGHT = 1e-4  # of the step: how far a float32 grid may be from a straight line


def extended(values: Array, axes: Sequence[Axis]) -> Array | None:
    """The constant along axes (aligned from the right; an axis of one cell stays); None if it is no grid.

    Fewer cells: the first ones. More cells: the straight line is continued, if there is one.
    """
    for place in range(-values.ndim, 0):
        if len(axes) < -place or not changed(axes[place]) or values.shape[place] == 1:
            continue
        if values.shape[place] != old_size(axes[place]):
            return None
        moved = _along(np.moveaxis(values, place, 0), axes[place])
        if moved is None:
            return None
        values = np.moveaxis(moved, 0, place)
    return np.ascontiguousarray(values)


def _along(values: Array, runs: Axis) -> Array | None:
    """Values whose first axis is this one."""
    rest = values.shape[1:]
    grid = values.reshape(*(run.old for run in runs), *rest)
    for i, run in enumerate(runs):
        if run.changed:
            moved = _continued(np.moveaxis(grid, i, 0), run)
            if moved is None:
                return None
            grid = np.moveaxis(moved, 0, i)
    return grid.reshape(new_size(runs), *rest)


def _continued(values: Array, run: AxisCells) -> Array | None:
    if run.parts:
        cuts = np.cumsum([old_size(part) for part in run.parts])[:-1]
        parts = [_along(piece, part) for piece, part in zip(np.split(values, cuts), run.parts, strict=True)]
        continued = [piece for piece in parts if piece is not None]
        return np.concatenate(continued) if len(continued) == len(parts) else None
    if run.new <= run.old:
        return values[: run.new]
    if run.old < 2 or values.dtype.kind not in "fiu":
        return None
    line = values.astype(np.float64)
    step = (line[-1] - line[0]) / (run.old - 1)
    ideal = line[0] + np.arange(run.new).reshape(-1, *[1] * (values.ndim - 1)) * step
    slack = STRAIGHT * np.maximum(np.abs(step), np.abs(line).max(initial=0.0) * 1e-3)
    if not (np.abs(ideal[: run.old] - line) <= slack).all():
        return None
    more = ideal[run.old :]
    return np.concatenate(
        [values, (np.rint(more) if values.dtype.kind in "iu" else more).astype(values.dtype)]
    )
