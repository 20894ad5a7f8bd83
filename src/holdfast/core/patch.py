"""A patch as data: pixels, a mask and a position. Applying it to an image is one pure function."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import InputError
from holdfast.core.types import Bools, Floats, Image


@dataclass(frozen=True)
class Position:
    """The position of a patch in every image: its top left pixel at column x and row y."""

    x: int = 0
    y: int = 0


@dataclass(frozen=True)
class OnBoxes:
    """Position of a patch on every box: its centre and its longer side as fractions of the box.

    Pixels and mask are enlarged or reduced to that side, nearest neighbour.
    """

    x: float = 0.5
    y: float = 0.5
    side: float = 0.5


@dataclass(frozen=True, eq=False)
class Patch:
    """Pixels (h, w, 3) uint8 that replace an image's where the mask (h, w) says so."""

    pixels: Image
    mask: Bools
    where: Position | OnBoxes = field(default_factory=Position)

    def __post_init__(self) -> None:
        pixels, mask = np.array(self.pixels), np.array(self.mask, bool)
        if pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.dtype != np.uint8 or not pixels.size:
            got = f"{pixels.shape} {pixels.dtype.name}"
            raise InputError(f"Patch.pixels: expected (h, w, 3) uint8, got {got}")
        if mask.shape != pixels.shape[:2]:
            raise InputError(f"Patch.mask: expected {pixels.shape[:2]}, got {mask.shape}")
        pixels.flags.writeable = mask.flags.writeable = False
        object.__setattr__(self, "pixels", pixels)
        object.__setattr__(self, "mask", mask)


@dataclass(frozen=True)
class Survival:
    """In how many random views of attacked images a patch still hides what it hides in the images."""

    transform: str
    hidden: int
    views: int  # in which the model detects a target of the clean image
    images: int


def apply(image: Image, patch: Patch, boxes: Floats | None = None) -> Image:
    """A copy of the image (h, w, 3) with the patch on it, clipped to the image.

    A patch that is placed on boxes needs them, (n, 4) xyxy in pixels of this image.
    """
    out = np.array(image)
    for pixels, mask, x, y in _placements(patch, boxes):
        top, left = max(y, 0), max(x, 0)
        bottom, right = min(y + len(mask), len(out)), min(x + mask.shape[1], out.shape[1])
        if top >= bottom or left >= right:
            continue
        part = np.s_[top - y : bottom - y, left - x : right - x]
        out[top:bottom, left:right][mask[part]] = pixels[part][mask[part]]
    return out


def _placements(patch: Patch, boxes: Floats | None) -> list[tuple[Image, Bools, int, int]]:
    where = patch.where
    if isinstance(where, Position):
        return [(patch.pixels, patch.mask, where.x, where.y)]
    if boxes is None:
        raise InputError(
            "this patch is placed on boxes: expected the boxes of the image (n, 4) xyxy, got none"
        )
    placed = []
    for x1, y1, x2, y2 in np.asarray(boxes, np.float64).reshape(-1, 4):
        ratio = where.side * min(x2 - x1, y2 - y1) / max(patch.mask.shape)
        height, width = (max(1, round(side * ratio)) for side in patch.mask.shape)
        rows, columns = nearest(len(patch.mask), height), nearest(patch.mask.shape[1], width)
        x = round(x1 + where.x * (x2 - x1) - width / 2)
        y = round(y1 + where.y * (y2 - y1) - height / 2)
        placed.append((patch.pixels[rows[:, None], columns], patch.mask[rows[:, None], columns], x, y))
    return placed


def nearest(old: int, new: int) -> NDArray[np.int64]:
    """The row (or column) of `old` ones at the centre of each of `new` ones."""
    return np.minimum(((np.arange(new) + 0.5) * old / new).astype(np.int64), old - 1)


def difference(before: Image, after: Image) -> Patch:
    """The patch that turns one image into the other: exactly the pixels of which any channel differs."""
    return Patch(after, changed(before, after))


def changed(before: Image, after: Image) -> Bools:
    """Where (h, w) any of the three uint8 channels differs."""
    if before.shape != after.shape:
        raise InputError(f"expected two images of one size, got {before.shape} and {after.shape}")
    mask: NDArray[Any] = (before != after).any(axis=2)
    return mask


def changed_pixels(before: Image, after: Image) -> int:
    """Number of pixels that differ in any channel, as the contest's limit counts them."""
    return int(np.count_nonzero(changed(before, after)))


def amplitude(before: Image, after: Image) -> int:
    """The largest difference of a channel, 0 to 255."""
    return int(np.abs(before.astype(np.int16) - after.astype(np.int16)).max(initial=0))
