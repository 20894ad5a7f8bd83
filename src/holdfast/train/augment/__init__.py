"""Augmentations of training pictures: plain functions, named in a recipe, applied in the order named.

Each takes pictures (n, h, w, 3) uint8 and a random generator and hands back new pictures of the same kind;
the same generator gives the same pictures. `severity` scales the change, and 0 changes nothing.
"""

from __future__ import annotations

from typing import TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import InputError
from holdfast.core.types import Image, Tensor

Pictures: TypeAlias = NDArray[np.uint8]  # (n, height, width, 3) RGB


def check(name: str, images: Pictures, severity: float) -> None:
    """Raise InputError unless these are pictures (n, h, w, 3) uint8 and the severity is 0..1."""
    if images.ndim != 4 or images.shape[3] != 3 or images.dtype != np.uint8:
        got = f"{images.shape} {images.dtype.name}"
        raise InputError(f"augment {name!r}: expected pictures (n, h, w, 3) uint8, got {got}")
    if not 0 <= severity <= 1:
        raise InputError(f"augment {name!r}: expected a severity of 0 to 1, got {severity}")


def warp(image: Image, matrix: Tensor) -> Image:
    """The picture whose pixels come from where the matrix (2, 3) maps them to; its edge is repeated."""
    height, width = image.shape[:2]
    how = {"flags": cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP, "borderMode": cv2.BORDER_REPLICATE}
    return np.asarray(cv2.warpAffine(image, matrix, (width, height), **how))
