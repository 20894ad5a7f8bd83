"""Augmentations of training images: functions, named in a recipe and applied in this order.

Each takes images (n, h, w, 3) uint8 and a random generator and returns new images of the same shape. Equal
generators give equal images. `severity` scales the change; 0 changes nothing.
"""

from typing import TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import InputError
from holdfast.core.registry import stage
from holdfast.core.types import Image, Tensor

Pictures: TypeAlias = NDArray[np.uint8]  # (n, height, width, 3) RGB
# Of the standard augmentation:
SHIFT = 0.08  # share of the side, in each direction
ZOOM = 0.1
GAIN, TINT, OFFSET = 0.12, 0.04, 8.0  # standard deviations: of all channels, of each channel, and in levels


def check(name: str, images: Pictures, severity: float) -> None:
    """Raise InputError unless these are pictures (n, h, w, 3) uint8 and the severity is 0..1."""
    if images.ndim != 4 or images.shape[3] != 3 or images.dtype != np.uint8:
        got = f"{images.shape} {images.dtype.name}"
        raise InputError(f"augment {name!r}: expected images (n, h, w, 3) uint8, got {got}")
    if not 0 <= severity <= 1:
        raise InputError(f"augment {name!r}: expected a severity of 0 to 1, got {severity}")


def warp(image: Image, matrix: Tensor) -> Image:
    """The image warped by the inverse map (2, 3); the border is replicated."""
    height, width = image.shape[:2]
    settings = {"flags": cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP, "borderMode": cv2.BORDER_REPLICATE}
    return np.asarray(cv2.warpAffine(image, matrix, (width, height), **settings))


@stage("augment")
def standard(images: Pictures, rng: np.random.Generator, severity: float = 1.0) -> Pictures:
    """Images (n, h, w, 3) with random shift, zoom and brightness, drawn per image; never mirrored.

    A mirrored sign is another sign.
    """
    check("standard", images, severity)
    if severity == 0:
        return images.copy()
    n, height, width = images.shape[:3]
    shift = rng.uniform(-SHIFT, SHIFT, (n, 2)) * (width, height) * severity
    zoom = np.exp(rng.uniform(-ZOOM, ZOOM, n) * severity)
    gain = np.exp((rng.normal(0, GAIN, (n, 1, 1, 1)) + rng.normal(0, TINT, (n, 1, 1, 3))) * severity)
    offset = rng.normal(0, OFFSET, (n, 1, 1, 1)) * severity
    levels = np.arange(256.0).reshape(1, 1, 256, 1)
    light = np.rint(np.clip(levels * gain + offset, 0, 255)).astype(np.uint8)  # tables (n, 1, 256, 3)
    augmented = np.empty_like(images)
    for index in range(n):
        scale = zoom[index]
        centre = np.array([width - 1, height - 1]) / 2 * (1 - scale)
        to_source = np.array([[scale, 0, centre[0]], [0, scale, centre[1]]])
        to_source[:, 2] += shift[index]
        augmented[index] = cv2.LUT(warp(images[index], to_source), light[index])
    return augmented
