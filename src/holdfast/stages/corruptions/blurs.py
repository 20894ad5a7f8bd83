"""Blur: defocus, glass, motion and zoom."""

import numpy as np
from numpy.typing import NDArray

from holdfast.core.types import Image, Ints
from holdfast.stages.corruptions.patterns import Plane, disc, filtered, motion, zoomed
from holdfast.stages.corruptions.severity import corruption, to_levels


@corruption((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5), needs="cv2")
def defocus_blur(image: Image, random: np.random.Generator, radius: int, blur: float) -> Image:
    """The image convolved with a disc: out of focus."""
    import cv2

    border = cv2.BORDER_REFLECT_101
    return to_levels(cv2.filter2D(image, cv2.CV_32F, disc(radius, blur), borderType=border))


@corruption((0.7, 1, 2), (0.9, 2, 1), (1.0, 2, 3), (1.1, 3, 2), (1.5, 4, 2), needs="cv2")
def glass_blur(image: Image, random: np.random.Generator, deviation: float, reach: int, times: int) -> Image:
    """The image smoothed, pixels replaced by near ones, smoothed again: seen through frosted glass.

    The published code means to swap two pixels, but its assignment copies one of them (both sides are views
    of one array). ImageNet-C was made by it, so a pixel is copied here, too.
    """
    pixels = to_levels(_smoothed(image, deviation))
    height, width = image.shape[:2]
    rows, columns = np.arange(height - reach, reach, -1), np.arange(width - reach, reach, -1)
    for _ in range(times):
        if not (len(rows) and len(columns)):
            break
        moves = random.integers(-reach, reach, (len(rows), len(columns), 2), np.int32)
        pixels = _copied(pixels, rows, columns, moves)
    return to_levels(_smoothed(pixels, deviation))


def _smoothed(image: Image, deviation: float) -> Plane:
    """A Gaussian cut at 4σ, edge pixels repeated."""
    import cv2

    side = 2 * int(4 * deviation + 0.5) + 1
    source = image.astype(np.float32)
    return np.asarray(cv2.GaussianBlur(source, (side, side), deviation, borderType=cv2.BORDER_REPLICATE))


def _copied(pixels: Image, rows: Ints, columns: Ints, moves: NDArray[np.int32]) -> Image:
    """The pixels after each (row, column), in this order, became the pixel `moves` (x, y) away from it.

    A source that was replaced earlier has its new value: sources are followed until one was not, by
    doubling, instead of pixel by pixel.
    """
    height, width = pixels.shape[:2]
    source = np.arange(height * width, dtype=np.int32).reshape(height, width)
    place = np.ascontiguousarray(source[np.ix_(rows, columns)])
    target = place + moves[..., 1] * width + moves[..., 0]
    # The order is from the last pixel to the first, so an earlier one has a larger place.
    inside = np.zeros((height, width), bool)
    inside[np.ix_(rows, columns)] = True
    earlier = inside.reshape(-1)[target] & (target > place)
    following = source.reshape(-1).copy()
    following[place[earlier]] = target[earlier]
    while not np.array_equal(further := following[following], following):
        following = further
    final = source.reshape(-1).copy()
    final[place] = target
    return pixels.reshape(-1, 3)[final[following]].reshape(pixels.shape)


@corruption((10, 3), (15, 5), (15, 8), (15, 12), (20, 15), needs="cv2")
def motion_blur(image: Image, random: np.random.Generator, radius: int, deviation: float) -> Image:
    """The image smeared along a line at a random angle from −45° to 45°: a moving camera."""
    return to_levels(filtered(image, motion(radius, deviation, random.uniform(-45, 45))))


@corruption((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03), needs="cv2")
def zoom_blur(image: Image, random: np.random.Generator, end: float, step: float) -> Image:
    """The mean of the image and of its centre enlarged by factors from 1 on: a fast approach."""
    import cv2

    factors = np.arange(1, end, step)
    total = image.astype(np.float32)
    for factor in factors.tolist():
        cv2.accumulate(zoomed(image, factor, *image.shape[:2]), total)
    return to_levels(total / (len(factors) + 1))
