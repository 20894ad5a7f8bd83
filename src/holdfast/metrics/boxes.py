"""Boxes: areas, overlaps and the two ways of writing them down."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from holdfast.core.errors import InputError
from holdfast.core.types import Bools, Floats


def as_boxes(boxes: ArrayLike, name: str = "boxes") -> Floats:
    """The boxes as a (n, 4) float64 array; an empty list becomes (0, 4)."""
    array = np.asarray(boxes, dtype=np.float64)
    if array.size == 0:
        return array.reshape(0, 4)
    if array.ndim != 2 or array.shape[1] != 4:
        raise InputError(f"{name}: expected an array of shape (n, 4), got {array.shape}")
    return array


def xywh_to_xyxy(boxes: ArrayLike) -> Floats:
    """Corners (x1, y1, x2, y2) of boxes given as corner and size (x, y, w, h)."""
    xywh = as_boxes(boxes)
    return np.concatenate([xywh[:, :2], xywh[:, :2] + xywh[:, 2:]], axis=1)


def xyxy_to_xywh(boxes: ArrayLike) -> Floats:
    """Corner and size (x, y, w, h) of boxes given as corners (x1, y1, x2, y2)."""
    xyxy = as_boxes(boxes)
    return np.concatenate([xyxy[:, :2], xyxy[:, 2:] - xyxy[:, :2]], axis=1)


def area(boxes: ArrayLike, *, plus_one: bool = False) -> Floats:
    """Area of each xyxy box, (n,); with `plus_one` the last pixel counts: (x2 − x1 + 1)(y2 − y1 + 1)."""
    xyxy = as_boxes(boxes)
    size = np.maximum(xyxy[:, 2:] - xyxy[:, :2] + float(plus_one), 0.0)
    return size[:, 0] * size[:, 1]


def iou(a: ArrayLike, b: ArrayLike, *, crowd: ArrayLike | None = None, plus_one: bool = False) -> Floats:
    """Overlap of every xyxy box of `a` (n) with every one of `b` (m), (n, m): |a ∩ b| / |a ∪ b|.

    `crowd` (m) marks boxes of `b` that stand for a whole region: there the ratio is |a ∩ b| / |a|.
    Boxes that do not meet, and empty boxes, have overlap 0.
    """
    first, second = as_boxes(a, "a"), as_boxes(b, "b")
    low = np.maximum(first[:, None, :2], second[None, :, :2])
    high = np.minimum(first[:, None, 2:], second[None, :, 2:])
    size = np.maximum(high - low + float(plus_one), 0.0)
    inner = size[..., 0] * size[..., 1]
    area_a, area_b = area(first, plus_one=plus_one)[:, None], area(second, plus_one=plus_one)[None, :]
    union = area_a + area_b - inner
    if crowd is not None:
        union = np.where(np.asarray(crowd, dtype=bool)[None, :], area_a, union)
    return _quotient(inner, union)


def pair_iou(a: Floats, b: Floats, crowd: Bools | None = None, *, plus_one: bool = False) -> Floats:
    """Overlap of row i of `a` with row i of `b`, (n,), both **xywh**.

    Same ratio as `iou`, but from corner and size in the order of operations of COCO's C code,
    so that an overlap that lies exactly on a threshold falls on the same side.
    """
    extra = float(plus_one)
    width = np.minimum(a[:, 0] + a[:, 2], b[:, 0] + b[:, 2]) - np.maximum(a[:, 0], b[:, 0]) + extra
    height = np.minimum(a[:, 1] + a[:, 3], b[:, 1] + b[:, 3]) - np.maximum(a[:, 1], b[:, 1]) + extra
    inner = np.maximum(width, 0.0) * np.maximum(height, 0.0)
    area_a = (a[:, 2] + extra) * (a[:, 3] + extra)
    union = area_a + (b[:, 2] + extra) * (b[:, 3] + extra) - inner
    if crowd is not None:
        union = np.where(crowd, area_a, union)
    return _quotient(inner, union)


def _quotient(inner: Floats, union: Floats) -> Floats:
    """The ratio, 0 where the boxes do not meet."""
    out: Floats = np.zeros_like(inner)
    np.divide(inner, union, out=out, where=inner > 0.0)
    return out
