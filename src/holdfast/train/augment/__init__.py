"""Augmentations of training pictures: plain functions, named in a recipe, applied in the order named.

Each takes pictures (n, h, w, 3) uint8 and a random generator and hands back new pictures of the same kind;
the same generator gives the same pictures. `severity` scales the change, and 0 changes nothing.
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
SHIFT = 0.08  # of the side, each way
ZOOM = 0.1
GAIN, TINT, OFFSET = 0.12, 0.04, 8.0  # deviations: of all channels, of each, and in levels


def check(name: str, images: Pictures, severity: float) -> None:
    """Raise InputError unless these are pictures (n, h, w, 3) uint8 and the severity is 0..1."""
    if images.ndim != 4 or images.shape[3] != 3 or images.dtype != np.uint8:
        got = f"{images.shape} {images.dtype.name}"
        raise InputError(f"augment {name!r}: expected images (n, h, w, 3) uint8, got {got}")
    if not 0 <= severity <= 1:
        raise InputError(f"augment {name!r}: expected a severity of 0 to 1, got {severity}")


def warp(image: Image, matrix: Tensor) -> Image:
    """The picture whose pixels come from where the matrix (2, 3) maps them to; its edge is repeated."""
    height, width = image.shape[:2]
    how = {"flags": cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP, "borderMode": cv2.BORDER_REPLICATE}
    return np.asarray(cv2.warpAffine(image, matrix, (width, height), **how))


@stage("augment")
def standard(images: Pictures, rng: np.random.Generator, severity: float = 1.0) -> Pictures:
    """Pictures (n, h, w, 3) shifted, zoomed and lit anew, each by its own draw; never mirrored.

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
    made = np.empty_like(images)
    for place in range(n):
        scale = zoom[place]
        middle = np.array([width - 1, height - 1]) / 2 * (1 - scale)
        to_source = np.array([[scale, 0, middle[0]], [0, scale, middle[1]]])
        to_source[:, 2] += shift[place]
        made[place] = cv2.LUT(warp(images[place], to_source), light[place])
    return made
