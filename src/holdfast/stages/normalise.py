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
    if wanted.dtype == "uint8":
        tensor: Tensor = pixels
    else:
        # One multiply and one subtract in float32: x · (scale/std) − mean/std.
        gain = np.float32(wanted.scale) / np.asarray(wanted.std, np.float32)
        shift = np.asarray(wanted.mean, np.float32) / np.asarray(wanted.std, np.float32)
        tensor = pixels.astype(np.float32) * gain - shift
        tensor = tensor.astype(wanted.dtype, copy=False)
    if wanted.layout == "nchw":
        tensor = tensor.transpose(2, 0, 1)
    return np.ascontiguousarray(tensor)
