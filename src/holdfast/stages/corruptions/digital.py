"""Digital artefacts: contrast, elastic transform, pixelation and JPEG compression."""

import io
from functools import lru_cache

import numpy as np

from holdfast.core.types import Image, Size
from holdfast.stages.corruptions.patterns import Plane, smoothing
from holdfast.stages.corruptions.severity import corruption, to_levels

SIDE = 244  # of the published parameters, which are not those of 224 pixels


@corruption(0.4, 0.3, 0.2, 0.1, 0.05)
def contrast(image: Image, random: np.random.Generator, kept: float) -> Image:
    """(x − mean)·c + mean, by channel."""
    levels = np.arange(256)[:, None]
    means = image.reshape(-1, 3).mean(axis=0)
    curves = to_levels((levels - means) * kept + means)
    return np.stack([curves[image[..., channel], channel] for channel in range(3)], axis=2)


@corruption(
    (SIDE * 2, SIDE * 0.7, SIDE * 0.1),
    (SIDE * 2, SIDE * 0.08, SIDE * 0.2),
    (SIDE * 0.05, SIDE * 0.01, SIDE * 0.02),
    (SIDE * 0.07, SIDE * 0.01, SIDE * 0.02),
    (SIDE * 0.12, SIDE * 0.01, SIDE * 0.02),
    needs="cv2",
)
def elastic_transform(
    image: Image, random: np.random.Generator, shift: float, deviation: float, corner: float
) -> Image:
    """A random affine map of three corners, then a smooth random shift of every pixel.

    True boxes and masks are not moved with it, as in the published benchmarks.
    """
    import cv2

    height, width = image.shape[:2]
    centre, half = np.array([height, width], np.float32) // 2, min(height, width) // 3
    before = np.array([centre + half, [centre[0] + half, centre[1] - half], centre - half], np.float32)
    after = before + random.uniform(-corner, corner, before.shape).astype(np.float32)
    bent = image.astype(np.float32)
    if half:
        matrix = cv2.getAffineTransform(before, after)
        bent = cv2.warpAffine(bent, matrix, (width, height), borderMode=cv2.BORDER_REFLECT_101)
    y, x = np.mgrid[:height, :width].astype(np.float32)
    across = x + np.float32(shift) * _field(height, width, deviation, random)
    down = y + np.float32(shift) * _field(height, width, deviation, random)
    linear, mirror = cv2.INTER_LINEAR, cv2.BORDER_REFLECT
    return to_levels(cv2.remap(bent, across, down, linear, borderMode=mirror))


def _field(height: int, width: int, deviation: float, random: np.random.Generator) -> Plane:
    """Uniform numbers from −1 to 1 smoothed by a Gaussian, (h, w)."""
    noise = random.random((height, width), np.float32) * 2 - 1
    rows, columns = _smoothing(height, deviation), _smoothing(width, deviation)
    return np.asarray(rows @ noise @ columns.T, np.float32)


@lru_cache(maxsize=8)
def _smoothing(length: int, deviation: float) -> Plane:
    return smoothing(length, deviation).astype(np.float32)


@corruption(0.6, 0.5, 0.4, 0.3, 0.25)
def pixelate(image: Image, random: np.random.Generator, scale: float) -> Image:
    """The image reduced to a share of its sides and enlarged again, both by Pillow's box filter."""
    from holdfast.stages.resize.libraries import pillow_box

    height, width = image.shape[:2]
    small = Size(max(1, int(width * scale)), max(1, int(height * scale)))
    return np.ascontiguousarray(pillow_box(pillow_box(image, small), Size(width, height)))


@corruption(25, 18, 15, 10, 7)
def jpeg_compression(image: Image, random: np.random.Generator, quality: int) -> Image:
    """The image compressed as a JPEG of that quality (Pillow's default subsampling) and decoded."""
    from PIL import Image as Pillow

    stream = io.BytesIO()
    Pillow.fromarray(image).save(stream, "JPEG", quality=quality)
    return np.ascontiguousarray(Pillow.open(stream).convert("RGB"))
