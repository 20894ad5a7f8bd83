"""Pillow's resampling of 8-bit RGB, compiled: the equations are in stages/resize/pillow.py.

The pass along rows works on the turned picture, so that both passes add whole lines to lines, which the
compiler does many pixels at a time. Weights have 22 bits and sums start at one half, as Pillow's do.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import float64, int32, int64, types, uint8, void

from holdfast.core.frame import Window
from holdfast.core.types import Image, Size
from holdfast.stages.quick.compiled import kernel

BITS = 22
BILINEAR, BOX, HAMMING, BICUBIC, LANCZOS = range(5)
FILTERS = {"BILINEAR": BILINEAR, "BOX": BOX, "HAMMING": HAMMING, "BICUBIC": BICUBIC, "LANCZOS": LANCZOS}
_HAMMING, _REST = float(np.float32(0.54)), float(np.float32(0.46))  # Pillow has them in float32
_TURNED = 16  # rows turned at a time: few enough that all they touch stays near
_SEEN = types.Array(uint8, 3, "C", readonly=True)
_LINES = types.Array(uint8, 2, "C", readonly=True)
_MADE, _FIRST, _WEIGHTS = uint8[:, :, ::1], int64[::1], int32[:, ::1]


@kernel(float64(float64))
def _sinc(x: float) -> float:
    if x == 0.0:
        return 1.0
    x = x * math.pi
    return math.sin(x) / x


@kernel(float64(int64, float64))
def weight(kind: int, x: float) -> float:
    """The filter's value at x."""
    x = abs(x) if kind != BOX and kind != LANCZOS else x
    if kind == BILINEAR:
        return 1.0 - x if x < 1.0 else 0.0
    if kind == BOX:
        return 1.0 if -0.5 < x <= 0.5 else 0.0
    if kind == HAMMING:
        if x == 0.0:
            return 1.0
        if x >= 1.0:
            return 0.0
        x = x * math.pi
        return math.sin(x) / x * (_HAMMING + _REST * math.cos(x))
    if kind == BICUBIC:
        a = -0.5
        if x < 1.0:
            return ((a + 2.0) * x - (a + 3.0)) * x * x + 1
        if x < 2.0:
            return (((x - 5) * x + 8) * x - 4) * a
        return 0.0
    if -3.0 <= x < 3.0:
        return _sinc(x) * _sinc(x / 3)
    return 0.0


@kernel(types.Tuple((_FIRST, _WEIGHTS))(int64, int64, int64))
def taps(size: int, wanted: int, kind: int) -> tuple[Any, Any]:
    """Of each of the wanted pixels: the first it reads (wanted,), and the weights from there on."""
    reach = 1.0
    if kind == BOX:
        reach = 0.5
    elif kind == BICUBIC:
        reach = 2.0
    elif kind == LANCZOS:
        reach = 3.0
    scale = size / wanted
    wide = max(scale, 1.0)
    support = reach * wide
    most = math.ceil(support) * 2 + 1
    first = np.zeros(wanted, np.int64)
    made = np.zeros((wanted, most), np.int32)
    exact = np.zeros(most, np.float64)
    for i in range(wanted):
        centre = (i + 0.5) * scale
        low = max(0, int(centre - support + 0.5))
        high = min(size, int(centre + support + 0.5))
        total = 0.0
        for j in range(high - low):
            exact[j] = weight(kind, (j + low - centre + 0.5) * (1.0 / wide))
            total += exact[j]
        first[i] = low
        for j in range(high - low):
            share = (exact[j] / total if total != 0.0 else exact[j]) * (1 << BITS)
            made[i, j] = int(share - 0.5) if share < 0.0 else int(share + 0.5)
    return first, made


@kernel(void(_LINES, int64, int32[::1], int32[::1], uint8[::1]))
def _summed(lines: Any, first: int, weights: Any, total: Any, out: Any) -> None:
    """Nothing; in `out` the weighted sum of lines from the first on, rounded and cut to 8 bits."""
    for j in range(total.size):
        total[j] = 1 << (BITS - 1)
    for t in range(weights.size):
        by = weights[t]
        if by != 0:
            line = lines[first + t]
            for j in range(total.size):
                total[j] += by * np.int32(line[j])
    for j in range(total.size):
        out[j] = min(max(total[j] >> BITS, 0), 255)


@kernel(_MADE(_SEEN, _FIRST, _WEIGHTS, int64, int64))
def across(image: Any, first: Any, weights: Any, start: int, end: int) -> Any:
    """Rows start to end of the picture, resized along themselves."""
    wanted, most = weights.shape
    rows, left = end - start, first[0]
    width = min(image.shape[1], first[wanted - 1] + most) - left
    turned = np.empty((width, 3 * rows), np.uint8)
    for r0 in range(0, rows, _TURNED):
        r1 = min(rows, r0 + _TURNED)
        for x in range(width):
            for r in range(r0, r1):
                for c in range(3):
                    turned[x, 3 * r + c] = image[start + r, left + x, c]
    total = np.empty(3 * rows, np.int32)
    out = np.empty((rows, wanted, 3), np.uint8)
    lines = np.empty((8, 3 * rows), np.uint8)
    for x0 in range(0, wanted, 8):
        x1 = min(wanted, x0 + 8)
        for x in range(x0, x1):
            _summed(turned, first[x] - left, weights[x], total, lines[x - x0])
        for r in range(rows):
            for x in range(x0, x1):
                for c in range(3):
                    out[r, x, c] = lines[x - x0, 3 * r + c]
    return out


@kernel(_MADE(_SEEN, _FIRST, _WEIGHTS))
def down(image: Any, first: Any, weights: Any) -> Any:
    """The picture resized along its columns."""
    wanted = len(weights)
    width = image.shape[1]
    lines = image.reshape(image.shape[0], 3 * width)
    total = np.empty(3 * width, np.int32)
    out = np.empty((wanted, 3 * width), np.uint8)
    for y in range(wanted):
        _summed(lines, first[y], weights[y], total, out[y])
    return out.reshape(wanted, width, 3)


def resized(image: Image, size: Size, name: str, window: Window, columns_first: bool = False) -> Image:
    """A part of the picture (h, w, 3) in another size by Pillow's filter of that name."""
    kind, given = FILTERS[name], np.ascontiguousarray(image)
    left, top, width, height = window
    x, shares = (part[left : left + width] for part in taps(given.shape[1], size.width, kind))
    y, weights = (part[top : top + height] for part in taps(given.shape[0], size.height, kind))
    if columns_first:
        whole = down(given, y, weights)
        return across(whole, x, shares, 0, height)  # type: ignore[no-any-return]
    start, end = int(y[0]), min(given.shape[0], int(y[-1]) + weights.shape[1])
    return down(across(given, x, shares, start, end), y - start, weights)  # type: ignore[no-any-return]
