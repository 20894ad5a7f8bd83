"""OpenCV's Lanczos and area resizes of 8-bit RGB, compiled: the tables they are given are in quick/opencv.py.

Lines are rows of pixels (h, 3w). All the memory needed is given, and nothing is allocated.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import float32, int32, uint8

from holdfast.core.native_build import kernel
from holdfast.stages.quick.opencv import BITS

_ONE, _TWO, _PIXEL = np.uint64(1), np.uint64(2), np.uint64(3)  # what has no sign is not counted from the end


@kernel
def _added(lines: Any, first: int, left: int, weights: Any, i: int, total: Any) -> None:
    """Nothing; in `total` eight lines from the first on, each from `left` on, by the i-th weights."""
    end, last = left + total.size, len(lines) - 1
    a = lines[min(max(first, 0), last), left:end]
    b = lines[min(max(first + 1, 0), last), left:end]
    c = lines[min(max(first + 2, 0), last), left:end]
    d = lines[min(max(first + 3, 0), last), left:end]
    e = lines[min(max(first + 4, 0), last), left:end]
    f = lines[min(max(first + 5, 0), last), left:end]
    g = lines[min(max(first + 6, 0), last), left:end]
    h = lines[min(max(first + 7, 0), last), left:end]
    p, q, r, s = weights[i, 0], weights[i, 1], weights[i, 2], weights[i, 3]
    t, u, v, w = weights[i, 4], weights[i, 5], weights[i, 6], weights[i, 7]
    for j in range(total.size):
        upper = p * int32(a[j]) + q * int32(b[j]) + r * int32(c[j]) + s * int32(d[j])
        lower = t * int32(e[j]) + u * int32(f[j]) + v * int32(g[j]) + w * int32(h[j])
        total[j] = upper + lower


@kernel
def _whole(total: Any, out: Any) -> None:
    """Nothing; in `out` the sums, rounded to 8 bits, halves up."""
    for j in range(out.size):
        value = int32(int32(total[j] + int32(1 << (2 * BITS - 1))) >> int32(2 * BITS))
        out[j] = uint8(min(max(value, int32(0)), int32(255)))


def lanczos(
    lines: Any,
    left: int,
    x: Any,
    across: Any,
    y: Any,
    down: Any,
    some: Any,
    turned: Any,
    total: Any,
    made: Any,
    out: Any,
) -> None:
    """Nothing; in `out` (h, 3w) the pixels whose neighbours begin at x and y, with weights across and down.

    Columns come first, then the turned rows, so that both passes add whole lines to lines, which the compiler
    does many pixels at a time. The sums are exact, so their order is free. Of a line the pixels from `left`
    on are read, as many as `turned` has lines; the first and the last go on. Room to work in: `some` for a
    few rows of sums; `turned`, `total` and `made` for more rows, turned.
    """
    rows, few = total.size // 3, len(some)
    for y0 in range(0, len(y), rows):
        height = min(len(y) - y0, rows)
        for r0 in range(0, height, few):
            for r in range(min(height - r0, few)):
                _added(lines, y[y0 + r0 + r], 3 * left, down, y0 + r0 + r, some[r])
            for j in range(len(turned)):
                for r in range(min(height - r0, few)):
                    for c in range(3):
                        turned[j, 3 * (r0 + r) + c] = some[r, 3 * j + c]
        for i in range(len(x)):
            _added(turned, x[i] - left, 0, across, i, total[: 3 * height])
            _whole(total, made[i, : 3 * height])
        for r in range(height):
            for i in range(len(x)):
                for c in range(3):
                    out[y0 + r, 3 * i + c] = made[i, 3 * r + c]


@kernel
def _along(line: Any, x: Any, shares: Any, out: Any) -> None:
    """Nothing; in `out` the pixels of a line that begin at x, summed by their shares from the left."""
    for i in range(x.size):
        at = x[i]
        red, green, blue = float32(0), float32(0), float32(0)
        for k in range(shares.shape[1]):
            by = shares[i, k]
            red += by * line[at]
            green += by * line[at + _ONE]
            blue += by * line[at + _TWO]
            at += _PIXEL
        out[3 * i], out[3 * i + 1], out[3 * i + 2] = red, green, blue


@kernel
def _even(total: Any, out: Any) -> None:
    """Nothing; in `out` the sums, rounded to 8 bits, halves to the even number."""
    for j in range(out.size):
        out[j] = uint8(int32(np.rint(min(max(total[j], float32(0)), float32(255)))))


def area(
    lines: Any, left: int, x: Any, across: Any, y: Any, down: Any, line: Any, row: Any, total: Any, out: Any
) -> None:
    """Nothing; in `out` (h, 3w) the means of the pixels that begin at x and y, with shares across and down.

    A place x counts numbers, not pixels, from the pixel `left` on. A share of zero ends the shares. Room to
    work in: `line` for what is read of a line, zeros at first; `row` and `total` for a row of the result.
    """
    size, begin, held = total.size, 3 * left, -1
    end = min(lines.shape[1], begin + line.size)
    for i in range(len(y)):
        for t in range(down.shape[1]):
            by = down[i, t]
            if by == 0:
                break
            if y[i] + t != held:
                held = y[i] + t
                seen = lines[held, begin:end]
                for j in range(seen.size):
                    line[j] = seen[j]
                _along(line, x, across, row)
            if t == 0:
                for j in range(size):
                    total[j] = by * row[j]
            else:
                for j in range(size):
                    total[j] += by * row[j]
        _even(total, out[i])
