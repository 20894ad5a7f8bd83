"""Where picture, position and target lie in the flat input of a benchmark network."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import InputError
from holdfast.core.types import Image, Size

SECONDS = 60  # what the benchmark's authors give an instance
THRESHOLD = 0.5
TAIL = 8  # position (2) and target (6)


@dataclass(frozen=True)
class Target:
    """The object a detector must go on finding: its class and its box xyxy in parts of the picture."""

    label: int
    box: tuple[float, float, float, float]


@dataclass(frozen=True)
class Layout:
    """The flat input: picture (3, h, w) in 0..1, column, row of the patch, 0, class, x1, y1, x2, y2."""

    size: Size
    patch: Size

    def __post_init__(self) -> None:
        if not (1 <= self.patch.width <= self.size.width and 1 <= self.patch.height <= self.size.height):
            raise InputError(
                f"expected a patch from 1×1 up to the picture's {self.size.width}×{self.size.height} pixels, "
                f"got {self.patch.width}×{self.patch.height}"
            )

    @property
    def pixels(self) -> int:
        """How many inputs the picture takes; the position begins there."""
        return 3 * self.size.width * self.size.height

    @property
    def length(self) -> int:
        """How many inputs there are: 12,296 for 64×64."""
        return self.pixels + TAIL

    @property
    def last(self) -> tuple[int, int]:
        """The last column and the last row at which the patch lies wholly in the picture."""
        return self.size.width - self.patch.width, self.size.height - self.patch.height


def size_of(length: int) -> Size:
    """The size of a square picture whose network has so many inputs."""
    side = isqrt(max(length - TAIL, 0) // 3)
    if length != 3 * side * side + TAIL or side < 1:
        raise InputError(
            f"expected 3·side² + {TAIL} inputs (12,296 for 64×64: picture, position, target), got {length:,}"
        )
    return Size(side, side)


def unit(image: Image) -> NDArray[np.float32]:
    """The picture (3, h, w) in 0..1 of an image (h, w, 3) uint8."""
    return np.ascontiguousarray(image.transpose(2, 0, 1)).astype(np.float32) / np.float32(255)


def whole(image: Image, position: tuple[float, float], target: Target) -> NDArray[np.float32]:
    """The flat input of an image (h, w, 3) with the patch's left upper corner at (column, row)."""
    tail = [*position, 0.0, float(target.label), *target.box]
    return np.concatenate([unit(image).ravel(), np.array(tail, np.float32)])
