"""FFmpeg's decoder: its own IDCT, then libswscale from YUV to RGB."""

from __future__ import annotations

import numpy as np

from holdfast.core.registry import stage
from holdfast.core.types import Image
from holdfast.stages.colour import converted
from holdfast.stages.decode.libjpeg import by


@stage(
    "decode",
    paper=True,
    systems="FFmpeg and all that read pictures or video with it: PyAV, decord, torchcodec, GStreamer libav",
    alike="FFmpeg, swscale's default flags",
)
def ffmpeg(data: bytes) -> Image:
    """RGB pixels of a JPEG by FFmpeg (PyAV) with swscale's quick conversion; other formats by Pillow.

    FFmpeg's IDCT gives planes Y, U, V in full range. Where 4:2:0 has an even height swscale repeats each
    chroma sample over its 2×2 pixels; elsewhere it interpolates.
    """
    return by(lambda data: _converted(data, "BILINEAR"), "FFmpeg", data)


@stage(
    "decode",
    systems="FFmpeg with -sws_flags bicubic+accurate_rnd+full_chroma_int+full_chroma_inp",
    alike="FFmpeg, swscale's accurate flags",
    default=False,
)
def ffmpeg_accurate(data: bytes) -> Image:
    """RGB pixels of a JPEG by FFmpeg (PyAV), chroma interpolated and rounded; other formats by Pillow."""
    flags = ("BICUBIC", "ACCURATE_RND", "FULL_CHR_H_INT", "FULL_CHR_H_INP")
    return by(lambda data: _converted(data, *flags), "FFmpeg", data)


def _converted(data: bytes, *names: str) -> Image:
    import av
    from av.video.reformatter import Interpolation

    flags = sum(int(Interpolation[name]) for name in names)
    context = av.CodecContext.create("mjpeg", "r")
    context.thread_count = 1  # a single picture; several threads would only delay it
    frames = context.decode(av.Packet(data)) or context.decode(None)
    return np.asarray(converted(frames[0], "rgb24", flags).to_ndarray())
