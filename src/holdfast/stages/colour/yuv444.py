"""RGB to YUV 4:4:4 and back by the paper's equations."""

from __future__ import annotations

from holdfast.core.registry import stage
from holdfast.core.types import Image
from holdfast.stages.colour.bt601 import EXACT, FIXED, to_rgb, to_yuv


@stage("colour", paper=True, systems="8-bit YUV hand-over without subsampling, rounded conversion")
def yuv444(image: Image) -> Image:
    """The pixels after RGB → YUV by eq. 5 and YUV → RGB by eq. 6."""
    return to_rgb(*to_yuv(image), EXACT)


@stage("colour", paper=True, systems="8-bit YUV hand-over without subsampling, 8-bit fixed-point conversion")
def yuv444_fixed(image: Image) -> Image:
    """The pixels after RGB → YUV by eq. 5 and YUV → RGB in fixed point by eq. 7."""
    return to_rgb(*to_yuv(image), FIXED)
