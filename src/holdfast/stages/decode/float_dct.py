"""libjpeg-turbo with the inverse DCT in floating point."""

from __future__ import annotations

from holdfast.core.registry import stage
from holdfast.core.types import Image
from holdfast.stages.decode.ijg import by_jpeglib


@stage(
    "decode",
    systems="libjpeg with JDCT_FLOAT (djpeg -dct float)",
    alike="libjpeg-turbo, FLOAT",
    needs="jpeglib",
    extra="decoders",
)
def float_dct(data: bytes) -> Image:
    """RGB pixels of a JPEG with libjpeg-turbo's floating-point IDCT; CMYK and other formats by Pillow."""
    return by_jpeglib(data, "turbo210", "JDCT_FLOAT")
