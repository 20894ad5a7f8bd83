"""Pillow's six filters. All but nearest widen with the factor of reduction, so they are antialiased.

    out(i) = Σⱼ w(j) in(j) / Σⱼ w(j),   w(j) = f((j + ½ − c) / s),  c = (i + ½) · in/out,  s = max(in/out, 1)

in 22-bit fixed point, first along rows, then along columns, each rounded to 8 bits; since Pillow 13 the other
way round where the height shrinks much more than the width. Many pictures in one process are resized by a
compiled kernel that gives the same bits (stages/quick).
"""

from __future__ import annotations

from holdfast.core.frame import Window
from holdfast.core.registry import stage
from holdfast.core.types import Image, Size
from holdfast.stages.quick import in_part
from holdfast.stages.quick.pillow import Resampler

_PILLOW = "Pillow; torchvision on PIL images"
_QUICK = Resampler()


def _resized(image: Image, size: Size, name: str) -> Image:
    return _QUICK.cut(image, size, name, Window(0, 0, *size))


@stage("resize", paper=True, systems=f"{_PILLOW}; the default of most training code")
@in_part(_QUICK.cut, "BILINEAR")
def pillow_bilinear(image: Image, size: Size) -> Image:
    """Pillow's triangle filter, f(x) = 1 − |x| for |x| < 1, widened when shrinking."""
    return _resized(image, size, "BILINEAR")


@stage("resize", paper=True, systems=f"{_PILLOW}; OpenCV INTER_NEAREST_EXACT", alike="nearest centre")
@in_part(_QUICK.cut, "NEAREST")
def pillow_nearest(image: Image, size: Size) -> Image:
    """Pillow's nearest pixel, in(⌊(i + ½) · in/out⌋): the centres are aligned.

    The place is a sum of rounded steps: where it falls between two pixels, either may be taken.
    """
    return _resized(image, size, "NEAREST")


@stage("resize", paper=True, systems=_PILLOW)
@in_part(_QUICK.cut, "BOX")
def pillow_box(image: Image, size: Size) -> Image:
    """Pillow's mean over the covered pixels, f(x) = 1 for −½ < x ≤ ½."""
    return _resized(image, size, "BOX")


@stage("resize", paper=True, systems=_PILLOW)
@in_part(_QUICK.cut, "HAMMING")
def pillow_hamming(image: Image, size: Size) -> Image:
    """Pillow's Hamming filter, f(x) = sinc(x) · (0.54 + 0.46 cos πx) for |x| < 1, widened when shrinking."""
    return _resized(image, size, "HAMMING")


@stage("resize", paper=True, systems=f"{_PILLOW}; timm and CLIP evaluation")
@in_part(_QUICK.cut, "BICUBIC")
def pillow_bicubic(image: Image, size: Size) -> Image:
    """Pillow's cubic filter of Keys with a = −0.5, widened when shrinking."""
    return _resized(image, size, "BICUBIC")


@stage("resize", paper=True, systems=_PILLOW)
@in_part(_QUICK.cut, "LANCZOS")
def pillow_lanczos(image: Image, size: Size) -> Image:
    """Pillow's Lanczos filter, f(x) = sinc(x) · sinc(x/3) for |x| < 3, widened when shrinking."""
    return _resized(image, size, "LANCZOS")
