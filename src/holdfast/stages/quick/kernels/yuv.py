"""Eq. 5 and eq. 6 of stages/colour/bt601.py and the NV12 of stages/colour/nv12.py, row by row.

Factors are constants, so that nothing is divided. Sums are brought above zero before they are cut to whole
units: then cutting is rounding down. Channels are parted first: what follows runs along whole rows.
"""

from __future__ import annotations

from typing import Any

from numba import int32, uint32

from holdfast.core.native_build import kernel
from holdfast.stages.colour.bt601 import EXACT, FORWARD, MILLION

((_YR, _YG, _YB), _Y0), ((_UR, _UG, _UB), _U0), ((_VR, _VG, _VB), _V0) = FORWARD
_LUMA, (_, _RE), (_GD, _GE), (_BD, _) = EXACT.luma, EXACT.red, EXACT.green, EXACT.blue
_HALF = MILLION // 2
_UP = 700  # units below which no sum of eq. 6 gets


@kernel
def _unit(total: Any) -> Any:
    return uint32(int32(total)) // uint32(MILLION)


@kernel
def _parted(line: Any, parts: Any) -> None:
    """Nothing; in `parts` (3, w) the channels of a line (w, 3)."""
    red, green, blue = parts[0], parts[1], parts[2]
    for j in range(len(line)):
        red[j] = line[j, 0]
        green[j] = line[j, 1]
        blue[j] = line[j, 2]


@kernel
def _luma(parts: Any, out: Any) -> None:
    red, green, blue = parts[0], parts[1], parts[2]
    for j in range(len(out)):
        out[j] = _unit(_YR * red[j] + _YG * green[j] + _YB * blue[j] + _Y0 * MILLION + _HALF)


@kernel
def _chroma(parts: Any, u: Any, v: Any) -> None:
    red, green, blue = parts[0], parts[1], parts[2]
    for j in range(len(u)):
        u[j] = _unit(_UR * red[j] + _UG * green[j] + _UB * blue[j] + _U0 * MILLION + _HALF)
    for j in range(len(v)):
        v[j] = _unit(_VR * red[j] + _VG * green[j] + _VB * blue[j] + _V0 * MILLION + _HALF)


@kernel
def _back(y: Any, u: Any, v: Any, parts: Any, out: Any) -> None:
    """Nothing; in `out` (w, 3) the pixels of a line, made in `parts` (3, w) first."""
    red, green, blue = parts[0], parts[1], parts[2]
    for j in range(len(y)):
        grey = int32(_LUMA * int32(y[j] - 16) + _HALF + _UP * MILLION)
        d, e = int32(u[j] - 128), int32(v[j] - 128)
        red[j] = min(max(int32(_unit(grey + _RE * e)) - _UP, 0), 255)
        green[j] = min(max(int32(_unit(grey + _GD * d + _GE * e)) - _UP, 0), 255)
        blue[j] = min(max(int32(_unit(grey + _BD * d)) - _UP, 0), 255)
    for j in range(len(y)):
        out[j, 0] = red[j]
        out[j, 1] = green[j]
        out[j, 2] = blue[j]


def planes(image: Any, parts: Any, y: Any, u: Any, v: Any) -> None:
    """Nothing; in y, u, v (h, w) the planes of RGB pixels (h, w, 3); `parts` (3, w) is room to work in."""
    for i in range(len(image)):
        _parted(image[i], parts)
        _luma(parts, y[i])
        _chroma(parts, u[i], v[i])


def pixels(y: Any, u: Any, v: Any, parts: Any, out: Any) -> None:
    """Nothing; in `out` (h, w, 3) the RGB pixels of planes (h, w); `parts` (3, w) is room to work in."""
    for i in range(len(y)):
        _back(y[i], u[i], v[i], parts, out[i])


@kernel
def _halved(one: Any, other: Any, small: Any) -> None:
    """Nothing; in `small` the means of 2 × 2 samples of two lines; a last odd column counts twice."""
    whole = len(one) // 2
    for k in range(whole):
        small[k] = (one[2 * k] + one[2 * k + 1] + other[2 * k] + other[2 * k + 1] + 2) >> 2
    if whole < len(small):
        small[whole] = (2 * one[2 * whole] + 2 * other[2 * whole] + 2) >> 2


@kernel
def _repeated(small: Any, line: Any) -> None:
    for k in range(len(line) // 2):
        line[2 * k] = small[k]
        line[2 * k + 1] = small[k]
    line[len(line) - 1] = small[len(small) - 1]


@kernel
def _between(near: Any, far: Any, tall: Any, line: Any) -> None:
    """Nothing; in `line` the samples a quarter off `near` towards `far`, and a quarter off to either side."""
    last = len(near) - 1
    for k in range(last + 1):
        tall[k] = 3 * near[k] + far[k]
    line[0] = (4 * tall[0] + 8) >> 4
    for k in range(last):
        line[2 * k + 1] = (3 * tall[k] + tall[k + 1] + 8) >> 4
        line[2 * k + 2] = (3 * tall[k + 1] + tall[k] + 8) >> 4
    if 2 * last + 1 < len(line):
        line[2 * last + 1] = (4 * tall[last] + 8) >> 4


def nv12(
    image: Any, bilinear: int, parts: Any, y: Any, u: Any, v: Any, lines: Any, tall: Any, out: Any
) -> None:
    """Nothing; in `out` the pixels (h, w, 3) after NV12 and back.

    Chroma is interpolated if `bilinear`, else repeated.
    Room to work in: parts (3, w); y (h, w); u and v (⌈h/2⌉, ⌈w/2⌉); lines (4, w); tall (⌈w/2⌉,).
    """
    height, last = len(image), len(u) - 1
    for k in range(last + 1):
        for side in range(2):
            i = min(2 * k + side, height - 1)
            _parted(image[i], parts)
            _luma(parts, y[i])
            _chroma(parts, lines[side], lines[2 + side])
        _halved(lines[0], lines[1], u[k])
        _halved(lines[2], lines[3], v[k])
    for i in range(height):
        k = i // 2
        if bilinear:
            far = min(k + 1, last) if i % 2 else max(k - 1, 0)
            _between(u[k], u[far], tall, lines[0])
            _between(v[k], v[far], tall, lines[1])
        elif i % 2 == 0:
            _repeated(u[k], lines[0])
            _repeated(v[k], lines[1])
        _back(y[i], lines[0], lines[1], parts, out[i])
