"""NVIDIA DALI's decoder on the CPU."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from holdfast.core.errors import MissingExtra
from holdfast.core.registry import stage
from holdfast.core.types import Image
from holdfast.stages.decode.jpeg import by, has_four_channels
from holdfast.stages.decode.pillow import pillow

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

    return pillow(data) if has_four_channels(data) else by(decoded, "DALI", data)


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
