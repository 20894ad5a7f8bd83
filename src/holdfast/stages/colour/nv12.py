"""RGB to NV12 (YUV 4:2:0) and back by the paper's equations, chroma repeated or interpolated.

Each chroma sample is the mean of its 2 × 2 pixels, halves up: (a + b + c + d + 2) >> 2. It sits in their
middle. A last odd row or column is doubled before, so chroma planes are ⌈h/2⌉ × ⌈w/2⌉. NV12 stores U and V
interleaved and I420 one after the other; the values are the same.
"""

from __future__ import annotations

import numpy as np

from holdfast.core.registry import stage
from holdfast.core.types import Image
from holdfast.stages.colour.bt601 import EXACT, Plane, to_rgb, to_yuv


@stage("colour", paper=True, systems="NV12 of video decoders and cameras (Ascend DVPP, DXVA), nearest chroma")
def nv12(image: Image) -> Image:
    """The pixels after eq. 5, 2 × 2 means of U and V, each repeated over its pixels, and eq. 6."""
    y, u, v = to_yuv(image)
    return to_rgb(y, _repeated(_halved(u), y.shape), _repeated(_halved(v), y.shape), EXACT)


@stage("colour", paper=True, systems="NV12 of video decoders and cameras, bilinear chroma (GPU textures)")
def nv12_bilinear(image: Image) -> Image:
    """The pixels after eq. 5, 2 × 2 means of U and V, each interpolated bilinearly, and eq. 6.

    On either axis a pixel lies at a quarter between two samples: (9a + 3b + 3c + d + 8) >> 4.
    """
    y, u, v = to_yuv(image)
    return to_rgb(y, _interpolated(_halved(u), y.shape), _interpolated(_halved(v), y.shape), EXACT)


def _halved(plane: Plane) -> Plane:
    height, width = plane.shape
    even = np.pad(plane, ((0, height % 2), (0, width % 2)), mode="edge") if height % 2 or width % 2 else plane
    rows = even[0::2] + even[1::2]
    return np.asarray((rows[:, 0::2] + rows[:, 1::2] + 2) >> 2, np.int16)


def _repeated(small: Plane, shape: tuple[int, ...]) -> Plane:
    return small.repeat(2, axis=0).repeat(2, axis=1)[: shape[0], : shape[1]]


def _interpolated(small: Plane, shape: tuple[int, ...]) -> Plane:
    tall = _between(small)  # times 4
    wide = _between(np.ascontiguousarray(tall.T)).T  # times 16
    return np.asarray((wide[: shape[0], : shape[1]] + 8) >> 4, np.int16)


def _between(plane: Plane) -> Plane:
    """Rows at the quarters between the rows given, times 4; the outer ones lie beyond the first and last."""
    framed = np.concatenate([plane[:1], plane, plane[-1:]])
    threefold = 3 * plane
    twice = np.empty((2 * len(plane), plane.shape[1]), np.int16)
    twice[0::2] = threefold + framed[:-2]
    twice[1::2] = threefold + framed[2:]
    return twice
