"""Decoders of other libraries: OpenCV, FFmpeg, and as extras TensorFlow, NVIDIA DALI and zune-jpeg."""

import os
import threading
from typing import Any

import numpy as np

from holdfast.core.errors import ImageError
from holdfast.core.registry import stage
from holdfast.core.types import Image
from holdfast.stages.colour import converted
from holdfast.stages.decode.libjpeg import by, is_jpeg, pillow


@stage(
    "decode",
    paper=True,
    systems="OpenCV imread; mmdetection, YOLOX, Ultralytics, most C++ deployments",
    alike="libjpeg-turbo",
    needs="cv2",
)
def opencv(data: bytes) -> Image:
    """RGB pixels by OpenCV's imdecode, orientation ignored; of 16 bits it takes the upper 8.

    Formats other than JPEG are also read by OpenCV, after a check by Pillow.
    """
    if is_jpeg(data):
        return by(_imdecode, "OpenCV", data)
    pillow(data)  # OpenCV writes warnings about damaged data to standard error
    return _imdecode(data)


def _imdecode(data: bytes) -> Image:
    import cv2

    flags = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION
    try:
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    except cv2.error as problem:
        raise ImageError(f"cannot be decoded by OpenCV: {str(problem).strip().splitlines()[0]}") from problem
    if pixels is None:
        raise ImageError("cannot be decoded by OpenCV: a format that this build does not support")
    return np.asarray(cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB))


@stage(
    "decode",
    paper=True,
    systems="FFmpeg and everything built on it: PyAV, decord, torchcodec, GStreamer libav",
    alike="FFmpeg, swscale's default flags",
    needs="av",
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
    needs="av",
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


@stage("decode", systems="TensorFlow, tf.data, TFX", alike="libjpeg-turbo, IFAST", needs="tensorflow")
def tensorflow(data: bytes) -> Image:
    """RGB pixels of a JPEG by tf.io.decode_jpeg with its defaults; CMYK and other formats by Pillow.

    Its default dct_method is INTEGER_FAST and upsampling is fancy: `fast-idct` does the same without it.
    """
    # Suppress its message about the build at every start; oneDNN does not decode pictures.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    import tensorflow as tf

    def decoded(data: bytes) -> Image:
        with tf.device("/CPU:0"):
            return np.asarray(tf.io.decode_jpeg(data, channels=3).numpy())

    return by(decoded, "TensorFlow", data, cmyk=False)


_BUILT = threading.local()  # building a DALI pipeline costs far more than a decode, and it is not shareable


@stage(
    "decode",
    paper=True,
    systems="NVIDIA DALI, CPU backend (its GPU backend is nvJPEG)",
    alike="libjpeg-turbo",
    needs="nvidia.dali",
)
def dali(data: bytes) -> Image:
    """RGB pixels of a JPEG by DALI's decoders.image on the CPU; CMYK and other formats by Pillow."""
    pipeline = _pipeline()

    def decoded(data: bytes) -> Image:
        pipeline.feed_input("encoded", [np.frombuffer(data, np.uint8)])
        (pictures,) = pipeline.run()
        return np.array(pictures.at(0))

    return by(decoded, "DALI", data, cmyk=False)


def _pipeline() -> Any:
    """The DALI pipeline of this thread: one image, encoded bytes in, RGB out, orientation as stored."""
    from nvidia.dali import fn, types
    from nvidia.dali.pipeline import Pipeline

    if not hasattr(_BUILT, "pipeline"):
        pipeline = Pipeline(1, 1, device_id=None, prefetch_queue_depth=1)
        with pipeline:
            encoded = fn.external_source(name="encoded", dtype=types.UINT8, ndim=1)
            pixels = fn.decoders.image(encoded, device="cpu", output_type=types.RGB, adjust_orientation=False)
            pipeline.set_outputs(pixels)
        pipeline.build()
        _BUILT.pipeline = pipeline
    return _BUILT.pipeline


@stage("decode", systems="zune-jpeg: kornia-rs, Rust's image crate", alike="zune-jpeg", needs="kornia_rs")
def zune(data: bytes) -> Image:
    """RGB pixels of a JPEG by zune-jpeg (kornia-rs); CMYK and other formats by Pillow.

    kornia-rs hands over one or three channels only, so CMYK has no path through it.
    """
    import kornia_rs

    def decoded(data: bytes) -> Image:
        return np.asarray(kornia_rs.io.decode_image_jpeg(data))

    return by(decoded, "zune-jpeg", data, cmyk=False)
