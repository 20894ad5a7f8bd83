"""Anchor boxes over feature maps, and boxes from anchors and deltas (SysNoise, appendix A)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from holdfast.core.types import Floats, Tensor
from holdfast.graph.candidates import bounded_exp

LARGEST = math.log(1000.0 / 16.0)  # the equations' limit of dw and dh


def base_anchors(
    size: float,
    ratios: Sequence[float],
    scales: Sequence[float],
    major: Literal["ratios", "scales"],
    whole: bool,
) -> Floats:
    """Anchors (A, 4) xyxy around the origin; a ratio is height over width; `whole` rounds their corners."""
    root = np.sqrt(np.asarray(ratios, np.float64))
    reach = size * np.asarray(scales, np.float64)
    widths, heights = reach[None, :] / root[:, None], reach[None, :] * root[:, None]
    if major == "scales":
        widths, heights = widths.T, heights.T
    half = 0.5 * np.stack([-widths.ravel(), -heights.ravel(), widths.ravel(), heights.ravel()], axis=1)
    return np.round(half) if whole else half


def spread(base: Floats, rows: int, columns: int, stride: float, centre: float) -> Floats:
    """Anchors (rows·columns·A, 4) at every cell, row by row; cell x has its centre at (x + centre)·stride."""
    y, x = np.divmod(np.arange(rows * columns), columns)
    shift = (np.stack([x, y, x, y], axis=1) + centre) * stride
    return (shift[:, None, :] + base[None, :, :]).reshape(-1, 4)


def apply_deltas(
    anchors: Floats,
    deltas: Floats,
    means: Sequence[float],
    stds: Sequence[float],
    offset: float,
    *,
    weights: Sequence[float] = (1.0, 1.0, 1.0, 1.0),
    exp: Callable[[Tensor], Floats] = bounded_exp,
) -> Floats:
    """Boxes (n, 4) from anchors and deltas (n, 4); `offset` is the equations' ALIGNED_FLAG.offset.

    `weights` divide what `stds` and `means` have scaled; `exp` is given deltas that are clamped already.
    """
    deltas = deltas * np.asarray(stds, np.float64) + np.asarray(means, np.float64)
    deltas = deltas / np.asarray(weights, np.float64)
    sides = anchors[:, 2:] - anchors[:, :2]
    centres = anchors[:, :2] + 0.5 * sides
    centres = deltas[:, :2] * sides + centres
    sides = exp(np.minimum(deltas[:, 2:], LARGEST)) * sides
    return np.concatenate([centres - 0.5 * sides, centres + 0.5 * sides - offset], axis=1)
