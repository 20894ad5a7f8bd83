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

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from holdfast.core.types import Image

Plane: TypeAlias = NDArray[np.int32]

_MILLION = 1_000_000
_FORWARD = (
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


EXACT = Inverse(_MILLION, 1_164_383, (0, 1_596_027), (-391_762, -812_968), (2_017_232, 0))  # eq. 6
FIXED = Inverse(256, 298, (0, 409), (-100, -208), (516, 0))  # eq. 7


def to_yuv(image: Image) -> tuple[Plane, Plane, Plane]:
    """The planes Y, U, V (h, w) of RGB pixels (h, w, 3) by eq. 5."""
    red, green, blue = (np.ascontiguousarray(image[:, :, k], np.int32) for k in range(3))
    y, u, v = (_rounded(red, green, blue, row, offset) for row, offset in _FORWARD)
    return y, u, v


def to_rgb(y: Plane, u: Plane, v: Plane, inverse: Inverse) -> Image:
    """The RGB pixels (h, w, 3) of full-size planes (h, w) by eq. 6 or eq. 7."""
    grey = (y - 16) * inverse.luma
    grey += inverse.unit // 2
    d, e = u - 128, v - 128
    image = np.empty((*y.shape, 3), np.uint8)
    for channel, (of_d, of_e) in enumerate((inverse.red, inverse.green, inverse.blue)):
        total = grey.copy()
        if of_d:
            total += d * of_d
        if of_e:
            total += e * of_e
        total //= inverse.unit
        image[:, :, channel] = np.clip(total, 0, 255, out=total)
    return image


def _rounded(red: Plane, green: Plane, blue: Plane, row: tuple[int, int, int], offset: int) -> Plane:
    total = red * row[0]
    total += green * row[1]
    total += blue * row[2]
    total += _MILLION // 2 + offset * _MILLION
    total //= _MILLION
    return total
