"""Pillow's resampling of 8-bit RGB, compiled: the equations are in stages/resize/pillow.py.

Whole lines are added to lines, which the compiler does many pixels at a time; along rows the picture is
turned before. Weights have 22 bits and sums start at one half, as Pillow's do.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from holdfast.core.native_build import kernel
from holdfast.stages.quick.resample import BICUBIC, BILINEAR, BOX, HAMMING, LANCZOS

BITS = 22
_HAMMING, _REST = float(np.float32(0.54)), float(np.float32(0.46))  # Pillow has them in float32


@kernel
def _sinc(x: float) -> float:
    if x == 0.0:
        return 1.0
    x = x * math.pi
    return math.sin(x) / x


@kernel
def _weight(kind: int, x: float) -> float:
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


def taps(size: int, kind: int, support: float, first: Any, made: Any, exact: Any) -> None:
    """Nothing; of each of the wanted pixels the first it reads (wanted,), and the weights from there on.

    `made` (wanted, most) is of zeros; `exact` (most,) is room to work in.
    """
    wanted = len(first)
    scale = size / wanted
    wide = max(scale, 1.0)
    for i in range(wanted):
        centre = (i + 0.5) * scale
        low = max(0, int(centre - support + 0.5))
        high = min(size, int(centre + support + 0.5))
        total = 0.0
        for j in range(high - low):
            exact[j] = _weight(kind, (j + low - centre + 0.5) * (1.0 / wide))
            total += exact[j]
        first[i] = low
        for j in range(high - low):
            share = (exact[j] / total if total != 0.0 else exact[j]) * (1 << BITS)
            made[i, j] = int(share - 0.5) if share < 0.0 else int(share + 0.5)


@kernel
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


def down(lines: Any, first: Any, weights: Any, total: Any, out: Any) -> None:
    """Nothing; in `out` the lines resized along their columns; `total` is room for one."""
    for y in range(len(weights)):
        _summed(lines, first[y], weights[y], total, out[y])


def picked(lines: Any, x: Any, y: Any, out: Any) -> None:
    """Nothing; in `out` (h, 3w) the pixels at columns x and rows y of lines of pixels."""
    for i in range(len(y)):
        line, row = lines[y[i]], out[i]
        for j in range(len(x)):
            for c in range(3):
                row[3 * j + c] = line[3 * x[j] + c]
