"""Pillow's six filters. All but nearest widen with the factor of reduction, so they are antialiased.

    out(i) = Σⱼ w(j) in(j) / Σⱼ w(j),   w(j) = f((j + ½ − c) / s),  c = (i + ½) · in/out,  s = max(in/out, 1)

in 22-bit fixed point, first along rows, then along columns, each rounded to 8 bits; since Pillow 13 the other
way round where the height shrinks much more than the width.
"""

from __future__ import annotations

import numpy as np

from holdfast.core.registry import stage
from holdfast.core.types import Image, Size

_PILLOW = "Pillow; torchvision on PIL images"


def _resized(image: Image, size: Size, name: str) -> Image:
    from PIL import Image as Pillow

    picture = Pillow.fromarray(image)
    return np.asarray(picture.resize((size.width, size.height), getattr(Pillow.Resampling, name)))


@stage("resize", paper=True, systems=f"{_PILLOW}; the default of most training code")
def pillow_bilinear(image: Image, size: Size) -> Image:
    """Pillow's triangle filter, f(x) = 1 − |x| for |x| < 1, widened when shrinking."""
    return _resized(image, size, "BILINEAR")


@stage("resize", paper=True, systems=f"{_PILLOW}; OpenCV INTER_NEAREST_EXACT", alike="nearest centre")
def pillow_nearest(image: Image, size: Size) -> Image:
    """Pillow's nearest pixel, in(⌊(i + ½) · in/out⌋): the centres are aligned.

    The place is a sum of rounded steps: where it falls between two pixels, either may be taken.
    """
    return _resized(image, size, "NEAREST")


@stage("resize", paper=True, systems=_PILLOW)
def pillow_box(image: Image, size: Size) -> Image:
    """Pillow's mean over the covered pixels, f(x) = 1 for −½ < x ≤ ½."""
    return _resized(image, size, "BOX")


@stage("resize", paper=True, systems=_PILLOW)
def pillow_hamming(image: Image, size: Size) -> Image:
    """Pillow's Hamming filter, f(x) = sinc(x) · (0.54 + 0.46 cos πx) for |x| < 1, widened when shrinking."""
    return _resized(image, size, "HAMMING")


@stage("resize", paper=True, systems=f"{_PILLOW}; timm and CLIP evaluation")
def pillow_bicubic(image: Image, size: Size) -> Image:
    """Pillow's cubic filter of Keys with a = −0.5, widened when shrinking."""
    return _resized(image, size, "BICUBIC")


@stage("resize", paper=True, systems=_PILLOW)
def pillow_lanczos(image: Image, size: Size) -> Image:
    """Pillow's Lanczos filter, f(x) = sinc(x) · sinc(x/3) for |x| < 3, widened when shrinking."""
    return _resized(image, size, "LANCZOS")
