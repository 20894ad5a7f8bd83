"""libswscale's scalers on RGB pixels, widened when shrinking, in 14-bit fixed point."""

from __future__ import annotations

import numpy as np

from holdfast.core.errors import ImageError
from holdfast.core.registry import stage
from holdfast.core.types import Image, Size
from holdfast.stages.frames import converted

_SWSCALE = "FFmpeg scale filter, PyAV reformat, decord, GStreamer videoscale by libav"


def _resized(image: Image, size: Size, name: str) -> Image:
    import av
    from av.video.reformatter import Interpolation

    frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(image), format="rgb24")
    flags = int(Interpolation[name])
    try:
        small = converted(frame, "rgb24", flags, size.width, size.height)
    except (av.error.FFmpegError, ValueError, OSError) as problem:
        raise ImageError(
            f"swscale cannot turn {image.shape[1]}×{image.shape[0]} into {size.width}×{size.height} pixels; "
            "it refuses to shrink or stretch a side too far"
        ) from problem
    return np.ascontiguousarray(small.to_ndarray())


@stage("resize", systems=_SWSCALE)
def swscale_bilinear(image: Image, size: Size) -> Image:
    """Pixels by SWS_BILINEAR: the triangle filter, widened when shrinking."""
    return _resized(image, size, "BILINEAR")


@stage("resize", systems=f"{_SWSCALE} (the default of the ffmpeg program)")
def swscale_bicubic(image: Image, size: Size) -> Image:
    """Pixels by SWS_BICUBIC: the cubic filter with B = 0, C = 0.6, widened when shrinking."""
    return _resized(image, size, "BICUBIC")
