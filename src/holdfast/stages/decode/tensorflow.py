"""TensorFlow's decoder."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from holdfast.core.errors import MissingExtra
from holdfast.core.registry import stage
from holdfast.core.types import Image
from holdfast.stages.decode.jpeg import by, has_four_channels
from holdfast.stages.decode.pillow import pillow


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

    return pillow(data) if has_four_channels(data) else by(decoded, "TensorFlow", data)


def _quiet() -> Any:
    """TensorFlow, which tells of its build at every start unless told not to; oneDNN decodes no pictures."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    try:
        import tensorflow
    except ImportError as missing:
        raise MissingExtra("decode 'tensorflow'", "tensorflow", "tensorflow") from missing
    return tensorflow
