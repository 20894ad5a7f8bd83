"""OpenCV's five interpolations. None is antialiased but `area`: far pixels are skipped when shrinking.

A pixel i of the result lies at x = (i + ½) · in/out − ½ of the source.
"""

from __future__ import annotations

import numpy as np

from holdfast.core.registry import stage
from holdfast.core.types import Image, Size

_OPENCV = "OpenCV resize: mmdetection, YOLOX, Ultralytics, most C++ deployments"


def _resized(image: Image, size: Size, name: str) -> Image:
    import cv2

    return np.asarray(cv2.resize(image, (size.width, size.height), interpolation=getattr(cv2, name)))


@stage("resize", paper=True, systems=_OPENCV)
def opencv_bilinear(image: Image, size: Size) -> Image:
    """OpenCV's INTER_LINEAR: eq. 3 on the four neighbours, in fixed point."""
    return _resized(image, size, "INTER_LINEAR")


@stage("resize", paper=True, systems=_OPENCV)
def opencv_nearest(image: Image, size: Size) -> Image:
    """OpenCV's INTER_NEAREST: in(⌊i · in/out⌋), which is not the nearest centre."""
    return _resized(image, size, "INTER_NEAREST")


@stage("resize", paper=True, systems=_OPENCV)
def opencv_area(image: Image, size: Size) -> Image:
    """OpenCV's INTER_AREA: the mean over the covered area when shrinking, bilinear otherwise."""
    return _resized(image, size, "INTER_AREA")


@stage("resize", paper=True, systems=_OPENCV)
def opencv_bicubic(image: Image, size: Size) -> Image:
    """OpenCV's INTER_CUBIC: eq. 4 by the cubic kernel of Keys with a = −0.75 on 4 × 4 neighbours."""
    return _resized(image, size, "INTER_CUBIC")


@stage("resize", paper=True, systems=_OPENCV)
def opencv_lanczos(image: Image, size: Size) -> Image:
    """OpenCV's INTER_LANCZOS4: 8 × 8 neighbours."""
    return _resized(image, size, "INTER_LANCZOS4")
