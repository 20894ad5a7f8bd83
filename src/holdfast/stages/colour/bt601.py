"""The paper's equations between RGB and YUV (BT.601, studio range), exactly, in integers.

    eq. 5   Y = round( 0.256788 R + 0.504129 G + 0.097906 B) + 16
            U = round(−0.148223 R − 0.290993 G + 0.439216 B) + 128
            V = round( 0.439216 R − 0.367788 G − 0.071427 B) + 128

    eq. 6   R = clip(round(1.164383 C + 1.596027 E))                      C = Y − 16
            G = clip(round(1.164383 C − 0.391762 D − 0.812968 E))         D = U − 128
            B = clip(round(1.164383 C + 2.017232 D))                      E = V − 128

    eq. 7   R = clip((298 C + 409 E + 128) >> 8)
            G = clip((298 C − 100 D − 208 E + 128) >> 8)
            B = clip((298 C + 516 D + 128) >> 8)

The coefficients have six decimals, so a million times the sum is an integer below 2³¹ and nothing is lost;
round takes halves up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from holdfast.core.types import Image

Plane: TypeAlias = NDArray[np.int16]

MILLION = 1_000_000
_CACHED = 16_384  # pixels
FORWARD = (
    ((256_788, 504_129, 97_906), 16),
    ((-148_223, -290_993, 439_216), 128),
    ((439_216, -367_788, -71_427), 128),
)


@dataclass(frozen=True)
class Inverse:
    """A way back to RGB: floor((luma · C + red, green, blue · (D, E) + half) / unit), clipped."""

    unit: int
    luma: int
    red: tuple[int, int]
    green: tuple[int, int]
    blue: tuple[int, int]


EXACT = Inverse(MILLION, 1_164_383, (0, 1_596_027), (-391_762, -812_968), (2_017_232, 0))  # eq. 6
FIXED = Inverse(256, 298, (0, 409), (-100, -208), (516, 0))  # eq. 7


def to_yuv(image: Image) -> tuple[Plane, Plane, Plane]:
    """The planes Y, U, V (h, w) of RGB pixels (h, w, 3) by eq. 5."""
    y, u, v = (np.empty(image.shape[:2], np.int16) for _ in range(3))
    for rows in _strips(image.shape[0], image.shape[1]):
        red, green, blue = (image[rows, :, k].astype(np.int32) for k in range(3))
        for plane, ((of_red, of_green, of_blue), offset) in zip((y, u, v), FORWARD, strict=True):
            total = red * of_red
            total += green * of_green
            total += blue * of_blue
            total += MILLION // 2 + offset * MILLION
            total //= MILLION
            plane[rows] = total
    return y, u, v


def to_rgb(y: Plane, u: Plane, v: Plane, inverse: Inverse) -> Image:
    """The RGB pixels (h, w, 3) of full-size planes (h, w), each 0 … 255, by eq. 6 or eq. 7."""
    image = np.empty((*y.shape, 3), np.uint8)
    for rows in _strips(y.shape[0], y.shape[1]):
        grey = y[rows].astype(np.int32)
        grey -= 16
        grey *= inverse.luma
        grey += inverse.unit // 2
        d, e = u[rows].astype(np.int32) - 128, v[rows].astype(np.int32) - 128
        for channel, (of_d, of_e) in enumerate((inverse.red, inverse.green, inverse.blue)):
            total = grey + d * of_d if of_d else grey.copy()
            if of_e:
                total += e * of_e
            total //= inverse.unit
            image[rows, :, channel] = np.clip(total, 0, 255, out=total)
    return image


def _strips(height: int, width: int) -> Iterator[slice]:
    """Slices of rows small enough that what is computed from them stays in the processor's cache."""
    step = max(1, _CACHED // width)
    return (slice(at, at + step) for at in range(0, height, step))
