"""libjpeg-turbo that repeats chroma samples instead of interpolating them."""

from __future__ import annotations

from holdfast.core.registry import stage
from holdfast.core.types import Image
from holdfast.stages.decode.jpeg import by_simplejpeg, tells_soundness


@stage(
    "decode",
    systems="TurboJPEG with FASTUPSAMPLE, libjpeg with do_fancy_upsampling off; nvJPEG's default",
    alike="libjpeg-turbo, no fancy upsampling",
)
@tells_soundness
def no_fancy_upsampling(data: bytes) -> Image:
    """RGB pixels of a JPEG with each chroma sample repeated over its pixels; other formats by Pillow.

    Equal to `pillow` on 4:4:4 and grey. The default weighs the two nearest samples 3/4 and 1/4 on each axis.
    """
    return by_simplejpeg(data, fastupsample=True)
