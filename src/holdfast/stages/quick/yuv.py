"""Eq. 5 and eq. 6 of stages/colour/bt601.py, compiled for constant factors, so that nothing is divided.

Sums are brought above zero before they are cut to whole units: then cutting is rounding down.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import int16, int32, types, uint8, uint32

from holdfast.stages.colour.bt601 import EXACT, FORWARD, MILLION
from holdfast.stages.quick.compiled import kernel

_IMAGE = types.Array(uint8, 3, "C", readonly=True)
_PLANE = types.Array(int16, 2, "C", readonly=True)
((_YR, _YG, _YB), _Y0), ((_UR, _UG, _UB), _U0), ((_VR, _VG, _VB), _V0) = FORWARD
_LUMA, (_, _RE), (_GD, _GE), (_BD, _) = EXACT.luma, EXACT.red, EXACT.green, EXACT.blue
_UP = 700  # units below which no sum of eq. 6 gets


@kernel(types.UniTuple(int16[:, ::1], 3)(_IMAGE))
def planes(image: Any) -> tuple[Any, Any, Any]:
    """The planes Y, U, V (h, w) of RGB pixels (h, w, 3)."""
    height, width, _ = image.shape
    y = np.empty((height, width), np.int16)
    u = np.empty((height, width), np.int16)
    v = np.empty((height, width), np.int16)
    for i in range(height):
        for j in range(width):
            r, g, b = int32(image[i, j, 0]), int32(image[i, j, 1]), int32(image[i, j, 2])
            for_y = int32(_YR * r + _YG * g + _YB * b + _Y0 * MILLION + MILLION // 2)
            for_u = int32(_UR * r + _UG * g + _UB * b + _U0 * MILLION + MILLION // 2)
            for_v = int32(_VR * r + _VG * g + _VB * b + _V0 * MILLION + MILLION // 2)
            y[i, j] = uint32(for_y) // uint32(MILLION)
            u[i, j] = uint32(for_u) // uint32(MILLION)
            v[i, j] = uint32(for_v) // uint32(MILLION)
    return y, u, v


@kernel(uint8[:, :, ::1](_PLANE, _PLANE, _PLANE))
def pixels(y: Any, u: Any, v: Any) -> Any:
    """The RGB pixels (h, w, 3) of planes (h, w)."""
    height, width = y.shape
    image = np.empty((height, width, 3), np.uint8)
    for i in range(height):
        for j in range(width):
            grey = int32(_LUMA * int32(y[i, j] - 16) + MILLION // 2 + _UP * MILLION)
            d, e = int32(u[i, j] - 128), int32(v[i, j] - 128)
            red = int32(uint32(grey + _RE * e) // uint32(MILLION)) - _UP
            green = int32(uint32(grey + _GD * d + _GE * e) // uint32(MILLION)) - _UP
            blue = int32(uint32(grey + _BD * d) // uint32(MILLION)) - _UP
            image[i, j, 0] = min(max(red, 0), 255)
            image[i, j, 1] = min(max(green, 0), 255)
            image[i, j, 2] = min(max(blue, 0), 255)
    return image
