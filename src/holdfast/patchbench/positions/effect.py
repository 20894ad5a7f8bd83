"""What the position inputs of a benchmark's file do to the picture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.core.types import Bools, Tensor
from holdfast.patchbench.positions.files import Instance, Point


@dataclass(frozen=True, eq=False)
class Effect:
    """What the position input does to the picture: `order` is how it is read, None if it places no square.

    `clean` is the picture without a patch, `content` what the first position puts there, if a rectangle.
    """

    order: str | None  # "column, row" or "row, column"
    words: str
    clean: Tensor | None
    content: Tensor | None


def effect(instance: Instance) -> Effect:
    """What the position input does, seen from the file itself: which values it puts no picture in."""
    ends = [(0, 0), tuple(len(cells) - 1 for cells in instance.cells)]
    probe = tuple(len(cells) // 3 + i for i, cells in enumerate(instance.cells))
    masks = {place: _overwritten(instance, instance.point(place)) for place in (*ends, probe)}
    first, last = masks[ends[0]], masks[ends[1]]
    clean = _outside(instance)
    if clean is None and not (first & last).any():
        pictures = [instance.picture_at(instance.point(place)) for place in ends]
        clean = np.where(first, pictures[1], pictures[0])
    squares = {place: _square(mask) for place, mask in masks.items()}
    order = _order(squares, instance)
    words = _words(first, masks[probe], instance.point(probe))
    square = squares[ends[0]]
    if square is None or clean is None:
        return Effect(None, words, clean, None)
    row, column, height, width = square[:4]
    there = np.s_[:, row : row + height, column : column + width]
    content: Tensor = instance.picture_at(instance.point(ends[0]))[0][there]
    if not first[0][there].all():
        content = np.ma.array(content, mask=~first[0][there])
    return Effect(order, words, clean, content)


def _outside(instance: Instance) -> Tensor | None:
    """The picture at a position far outside of it, if the file then changes nothing; None if it does."""
    far = np.array([4.0 * max(cells.last[-1], 64.0) for cells in instance.cells], np.float32)
    try:
        if _overwritten(instance, far).any():
            return None
        return instance.picture_at(far)
    except Exception:  # noqa: BLE001 - a file need not take such a position, and onnxruntime has no one class
        return None


def _overwritten(instance: Instance, point: Point) -> Bools:
    """Where the picture at a position does not depend on the picture that was given."""
    dark, light = (
        instance.picture_at(point, instance.with_picture(np.float32(grey))) for grey in (0.25, 0.75)
    )
    return np.asarray(dark == light)


def _square(mask: Bools) -> tuple[int, int, int, int, bytes] | None:
    """Row, column, height and width of what a mask (1, c, h, w) is in all channels, and its form there."""
    if mask.ndim != 4 or not mask.any() or (mask != mask[:, :1]).any():
        return None
    rows, columns = np.flatnonzero(mask[0, 0].any(axis=1)), np.flatnonzero(mask[0, 0].any(axis=0))
    height, width = int(rows[-1] - rows[0]) + 1, int(columns[-1] - columns[0]) + 1
    form = mask[0, 0][rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    return int(rows[0]), int(columns[0]), height, width, form.tobytes()


def _order(squares: Mapping[tuple[int, ...], Any], instance: Instance) -> str | None:
    """Which input is the row and which the column, if the squares lie where the position says."""
    for order, turn in (("column, row", (1, 0)), ("row, column", (0, 1))):
        fits = []
        for place, square in squares.items():
            point = instance.point(place).astype(np.int64)
            fits.append(square is not None and square[:2] == (point[turn[0]], point[turn[1]]))
        if all(fits) and len({square[2:] for square in squares.values()}) == 1:
            return order
    return None


def _words(first: Bools, probe: Bools, point: Point) -> str:
    """The change in words: at the first position, and at one in the middle."""
    said = [f"at the first position {_change(first)}"]
    at = ", ".join(f"{v:g}" for v in point)
    return "; ".join([*said, f"at ({at}) {_change(probe)}"])


def _change(mask: Bools) -> str:
    if not mask.any():
        return "nothing"
    if mask.ndim != 4:
        return f"{int(mask.sum())} values"
    spans = []
    for axis, what in ((1, "channels"), (2, "rows"), (3, "columns")):
        others = tuple(i for i in range(4) if i != axis)
        hit = np.flatnonzero(mask.any(axis=others))
        whole = len(hit) == mask.shape[axis]
        spans.append(f"all {what}" if whole else f"{what} {hit[0]}–{hit[-1]}")
    return ", ".join(spans)
