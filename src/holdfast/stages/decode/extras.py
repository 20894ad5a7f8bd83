"""Decoders of libraries that are installed as extras: TensorFlow, NVIDIA DALI, zune-jpeg."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np

from holdfast.core.errors import MissingExtra
from holdfast.core.registry import stage
from holdfast.core.types import Image
from holdfast.stages.decode.libjpeg import by


@stage(
    "decode",
    systems="TensorFlow, tf.data, TFX",
    alike="libjpeg-turbo, IFAST",
    needs="tensorflow",
    extra="tensorflow",
)
def tensorflow(data: bytes) -> Image:
    """RGB pixels of a JPEG by tf.io.decode_jpeg with its defaults; CMYK and other formats by Pillow.

    Its default dct_method is INTEGER_FAST and upsampling is fancy: `fast-idct` does the same without it.
    """
    tf = _quiet()

    def decoded(data: bytes) -> Image:
        with tf.device("/CPU:0"):
            return np.asarray(tf.io.decode_jpeg(data, channels=3).numpy())

    return by(decoded, "TensorFlow", data, cmyk=False)


def _quiet() -> Any:
    """TensorFlow, which tells of its build at every start unless told not to; oneDNN decodes no pictures."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    try:
        import tensorflow
    except ImportError as missing:
        raise MissingExtra("decode 'tensorflow'", "tensorflow", "tensorflow") from missing
    return tensorflow


_BUILT = threading.local()  # building a DALI pipeline costs far more than a decode, and it is not shareable


@stage(
    "decode",
    paper=True,
    systems="NVIDIA DALI, CPU backend (its GPU backend is nvJPEG)",
    alike="libjpeg-turbo",
    needs="nvidia.dali",
    extra="dali",
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
    try:
        from nvidia.dali import fn, types
        from nvidia.dali.pipeline import Pipeline
    except ImportError as missing:
        raise MissingExtra("decode 'dali'", "nvidia-dali", "dali") from missing
    if not hasattr(_BUILT, "pipeline"):
        pipeline = Pipeline(1, 1, device_id=None, prefetch_queue_depth=1)
        with pipeline:
            encoded = fn.external_source(name="encoded", dtype=types.UINT8, ndim=1)
            pixels = fn.decoders.image(encoded, device="cpu", output_type=types.RGB, adjust_orientation=False)
            pipeline.set_outputs(pixels)
        pipeline.build()
        _BUILT.pipeline = pipeline
    return _BUILT.pipeline


@stage(
    "decode",
    systems="zune-jpeg: kornia-rs, Rust's image crate",
    alike="zune-jpeg",
    needs="kornia_rs",
    extra="decoders",
)
def zune(data: bytes) -> Image:
    """RGB pixels of a JPEG by zune-jpeg (kornia-rs); CMYK and other formats by Pillow.

    kornia-rs hands over one or three channels only, so CMYK has no path through it.
    """
    try:
        import kornia_rs
    except ImportError as missing:
        raise MissingExtra("decode 'zune'", "kornia-rs", "decoders") from missing

    def decoded(data: bytes) -> Image:
        return np.asarray(kornia_rs.io.decode_image_jpeg(data))

    return by(decoded, "zune-jpeg", data, cmyk=False)
