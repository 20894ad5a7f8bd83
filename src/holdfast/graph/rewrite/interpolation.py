"""Resizing along one axis as a matrix: which old cells make a new one, by each convention."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from holdfast.core.types import Floats, Ints


@dataclass(frozen=True)
class Convention:
    """How a runtime resizes: by what, and where the centre of a new cell lies among the old ones.

    `mode` is nearest or linear; `place` is ONNX's coordinate_transformation_mode, `rounding` its
    nearest_mode.
    """

    mode: str
    place: str
    rounding: str = "round_prefer_floor"


def centres(cells: int, wanted: int, scale: float, place: str) -> Floats | None:
    """Where each of `wanted` new cells lies among `cells` old ones, in cells; None for another convention.

    half_pixel: (x + ½)/s − ½ · asymmetric: x/s · align_corners: x·(W − 1)/(W′ − 1)
    """
    at = np.arange(wanted, dtype=np.float64)
    if place == "asymmetric":
        return np.asarray(at / scale)
    if place == "align_corners":
        return np.asarray(at * (cells - 1) / (wanted - 1) if wanted > 1 else 0.0 * at)
    if place == "pytorch_half_pixel" and wanted == 1:
        return 0.0 * at
    if place in ("half_pixel", "pytorch_half_pixel"):
        return np.asarray((at + 0.5) / scale - 0.5)
    if place == "half_pixel_symmetric":
        whole = scale * cells
        return np.asarray(cells / 2 * (1 - wanted / whole) + (at + 0.5) / scale - 0.5)
    return None


def weights(cells: int, wanted: int, scale: float, how: Convention) -> Floats | None:
    """The matrix (wanted, cells) that resizes an axis; None for a convention this does not know."""
    at = centres(cells, wanted, scale, how.place)
    if at is None or how.mode not in ("nearest", "linear"):
        return None
    rows = np.arange(wanted)
    matrix = np.zeros((wanted, cells))
    if how.mode == "nearest":
        matrix[rows, np.clip(_rounded(at, how.rounding), 0, cells - 1)] = 1.0
        return matrix
    at = np.clip(at, 0.0, cells - 1.0)
    first = np.minimum(np.floor(at).astype(np.int64), cells - 1)
    share = at - first
    np.add.at(matrix, (rows, first), 1.0 - share)
    np.add.at(matrix, (rows, np.minimum(first + 1, cells - 1)), share)
    return matrix


def _rounded(at: Floats, rounding: str) -> Ints:
    at = np.round(at, 6)  # 2.9999999 is 3: quotients of whole numbers are not exact
    if rounding in ("floor", "ceil"):
        return (np.floor(at) if rounding == "floor" else np.ceil(at)).astype(np.int64)
    up = rounding == "round_prefer_ceil"
    return (np.floor(at + 0.5) if up else np.ceil(at - 0.5)).astype(np.int64)
