"""The reference decoder."""

from __future__ import annotations

import io

import numpy as np

from holdfast.core.errors import ImageError, one_line
from holdfast.core.registry import stage
from holdfast.core.types import Image
from holdfast.data.images import MAX_PIXELS, sniff_head


@stage(
    "decode",
    paper=True,
    systems="Pillow; torchvision and timm on PIL images, Hugging Face image processors, Keras load_img",
    alike="libjpeg-turbo",
)
def pillow(data: bytes) -> Image:
    """RGB pixels by Pillow: libjpeg-turbo with the accurate integer IDCT and fancy upsampling.

    16-bit grey is divided by 257, CMYK and palettes are converted, transparency is dropped.
    """
    from PIL import Image as Pillow
    from PIL import UnidentifiedImageError

    if not data:
        raise ImageError("expected an image, got 0 bytes")
    sniff_head(data)  # refuses a JPEG or PNG that is too large before Pillow warns of it
    try:
        with Pillow.open(io.BytesIO(data)) as picture:
            width, height = picture.size
            if width * height > MAX_PIXELS:
                raise ImageError(f"{width}×{height} pixels are over the limit of {MAX_PIXELS:,}")
            if picture.mode.startswith("I"):
                grey = (np.asarray(picture, np.float64) / 257.0).round().clip(0, 255).astype(np.uint8)
                return np.repeat(grey[:, :, np.newaxis], 3, axis=2)
            return np.asarray(picture if picture.mode == "RGB" else picture.convert("RGB"))
    except UnidentifiedImageError:
        raise ImageError("expected a JPEG, PNG or other image, got bytes of no known format") from None
    except (Pillow.DecompressionBombError, Pillow.DecompressionBombWarning) as problem:
        raise ImageError(f"over the limit of {MAX_PIXELS:,} pixels: {problem}") from None
    except (OSError, SyntaxError, ValueError) as problem:
        raise ImageError(f"cannot be decoded by Pillow: {one_line(problem)}") from problem
