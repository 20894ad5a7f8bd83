"""Quantisation and de-quantisation as pure functions: equations (9) and (10) of the SysNoise paper.

    X̄ = clip(⌊X / s⌉ + z, N_min, N_max)      (9)
    X̂ = s · (X̄ − z)                          (10)

⌊·⌉ rounds to the nearest integer, halves to the even one, as ONNX's QuantizeLinear does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

LOW, HIGH = -128, 127  # N_min, N_max of signed 8-bit integers
SMALLEST = 2.0**-126  # the least normal float32: a scale must not be 0
Floats: TypeAlias = NDArray[np.floating[Any]]
Integers: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True)
class Grid:
    """The scale s and the zero point z of a tensor: the real numbers that an 8-bit integer can stand for."""

    scale: float
    zero: int

    @property
    def ends(self) -> tuple[float, float]:
        """The smallest and the greatest real number on the grid."""
        return self.scale * (LOW - self.zero), self.scale * (HIGH - self.zero)


def quantise(
    x: Floats, scale: float | Floats, zero: int | Integers = 0, low: int = LOW, high: int = HIGH
) -> Integers:
    """The integers X̄ of equation (9); scale and zero may be arrays that broadcast (one a channel)."""
    return np.asarray(np.clip(np.rint(x / scale).astype(np.int64) + zero, low, high))


def dequantise(integers: Integers, scale: float | Floats, zero: int | Integers = 0) -> Floats:
    """The real numbers X̂ of equation (10), in the precision of the scale."""
    return np.asarray(scale * (integers - zero))


def grid_over(low: float, high: float) -> Grid:
    """The grid that covers [low, high], widened to hold 0 exactly: padding and ReLU must stay exact."""
    low, high = min(float(low), 0.0), max(float(high), 0.0)
    # float32, as the model stores it: the zero point must fit the scale that is used
    scale = float(np.float32(max((high - low) / (HIGH - LOW), SMALLEST)))
    zero = int(np.clip(np.rint(LOW - low / scale), LOW, HIGH))
    return Grid(scale, zero)


def symmetric_grid(largest: float) -> Grid:
    """The grid of zero point 0 that covers ±largest, as TensorRT has it for activations."""
    return Grid(float(np.float32(max(float(largest) / HIGH, SMALLEST))), 0)


def symmetric_scale(largest: Floats) -> NDArray[np.float32]:
    """The scales of weights up to ±largest: z = 0 and integers −127…127, so that no sign is favoured."""
    return np.maximum(np.asarray(largest, np.float64) / HIGH, 1e-12).astype(np.float32)
