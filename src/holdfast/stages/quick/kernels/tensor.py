"""The normalisation of stages/normalise.py: a multiplication and a subtraction in float32, not fused."""

from __future__ import annotations

from typing import Any

from numba import float32


def planes(image: Any, bgr: int, gain: Any, shift: Any, out: Any) -> None:
    """Nothing; in `out` (3, h, w) the channels of pixels (h, w, 3), each times its gain, less its shift."""
    for channel in range(3):
        by, less, at = gain[channel], shift[channel], 2 - channel if bgr else channel
        for i in range(len(image)):
            line, row = image[i], out[channel, i]
            for j in range(len(row)):
                row[j] = float32(line[j, at]) * by - less
