"""A constant cut to the old size, cut or continued to the new one: grids of cells, strides, anchors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from holdfast.graph.rewrite.follow.infer import Array
from holdfast.graph.rewrite.follow.sizes import Axis, Run, changed, new_size, old_size

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


def _continued(values: Array, run: Run) -> Array | None:
    if run.parts:
        cuts = np.cumsum([old_size(part) for part in run.parts])[:-1]
        parts = [_along(piece, part) for piece, part in zip(np.split(values, cuts), run.parts, strict=True)]
        known = [piece for piece in parts if piece is not None]
        return np.concatenate(known) if len(known) == len(parts) else None
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
