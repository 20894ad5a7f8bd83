"""OpenCV's five interpolations. None is antialiased but `area`: far pixels are skipped when shrinking.

A pixel i of the result lies at x = (i + ½) · in/out − ½ of the source. For many pictures in one process area
and Lanczos are done by compiled kernels that give the same bits (stages/quick).
"""

from __future__ import annotations

from holdfast.core.frame import Window
from holdfast.core.registry import stage
from holdfast.core.types import Image, Size
from holdfast.stages.quick import in_part
from holdfast.stages.quick.opencv import AREA, LANCZOS, Resampler, plain

_OPENCV = "OpenCV resize: mmdetection, YOLOX, Ultralytics, most C++ deployments"
_QUICK = Resampler()


def _resized(image: Image, size: Size, name: str) -> Image:
    return _QUICK.cut(image, size, name, Window(0, 0, *size))


@stage("resize", paper=True, systems=_OPENCV)
def opencv_bilinear(image: Image, size: Size) -> Image:
    """OpenCV's INTER_LINEAR: eq. 3 on the four neighbours, in fixed point."""
    return plain(image, size, "INTER_LINEAR")


@stage("resize", paper=True, systems=_OPENCV)
def opencv_nearest(image: Image, size: Size) -> Image:
    """OpenCV's INTER_NEAREST: in(⌊i · in/out⌋), which is not the nearest centre."""
    return plain(image, size, "INTER_NEAREST")


@stage("resize", paper=True, systems=_OPENCV)
@in_part(_QUICK.cut, AREA)
def opencv_area(image: Image, size: Size) -> Image:
    """OpenCV's INTER_AREA: the mean over the covered area when shrinking, bilinear otherwise."""
    return _resized(image, size, AREA)


@stage("resize", paper=True, systems=_OPENCV)
def opencv_bicubic(image: Image, size: Size) -> Image:
    """OpenCV's INTER_CUBIC: eq. 4 by the cubic kernel of Keys with a = −0.75 on 4 × 4 neighbours."""
    return plain(image, size, "INTER_CUBIC")


@stage("resize", paper=True, systems=_OPENCV)
@in_part(_QUICK.cut, LANCZOS)
def opencv_lanczos(image: Image, size: Size) -> Image:
    """OpenCV's INTER_LANCZOS4: 8 × 8 neighbours."""
    return _resized(image, size, LANCZOS)
