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
    return by(_quick, "FFmpeg", data)


@stage(
    "decode",
    systems="FFmpeg with -sws_flags bicubic+accurate_rnd+full_chroma_int+full_chroma_inp",
    alike="FFmpeg, swscale's accurate flags",
    default=False,
)
def ffmpeg_accurate(data: bytes) -> Image:
    """RGB pixels of a JPEG by FFmpeg (PyAV), chroma interpolated and rounded; other formats by Pillow."""
    return by(_accurate, "FFmpeg", data)


def _quick(data: bytes) -> Image:
    from av.video.reformatter import Interpolation

    return _converted(data, int(Interpolation.BILINEAR))


def _accurate(data: bytes) -> Image:
    from av.video.reformatter import Interpolation as Flag

    full = Flag.FULL_CHR_H_INT | Flag.FULL_CHR_H_INP
    return _converted(data, int(Flag.BICUBIC | Flag.ACCURATE_RND | full))


def _converted(data: bytes, flags: int) -> Image:
    import av

    context = av.CodecContext.create("mjpeg", "r")
    context.thread_count = 1  # a single picture; several threads would only delay it
    frames = context.decode(av.Packet(data)) or context.decode(None)
    return np.asarray(converted(frames[0], "rgb24", flags).to_ndarray())
