"""The flat input of a benchmark network, its output in numpy, and the VNN-LIB text of an instance."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import isqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

from holdfast.core.errors import InputError
from holdfast.core.types import Floats, Image, Size
from holdfast.metrics.boxes import single_values
from holdfast.verify.vnnlib.spec import Disjunct, Spec, print_vnnlib

SECONDS = 60  # time limit per instance in the published benchmark
THRESHOLD = 0.5
TAIL = 8  # position (2) and target (6)


@dataclass(frozen=True)
class Target:
    """The object that must stay detected: its class and its box xyxy relative to the picture."""

    label: int
    box: tuple[float, float, float, float]

    @classmethod
    def of(cls, label: float, box: Iterable[float]) -> Target:
        """The target of a class and the four corners of a box."""
        x1, y1, x2, y2 = map(float, box)
        return cls(int(label), (x1, y1, x2, y2))


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
        """Number of inputs of the picture; the position follows."""
        return 3 * self.size.width * self.size.height

    @property
    def length(self) -> int:
        """Number of inputs: 12,296 for 64×64."""
        return self.pixels + TAIL

    @property
    def last(self) -> tuple[int, int]:
        """The last column and the last row at which the patch is inside the picture."""
        return self.size.width - self.patch.width, self.size.height - self.patch.height


def size_of(length: int) -> Size:
    """The size of a square picture whose network has this many inputs."""
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
    """The flat input of an image (h, w, 3) with the patch's top left corner at (column, row)."""
    tail = [*position, 0.0, float(target.label), *target.box]
    return np.concatenate([unit(image).ravel(), np.array(tail, np.float32)])


def output_of(boxes: ArrayLike, labels: ArrayLike, target: Target) -> Floats:
    """IoU · equal(class) of each predicted box (n, 4) xyxy relative to the picture, not clipped, (n,)."""
    n = len(np.asarray(boxes))
    return single_values(boxes, labels, np.repeat([target.box], n, axis=0), np.repeat(target.label, n))


def rule_text(strict: bool) -> str:
    """Which outputs are unsafe, in words."""
    if strict:
        return "unsafe is an output below 0.5 (strict, as the benchmark's text says); exactly 0.5 is safe"
    return "unsafe is an output of at most 0.5 (not strict, as in the published files); exactly 0.5 is unsafe"


def spec_text(
    name: str, layout: Layout, image: Image, target: Target, *, strict: bool, at: tuple[int, int] | None
) -> str:
    """The specification of one image: the patch anywhere, or at one position with any content.

    Fixed inputs are written with enough digits to restore exactly the same float32.
    """
    lower = whole(image, at or (0, 0), target).astype(np.float64)
    upper = lower.copy()
    (width, height), patch, p = layout.size, layout.patch, layout.pixels
    if at is None:
        upper[p : p + 2] = layout.last
        where = f"its left upper corner at column 0 to {layout.last[0]} and row 0 to {layout.last[1]}"
    else:
        x, y = at
        where = f"at column {x}, row {y}, each of its values anything in 0..1"
        for bound, value in ((lower, 0.0), (upper, 1.0)):
            bound[:p].reshape(3, height, width)[:, y : y + patch.height, x : x + patch.width] = value
    row = Disjunct(lower, upper, np.ones((1, 1)), np.array([THRESHOLD]), np.array([strict]))
    lines = [
        f"Spec for sample id {name}",
        f"patch {patch.width}x{patch.height} pixels, {where}",
        f"X_0 to X_{p - 1}: picture (1, 3, {height}, {width}), RGB in 0..1",
        f"X_{p}: column, X_{p + 1}: row of the patch (cut to whole numbers)",
        f"X_{p + 2} to X_{p + 7}: target as predicted without a patch: 0, class, x1, y1, x2, y2 in 0..1",
        "Y_0: IoU(predicted box, target box) * equal(predicted class, target class)",
        rule_text(strict),
    ]
    head = "".join(f"; {line}\n" for line in lines)
    return head + print_vnnlib(Spec(layout.length, 1, (row,)))
