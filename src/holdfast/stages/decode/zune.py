"""zune-jpeg, the decoder of Rust programs."""

from __future__ import annotations

import numpy as np

from holdfast.core.errors import MissingExtra
from holdfast.core.registry import stage
from holdfast.core.types import Image
from holdfast.stages.decode.jpeg import by, has_four_channels
from holdfast.stages.decode.pillow import pillow


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

    return pillow(data) if has_four_channels(data) else by(decoded, "zune-jpeg", data)
