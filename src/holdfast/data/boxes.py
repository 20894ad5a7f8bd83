"""Checking truth boxes as they are read: what cannot be used is left out and named."""

from __future__ import annotations

import math
from collections.abc import Sequence

from holdfast.core.dataset import Problem
from holdfast.core.types import Size
from holdfast.data.entries import Row
from holdfast.data.problems import BOX_OUTSIDE, EMPTY_BOX, NOT_A_NUMBER

# Annotation tools round; a corner this far beyond the border is no fault.
BORDER_PIXELS = 1.0
BORDER_SHARE = 0.002  # the same for boxes stated as shares of the image


def lies_inside(row: Row, size: Size | None) -> bool:
    """Whether a box is not empty and lies inside an image of that size; False if the size is not known."""
    if size is None:
        return False
    x1, y1, x2, y2, *_ = row
    slack = BORDER_PIXELS
    return -slack <= x1 < x2 <= size[0] + slack and -slack <= y1 < y2 <= size[1] + slack


def check_box(row: Row, size: Size | None, where: str, problems: list[Problem]) -> bool:
    """Whether a box can be used; a problem is added if it cannot, or if it lies beyond the border.

    A box beyond the border is kept as it is stated, as the reference scorers do. `size` is that of the image
    in the unit of the box, (1, 1) for shares, None if it is not known yet.
    """
    x1, y1, x2, y2 = row[:4]
    if not math.isfinite(x1 + y1 + x2 + y2):
        said = f"expected finite corners, got {_corners(row[:4])}; the box is left out"
        problems.append(Problem(NOT_A_NUMBER, where, said))
        return False
    if x2 <= x1 or y2 <= y1:
        kind = "inverted" if x2 < x1 or y2 < y1 else "empty"
        said = f"{kind} box {_corners(row[:4])}: expected x1 < x2 and y1 < y2; the box is left out"
        problems.append(Problem(EMPTY_BOX, where, said))
        return False
    if size is not None:
        check_inside(row[:4], size, where, problems)
    return True


def check_inside(corners: Sequence[float], size: Size, where: str, problems: list[Problem]) -> None:
    """Adds a problem if a box reaches beyond the border of an image of that size."""
    x1, y1, x2, y2 = corners
    slack = BORDER_SHARE if size == (1, 1) else BORDER_PIXELS
    if x1 < -slack or y1 < -slack or x2 > size.width + slack or y2 > size.height + slack:
        extent = "0 to 1" if size == (1, 1) else f"{size.width}×{size.height}"
        wholly = x1 >= size.width or y1 >= size.height or x2 <= 0 or y2 <= 0
        part = "wholly" if wholly else "partly"
        said = f"box {_corners(corners)} lies {part} outside the image ({extent}); kept as stated"
        problems.append(Problem(BOX_OUTSIDE, where, said))


def _corners(corners: Sequence[float]) -> str:
    return "(" + ", ".join(f"{value:.6g}" for value in corners) + ")"
