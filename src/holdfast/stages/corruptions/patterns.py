"""What several corruptions are built from: discs, motion, zoom and plasma."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.types import Floats

Plane = NDArray[np.float32]


def disc(radius: int, blur: float) -> Plane:
    """The kernel of a defocused point: a disc smoothed by a Gaussian, (n, n), n = 17 or 2·radius + 1."""
    import cv2

    half, size = (8, 3) if radius <= 8 else (radius, 5)
    y, x = np.mgrid[-half : half + 1, -half : half + 1]
    sharp = (x**2 + y**2 <= radius**2).astype(np.float32)
    return np.asarray(cv2.GaussianBlur(sharp / sharp.sum(), (size, size), blur), np.float32)


def motion(radius: int, deviation: float, degrees: float) -> Plane:
    """The kernel of a motion, (n, n): the half Gaussian of ImageMagick along a line from the centre.

    Tap i of 2·radius + 1 has the weight exp(−i²/2σ²) and lies at ⌈i·(cos α, sin α) − ½⌉.
    """
    width = 2 * radius + 1
    weights = np.exp(-(np.arange(width) ** 2) / (2 * deviation**2))
    kernel = np.zeros((2 * width - 1, 2 * width - 1))
    angle = math.radians(degrees)
    for i, weight in enumerate(weights / weights.sum()):
        x, y = (math.ceil(i * side - 0.5) for side in (math.cos(angle), math.sin(angle)))
        kernel[width - 1 + y, width - 1 + x] += weight
    used = np.flatnonzero(kernel.any(axis=0) | kernel.any(axis=1))
    reach = int(np.abs(used - (width - 1)).max())
    return kernel[width - 1 - reach : width + reach, width - 1 - reach : width + reach].astype(np.float32)


def filtered(values: NDArray[Any], kernel: Plane) -> Plane:
    """The correlation of every channel with a kernel, edge pixels repeated, in float32."""
    import cv2

    return np.asarray(cv2.filter2D(values, cv2.CV_32F, kernel, borderType=cv2.BORDER_REPLICATE))


def zoom_axis(length: int, factor: float) -> tuple[float, float, int]:
    """First position, step and crop of one axis when its centre is enlarged to the same length.

    The centre ⌈length/factor⌉ is enlarged with its corners aligned, and the result is trimmed at both ends.
    """
    crop = math.ceil(length / factor)
    large = max(length, round(crop * factor))
    step = (crop - 1) / (large - 1) if large > 1 else 0.0
    return (length - crop) // 2 + (large - length) // 2 * step, step, crop


def zoomed(values: NDArray[Any], factor: float, height: int, width: int) -> NDArray[Any]:
    """The centre of an image enlarged bilinearly to its own size, (height, width, …)."""
    import cv2

    (top, down, _), (left, right, _) = zoom_axis(height, factor), zoom_axis(width, factor)
    matrix = np.array([[right, 0, left], [0, down, top]])
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    return np.asarray(
        cv2.warpAffine(values, matrix, (width, height), flags=flags, borderMode=cv2.BORDER_REPLICATE)
    )


def plasma(side: int, decay: float, random: np.random.Generator) -> Plane:
    """A fractal of the diamond-square algorithm, (side, side) from 0 to 1; `side` is a power of two.

    At each step the middle of four points is their mean plus a uniform number; `decay` divides its range.
    """
    height = np.zeros((side, side), np.float32)
    step, range_ = side, 100.0

    def middle(total: Plane) -> Plane:
        noise = random.random(total.shape, np.float32)
        return total / 4 + (noise * 2 - 1) * np.float32(range_ * range_)

    while step >= 2:
        half = step // 2
        corners = height[::step, ::step]
        across = corners + np.roll(corners, -1, axis=0)
        height[half::step, half::step] = middle(across + np.roll(across, -1, axis=1))
        centres = height[half::step, half::step]
        beside = corners + np.roll(corners, -1, axis=1)
        height[::step, half::step] = middle(centres + np.roll(centres, 1, axis=0) + beside)
        above = corners + np.roll(corners, -1, axis=0)
        height[half::step, ::step] = middle(centres + np.roll(centres, 1, axis=1) + above)
        step, range_ = half, range_ / decay
    height -= height.min()
    return height / max(float(height.max()), 1e-12)


def power_of_two(length: int) -> int:
    """The smallest power of two that is not below a length, at least 2."""
    return max(2, 1 << (length - 1).bit_length())


def smoothing(length: int, deviation: float) -> Floats:
    """The matrix (n, n) that smooths n values by a Gaussian cut at 3σ, mirrored at both ends."""
    reach = int(3 * deviation + 0.5)
    offsets = np.arange(-reach, reach + 1)
    weights = np.exp(-(offsets**2) / (2 * deviation**2))
    place = (np.arange(length)[:, None] + offsets) % (2 * length)
    place = np.where(place < length, place, 2 * length - 1 - place)
    matrix = np.zeros((length, length))
    np.add.at(matrix, (np.arange(length)[:, None], place), weights / weights.sum())
    return matrix
