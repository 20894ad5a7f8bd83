"""Decoders: encoded bytes to RGB pixels as stored (an EXIF rotation is not applied)."""

from __future__ import annotations

import io

import numpy as np

from holdfast.core.errors import ImageError
from holdfast.core.registry import stage
from holdfast.core.types import Image
from holdfast.data.images import MAX_PIXELS


@stage("decode", uses="Pillow (libjpeg-turbo, accurate integer IDCT, fancy upsampling)")
def pillow(data: bytes) -> Image:
    """RGB pixels by Pillow; 16-bit grey is divided by 257, CMYK and palettes are converted, alpha dropped."""
    from PIL import Image as Pillow
    from PIL import UnidentifiedImageError

    if not data:
        raise ImageError("expected an image, got 0 bytes")
    try:
        with Pillow.open(io.BytesIO(data)) as picture:
            if picture.width * picture.height > MAX_PIXELS:
                raise ImageError(
                    f"{picture.width}×{picture.height} pixels are over the limit of {MAX_PIXELS:,}"
                )
            if picture.mode.startswith("I"):
                grey = (np.asarray(picture, np.float64) / 257.0).round().clip(0, 255).astype(np.uint8)
                return np.repeat(grey[:, :, np.newaxis], 3, axis=2)
            return np.asarray(picture.convert("RGB"))
    except UnidentifiedImageError:
        raise ImageError("expected a JPEG, PNG or other image, got bytes of no known format") from None
    except (OSError, SyntaxError, ValueError, Pillow.DecompressionBombError) as problem:
        raise ImageError(f"cannot be decoded by Pillow: {problem}") from problem


@stage("decode", uses="OpenCV (libjpeg-turbo, accurate integer IDCT, fancy upsampling)")
def opencv(data: bytes) -> Image:
    """RGB pixels by OpenCV's imdecode, orientation ignored."""
    import cv2

    if not data:
        raise ImageError("expected an image, got 0 bytes")
    if data[:2] == b"\xff\xd8" and b"\xff\xd9" not in data[-65536:]:
        raise ImageError("JPEG is truncated (no end marker); OpenCV would fill the rest with grey")
    flags = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION
    try:
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    except cv2.error as problem:
        raise ImageError(f"cannot be decoded by OpenCV: {str(problem).strip().splitlines()[0]}") from problem
    if pixels is None:
        raise ImageError("cannot be decoded by OpenCV: not an image, or damaged")
    return np.ascontiguousarray(pixels[:, :, ::-1])
