"""Sets of rectangular masks over an image, and the patches that each mask covers.

A mask is a rectangle x1, y1, x2, y2 of whole pixels, x1 ≤ x < x2: these pixels are replaced by one grey. A
patch of p × p pixels at (x, y) has the pixels x … x + p − 1. A mask covers it if x1 ≤ x and x + p ≤ x2,
likewise y.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from holdfast.core.errors import ImageError, InputError
from holdfast.core.types import Bools, Ints, Size


@dataclass(frozen=True)
class PatchSize:
    """The side of a square patch: a number of pixels, or a share of the area of the image."""

    pixels: int = 0
    share: float = 0.0

    @classmethod
    def parse(cls, text: str) -> PatchSize:
        """The size of a text such as 32, 32px or 1%; raise InputError for any other and for 0."""
        match = re.fullmatch(r"(\d{1,6})(?:px)?|(\d{1,3}(?:\.\d{1,6})?)%", text.strip(), re.ASCII)
        size = cls() if match is None else cls(int(match[1] or 0), float(match[2] or 0) / 100)
        if not (size.pixels > 0 or 0 < size.share <= 1):
            expected = "a side in pixels of at least 1 such as 32, or a share of the image's area such as 1%"
            raise InputError(f"--patch: expected {expected}, got {text!r}")
        return size

    def side(self, size: Size) -> int:
        """The side in pixels in an image of that size; a share is rounded up to the next whole side."""
        # The tolerance keeps 1 % of 400 × 400 at 40.
        return self.pixels or max(1, math.ceil(math.sqrt(self.share * size.width * size.height) - 1e-9))

    def fits(self, size: Size) -> bool:
        """Whether the image has a place for the patch."""
        return self.side(size) <= min(size)

    @property
    def text(self) -> str:
        """The size as `parse` reads it."""
        return f"{self.pixels}" if self.pixels else f"{100 * self.share:.6g}%"

    def __str__(self) -> str:
        return f"{self.pixels} px" if self.pixels else f"{100 * self.share:g}%"


@dataclass(frozen=True)
class HalfPlanes:
    """Masks on either side of evenly spread lines: for one object, they cover patches of every size."""

    lines: int = 30  # on each axis

    def masks(self, size: Size) -> Ints:
        """The masks (n, 4): left and right of the lines, then above and below."""
        width, height = size
        columns, rows = (_cuts(side, self.lines) for side in size)
        masks = [[0, 0, x, height] for x in columns] + [[x, 0, width, height] for x in columns]
        masks += [[0, 0, width, y] for y in rows] + [[0, y, width, height] for y in rows]
        return np.array(masks, np.int64).reshape(-1, 4)

    def __str__(self) -> str:
        return f"half-planes of {self.lines} lines on each axis"


@dataclass(frozen=True)
class SquareMasks:
    """A grid of masks that covers every patch of at most one size, at every place (PatchCleanser).

    On an axis of S pixels, n masks of p + s − 1 pixels for a patch of p start s = ⌈(S − p + 1) / n⌉ pixels
    apart. A patch that starts at i·s … (i + 1)·s − 1 is covered by mask i.
    """

    patch: PatchSize
    per_axis: int = 6
    widen: int = 0  # pixels that compression or a resize may add to the patch's side

    def masks(self, size: Size) -> Ints:
        """The masks (n, 4), row by row; ImageError if the image has no place for the patch."""
        patch = self.patch.side(size)
        if not self.patch.fits(size):
            width, height = size
            raise ImageError(
                f"expected an image with a place for a patch of {patch} px, got {width}×{height}"
            )
        patch = min(patch + self.widen, *size)
        columns, rows = (_spans(side, patch, self.per_axis) for side in size)
        return np.array([[x1, y1, x2, y2] for y1, y2 in rows for x1, x2 in columns], np.int64)

    def __str__(self) -> str:
        more = f" and {self.widen} px around" if self.widen else ""
        return f"{self.per_axis} × {self.per_axis} squares for patches up to {self.patch}{more}"


MaskFamily: TypeAlias = HalfPlanes | SquareMasks


def _cuts(side: int, lines: int) -> list[int]:
    """Distinct coordinates of lines that leave at least one pixel on either side."""
    places = {round(i * side / (lines + 1)) for i in range(1, lines + 1)}
    return sorted(places - {0, side})


def _spans(side: int, patch: int, count: int) -> list[tuple[int, int]]:
    stride = math.ceil((side - patch + 1) / count)
    wide = patch + stride - 1
    return [(start, min(start + wide, side)) for start in range(0, side - patch + 1, stride)]


def covering(masks: Ints, places: Any, patch: int) -> Bools:
    """Whether each mask (n) covers the patch at each place x, y (m): (n, m)."""
    at = np.asarray(places, np.int64).reshape(-1, 2)
    low = (masks[:, None, :2] <= at[None]).all(axis=2)
    high = (at[None] + patch <= masks[:, None, 2:]).all(axis=2)
    return np.asarray(low & high)
