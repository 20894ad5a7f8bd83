"""OpenCV's Lanczos and area resizes, by OpenCV at first, by kernels once those were seen to give the same.

Lanczos: the weights of eight neighbours on each axis have 11 bits; sums have 32, and are rounded once, at the
end, halves up. Beyond an edge its pixel goes on.
Area: float32, summed along rows from the left, then along columns from the top, and rounded, halves to the
even number. Where a side grows it is bilinear, and where both shrink by a whole number it sums whole numbers:
both are left to OpenCV.
A kernel is used only if it gives the bits of the OpenCV that is installed on all of SAMPLES.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from holdfast.core.frame import Window
from holdfast.core.types import Image, Size, Tensor
from holdfast.stages.quick import Meter, equal, of_pixels
from holdfast.stages.quick.library import KERNELS

LANCZOS, AREA = "INTER_LANCZOS4", "INTER_AREA"
BITS = 11  # of a weight of Lanczos
LEAST = 1e-3  # of a pixel that area takes
FEW, ROWS = 8, 128  # rows turned and rows made by Lanczos at a time: all that they touch stays near
SAMPLES = (
    (Size(90, 61), Size(33, 29)),
    (Size(61, 90), Size(41, 60)),
    (Size(72, 60), Size(60, 50)),  # area: halves that only the rounding of the sums decides
    (Size(100, 70), Size(30, 21)),
    (Size(64, 48), Size(48, 36)),  # area: halves that are exact
    (Size(64, 40), Size(24, 15)),
    (Size(50, 40), Size(50, 27)),
    (Size(50, 40), Size(33, 40)),
    (Size(80, 60), Size(40, 29)),  # a whole number on one side
    (Size(149, 7), Size(2, 5)),
    (Size(7, 5), Size(4, 1)),
    (Size(2, 3), Size(1, 2)),
    (Size(5, 9), Size(40, 31)),
    (Size(1, 2), Size(9, 7)),
    (Size(60, 200), Size(41, 137)),  # more than ROWS
    (Size(1201, 5), Size(1200, 4)),  # area: shares below a thousandth
)
lanczos, area = KERNELS.entry("lanczos"), KERNELS.entry("area")
_EIGHTH = np.array([(1, 0), (-1, -1), (0, 1), (1, -1), (-1, 0), (1, 1), (0, -1), (-1, 1)], np.float64)
_EIGHTH[1::2] *= math.sqrt(0.5)


class Resampler:
    """Pictures of other sizes by OpenCV's interpolations."""

    def __init__(self) -> None:
        self.right: frozenset[str] = frozenset()
        self.asked = False

    def cut(self, image: Image, size: Size, name: str, window: Window) -> Image:
        """A part of the picture (h, w, 3) in another size, as OpenCV gives it."""
        if not self.asked and Meter.full():
            self.asked, self.right = True, frozenset(filter(agrees, (LANCZOS, AREA)))
        if name in self.right and known(image, size, name):
            return resized(image, size, name, window)
        made = Meter.timed(lambda: plain(image, size, name))
        left, top, width, height = window
        return made[top : top + height, left : left + width]


def known(image: Image, size: Size, name: str) -> bool:
    """Whether the arithmetic of that resize of the picture is the kernel's."""
    if not of_pixels(image) or not image.size or min(size) < 1:
        return False
    height, width, _ = image.shape
    if name == AREA:
        shrinks = width >= size.width and height >= size.height
        return shrinks and not width % size.width == height % size.height == 0
    return (width, height) != size


def agrees(name: str) -> bool:
    """Whether the kernel gives OpenCV's bits on all samples, of noise and of black and white alone."""
    rng = np.random.default_rng(0)
    try:
        for before, after in SAMPLES:
            noise = rng.integers(0, 256, (before.height, before.width, 3), np.uint8)
            for picture in (noise, np.where(noise > 127, 255, 0).astype(np.uint8)):
                if known(picture, after, name) and not equal(
                    plain(picture, after, name), resized(picture, after, name, Window(0, 0, *after))
                ):
                    return False
    except Exception:  # noqa: BLE001 - whatever a compiler raises, OpenCV is there
        return False
    return True


def plain(image: Image, size: Size, name: str) -> Image:
    """The picture in another size by OpenCV itself."""
    import cv2

    return np.asarray(cv2.resize(image, (size.width, size.height), interpolation=getattr(cv2, name)))


def resized(image: Image, size: Size, name: str, window: Window) -> Image:
    """A part of the picture (h, w, 3) in another size by the kernel."""
    height, width, _ = image.shape
    lines = np.ascontiguousarray(image).reshape(height, 3 * width)
    taps, made = (neighbours, _lanczos) if name == LANCZOS else (covered, _area)
    x, across = (part[window.left : window.left + window.width] for part in taps(width, size.width))
    y, down = (part[window.top : window.top + window.height] for part in taps(height, size.height))
    return made(lines, x, across, y, down).reshape(len(y), len(x), 3)


def _lanczos(lines: Image, x: Tensor, across: Tensor, y: Tensor, down: Tensor) -> Image:
    left, right = max(0, int(x[0])), min(lines.shape[1] // 3, int(x[-1]) + 8)
    some = np.empty((FEW, 3 * (right - left)), np.int32)
    rows = 3 * min(len(y), ROWS)
    turned, total = np.empty((right - left, rows), np.int32), np.empty(rows, np.int32)
    made, out = np.empty((len(x), rows), np.uint8), np.empty((len(y), 3 * len(x)), np.uint8)
    lanczos(lines, left, x, across, y, down, some, turned, total, made, out)
    return out


def _area(lines: Image, x: Tensor, across: Tensor, y: Tensor, down: Tensor) -> Image:
    left, right = int(x[0]), int(x[-1]) + across.shape[1]
    line = np.zeros(3 * (right - left), np.float32)
    row, total = np.empty(3 * len(x), np.float32), np.empty(3 * len(x), np.float32)
    out = np.empty((len(y), 3 * len(x)), np.uint8)
    area(lines, left, (3 * (x - left)).astype(np.uint64), across, y, down, line, row, total, out)
    return out


@lru_cache(maxsize=256)
def neighbours(size: int, wanted: int) -> tuple[Tensor, Tensor]:
    """Of each of the wanted pixels: the first of the eight that Lanczos reads, and their weights (wanted, 8).

    The angles have float64, all else float32. A pixel nearer than 10⁻⁶ is taken alone.
    """
    at = ((np.arange(wanted) + 0.5) * (1.0 / (wanted / size)) - 0.5).astype(np.float32)
    low = np.floor(at)
    ahead = at - low + np.float32(3)
    angle = (-ahead.astype(np.float64) * math.pi * 0.25).tolist()  # numpy's own sine may end in another bit
    sine, cosine = np.array([[math.sin(a)] for a in angle]), np.array([[math.cos(a)] for a in angle])
    far = ahead[:, None] - np.arange(8, dtype=np.float32)
    here = np.abs(far) < np.float32(1e-6)
    y = np.where(here, 1.0, -far.astype(np.float64) * math.pi * 0.25)
    exact = ((_EIGHTH[:, 0] * sine + _EIGHTH[:, 1] * cosine) / (y * y)).astype(np.float32)
    exact[here] = 1e30
    share = exact * (np.float32(1) / np.cumsum(exact, axis=1)[:, -1:])
    return _kept(low.astype(np.int64) - 3), _kept(np.rint(share * np.float32(1 << BITS)).astype(np.int32))


@lru_cache(maxsize=256)
def covered(size: int, wanted: int) -> tuple[Tensor, Tensor]:
    """Of each of the wanted pixels: the first that it covers, and the shares of all from there on.

    A pixel of which no more than LEAST is covered is left out. Behind the last share there are zeros.
    """
    scale = 1.0 / (wanted / size)
    begin = np.arange(wanted) * scale
    end = begin + scale
    cell = np.minimum(scale, size - begin)
    last = np.minimum(np.floor(end), size - 1)
    inner = np.minimum(np.ceil(begin), last)
    before, behind = inner - begin > LEAST, end - last > LEAST
    first = inner - before
    place = first[:, None] + np.arange(int((last + behind - first).max()))
    shares = np.where(place < last[:, None], (1.0 / cell)[:, None], 0.0)
    shares[before, 0] = ((inner - begin) / cell)[before]
    rest = np.minimum(np.minimum(end - last, 1.0), cell) / cell
    shares[behind, (last - first)[behind].astype(np.int64)] = rest[behind]
    return _kept(first.astype(np.int64)), _kept(shares.astype(np.float32))


def _kept(table: Tensor) -> Tensor:
    """The table, which nobody can change."""
    table.flags.writeable = False
    return table
