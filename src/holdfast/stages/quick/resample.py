"""Pillow's resampling of 8-bit RGB by compiled kernels: the equations are in stages/resize/pillow.py."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from holdfast.core.frame import Window
from holdfast.core.types import Image, Size, Tensor
from holdfast.stages.quick.library import KERNELS

BILINEAR, BOX, HAMMING, BICUBIC, LANCZOS = range(5)
FILTERS = {"BILINEAR": BILINEAR, "BOX": BOX, "HAMMING": HAMMING, "BICUBIC": BICUBIC, "LANCZOS": LANCZOS}
NEAREST = "NEAREST"
NAMES = (*FILTERS, NEAREST)
_REACH = {BILINEAR: 1.0, BOX: 0.5, HAMMING: 1.0, BICUBIC: 2.0, LANCZOS: 3.0}


def resized(image: Image, size: Size, name: str, window: Window, columns_first: bool = False) -> Image:
    """A part of the picture (h, w, 3) in another size by Pillow's filter of that name.

    Along rows the picture is turned before and after, so that both passes add whole lines to lines.
    """
    if name == NEAREST:
        return _nearest(image, size, window)
    kind = FILTERS[name]
    left, top, width, height = window
    x, shares = (part[left : left + width] for part in taps(image.shape[1], size.width, kind))
    y, weights = (part[top : top + height] for part in taps(image.shape[0], size.height, kind))
    begin, start = int(x[0]), int(y[0])
    seen = image[start : int(y[-1]) + weights.shape[1], begin : int(x[-1]) + shares.shape[1]]
    if columns_first:
        return _turned(_down(_turned(_down(seen, y - start, weights)), x - begin, shares))
    return _down(_turned(_down(_turned(seen), x - begin, shares)), y - start, weights)


def _nearest(image: Image, size: Size, window: Window) -> Image:
    rows, width, _ = image.shape
    x = places(width, size.width)[window.left : window.left + window.width]
    y = places(rows, size.height)[window.top : window.top + window.height]
    out = np.empty((len(y), 3 * len(x)), np.uint8)
    KERNELS.entry("picked")(np.ascontiguousarray(image).reshape(rows, 3 * width), x, y, out)
    return out.reshape(len(y), len(x), 3)


@lru_cache(maxsize=256)
def places(size: int, wanted: int) -> Tensor:
    """The nearest pixel to each of the wanted ones; Pillow adds up its steps, and their rounding too."""
    steps = np.full(wanted, size / wanted)
    steps[:1] *= 0.5
    return np.add.accumulate(steps).astype(np.int64)


@lru_cache(maxsize=256)
def taps(size: int, wanted: int, kind: int) -> tuple[Tensor, Tensor]:
    """Of each of the wanted pixels: the first it reads (wanted,), and the weights from there on."""
    support = _REACH[kind] * max(size / wanted, 1.0)
    most = math.ceil(support) * 2 + 1
    first, made = np.zeros(wanted, np.int64), np.zeros((wanted, most), np.int32)
    KERNELS.entry("taps")(size, kind, support, first, made, np.zeros(most))
    for table in (first, made):
        table.flags.writeable = False
    return first, made


def _down(image: Image, first: Tensor, weights: Tensor) -> Image:
    """The picture resized along its columns."""
    rows, width, _ = image.shape
    out = np.empty((len(weights), 3 * width), np.uint8)
    lines = np.ascontiguousarray(image).reshape(rows, 3 * width)
    KERNELS.entry("down")(lines, first, weights, np.empty(3 * width, np.int32), out)
    return out.reshape(len(weights), width, 3)


def _turned(image: Image) -> Image:
    import cv2

    return np.asarray(cv2.transpose(image))
