"""Resize functions: an RGB image (h, w, 3) to an exact size. The policy around them is the card's."""

from __future__ import annotations

import numpy as np

from holdfast.core.registry import stage
from holdfast.core.types import Image, Size


def _pillow(image: Image, size: Size, name: str) -> Image:
    from PIL import Image as Pillow

    picture = Pillow.fromarray(image)
    return np.asarray(picture.resize((size.width, size.height), getattr(Pillow.Resampling, name)))


def _opencv(image: Image, size: Size, name: str) -> Image:
    import cv2

    return np.asarray(cv2.resize(image, (size.width, size.height), interpolation=getattr(cv2, name)))


@stage("resize")
def pillow_bilinear(image: Image, size: Size) -> Image:
    """Pillow's triangle filter, widened when shrinking (antialiased)."""
    return _pillow(image, size, "BILINEAR")


@stage("resize")
def pillow_nearest(image: Image, size: Size) -> Image:
    """Pillow's nearest pixel (centres aligned)."""
    return _pillow(image, size, "NEAREST")


@stage("resize")
def pillow_box(image: Image, size: Size) -> Image:
    """Pillow's mean over the covered pixels."""
    return _pillow(image, size, "BOX")


@stage("resize")
def pillow_hamming(image: Image, size: Size) -> Image:
    """Pillow's Hamming-windowed filter."""
    return _pillow(image, size, "HAMMING")


@stage("resize")
def pillow_bicubic(image: Image, size: Size) -> Image:
    """Pillow's cubic filter with a = -0.5, antialiased."""
    return _pillow(image, size, "BICUBIC")


@stage("resize")
def pillow_lanczos(image: Image, size: Size) -> Image:
    """Pillow's Lanczos filter of radius 3, antialiased."""
    return _pillow(image, size, "LANCZOS")


@stage("resize")
def opencv_bilinear(image: Image, size: Size) -> Image:
    """OpenCV's INTER_LINEAR: four neighbours in fixed point, no antialiasing."""
    return _opencv(image, size, "INTER_LINEAR")


@stage("resize")
def opencv_nearest(image: Image, size: Size) -> Image:
    """OpenCV's INTER_NEAREST: the pixel at floor(x · scale), not the nearest centre."""
    return _opencv(image, size, "INTER_NEAREST")


@stage("resize")
def opencv_area(image: Image, size: Size) -> Image:
    """OpenCV's INTER_AREA: mean over the covered area when shrinking."""
    return _opencv(image, size, "INTER_AREA")


@stage("resize")
def opencv_bicubic(image: Image, size: Size) -> Image:
    """OpenCV's INTER_CUBIC: a = -0.75, no antialiasing."""
    return _opencv(image, size, "INTER_CUBIC")


@stage("resize")
def opencv_lanczos(image: Image, size: Size) -> Image:
    """OpenCV's INTER_LANCZOS4: 8×8 neighbours, no antialiasing."""
    return _opencv(image, size, "INTER_LANCZOS4")
