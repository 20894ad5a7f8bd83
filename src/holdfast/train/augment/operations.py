"""The operations AugMix and APR chain: those of the paper that no test corruption resembles.

Levels of tone are Pillow's ImageOps to the letter. Where a picture is moved, its edge is repeated: AugMix
leaves black there, which on a small sign is the largest change of all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import cv2
import numpy as np

from holdfast.core.types import Image, Tensor

Operation: TypeAlias = Callable[[Image, float], Image]  # a strength of −1 to 1; the sign is a direction
DEGREES, SHEAR, TRANSLATION = 30.0, 0.3, 1 / 3  # at strength 1


def autocontrast(image: Image, strength: float) -> Image:
    """The picture (h, w, 3) with each channel stretched over 0..255; it has no strength."""
    low, high = image.min((0, 1)).astype(float), image.max((0, 1)).astype(float)
    wide = high > low
    scale = np.where(wide, 255.0 / np.where(wide, high - low, 1), 1.0)
    offset = np.where(wide, -low * scale, 0.0)
    table = (np.arange(256.0)[:, None] * scale + offset).clip(0, 255).astype(np.uint8)
    return _through(image, table)


def equalise(image: Image, strength: float) -> Image:
    """The picture (h, w, 3) with each channel's levels used alike; it has no strength."""
    table = np.empty((256, 3), np.uint8)
    for channel in range(3):
        counts = np.bincount(image[..., channel].reshape(-1), minlength=256)
        present = counts[counts > 0]
        step = (present.sum() - present[-1]) // 255
        if len(present) <= 1 or step == 0:
            table[:, channel] = np.arange(256)
        else:
            below = np.concatenate(([0], counts.cumsum()[:-1])) + step // 2
            table[:, channel] = np.minimum(below // step, 255)
    return _through(image, table)


def posterise(image: Image, strength: float) -> Image:
    """The picture with 4 bits a channel, down to none at full strength."""
    bits = 4 - int(abs(strength) * 4)
    return np.asarray(image & np.uint8(0xFF & ~(2 ** (8 - bits) - 1)))


def solarise(image: Image, strength: float) -> Image:
    """The picture with its brightest levels inverted; all of them at full strength."""
    threshold = 256 - int(abs(strength) * 256)
    return np.where(image < threshold, image, 255 - image)


def rotate(image: Image, strength: float) -> Image:
    """The picture turned about its middle by up to 30 degrees."""
    height, width = image.shape[:2]
    middle = ((width - 1) / 2, (height - 1) / 2)
    return _moved(image, cv2.getRotationMatrix2D(middle, strength * DEGREES, 1.0))


def shear_x(image: Image, strength: float) -> Image:
    """The picture with its rows shifted by up to 0.3 of their distance from the top."""
    return _moved(image, np.array([[1.0, strength * SHEAR, 0], [0, 1, 0]]))


def shear_y(image: Image, strength: float) -> Image:
    """The picture with its columns shifted by up to 0.3 of their distance from the left."""
    return _moved(image, np.array([[1.0, 0, 0], [strength * SHEAR, 1, 0]]))


def translate_x(image: Image, strength: float) -> Image:
    """The picture shifted sideways by up to a third of its width."""
    return _moved(image, np.array([[1.0, 0, int(strength * image.shape[1] * TRANSLATION)], [0, 1, 0]]))


def translate_y(image: Image, strength: float) -> Image:
    """The picture shifted up or down by up to a third of its height."""
    return _moved(image, np.array([[1.0, 0, 0], [0, 1, int(strength * image.shape[0] * TRANSLATION)]]))


OPERATIONS: Final[tuple[Operation, ...]] = (
    autocontrast,
    equalise,
    posterise,
    rotate,
    solarise,
    shear_x,
    shear_y,
    translate_x,
    translate_y,
)


def strengths(rng: np.random.Generator, shape: tuple[int, ...], most: float) -> Tensor:
    """Strengths drawn from 0.01 (or `most`, if less) to `most`, each in one of both directions."""
    return np.asarray(rng.uniform(min(0.01, most), most, shape) * rng.choice((-1.0, 1.0), shape))


def _through(image: Image, table: Image) -> Image:
    made: Image = cv2.LUT(image, table.reshape(1, 256, 3))
    return made


def _moved(image: Image, matrix: Tensor) -> Image:
    height, width = image.shape[:2]
    made: Image = cv2.warpAffine(
        image,
        matrix,
        (width, height),
        flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
        borderMode=cv2.BORDER_REPLICATE,
    )
    return made
