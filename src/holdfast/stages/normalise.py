"""Normalisation: RGB pixels of the network's size to its input tensor."""

from __future__ import annotations

import numpy as np

from holdfast.core.model import Input
from holdfast.core.registry import stage
from holdfast.core.types import Image, Tensor
from holdfast.stages.quick import Quick, of_pixels
from holdfast.stages.quick.library import KERNELS


@stage("normalise")
def card(image: Image, wanted: Input) -> Tensor:
    """(pixel · scale − mean) / std in the card's colour order, layout and type, computed in float32."""
    channel = 0 if wanted.layout == "nchw" else 2
    if wanted.dtype == "uint8":
        return np.ascontiguousarray(_ordered(image, wanted.colour == "bgr", channel))
    # One multiply and one subtract in float32: x · (scale/std) − mean/std.
    gain = np.float32(wanted.scale) / np.asarray(wanted.std, np.float32)
    shift = np.asarray(wanted.mean, np.float32) / np.asarray(wanted.std, np.float32)
    known = of_pixels(image) and channel == 0 and gain.shape == shift.shape == (3,)
    shifted = _SHIFTED if known else _shifted
    return shifted(image, gain, shift, wanted.colour == "bgr", channel).astype(wanted.dtype, copy=False)


def _ordered(image: Image, bgr: bool, channel: int) -> Image:
    """The pixels with the axis of colours where it is wanted."""
    return np.moveaxis(image[:, :, ::-1] if bgr else image, 2, channel)


def _shifted(image: Image, gain: Tensor, shift: Tensor, bgr: bool, channel: int) -> Tensor:
    pixels = _ordered(image, bgr, channel)
    tensor = np.empty(pixels.shape, np.float32)
    # Channel by channel: eight times as fast as all at once, which goes through memory in small strides.
    made, given = np.moveaxis(tensor, channel, 0), np.moveaxis(pixels, channel, 0)
    for out, plane, factor, offset in zip(made, given, gain, shift, strict=True):
        np.multiply(plane, factor, out=out, dtype=np.float32)
        np.subtract(out, offset, out=out)
    return tensor


def _compiled(image: Image, gain: Tensor, shift: Tensor, bgr: bool, channel: int) -> Tensor:
    """The same by a kernel, where channels come first."""
    tensor = np.empty((3, *image.shape[:2]), np.float32)
    KERNELS.entry("tensor")(np.ascontiguousarray(image), int(bgr), gain, shift, tensor)
    return tensor


def _samples() -> list[tuple[Image, Tensor, Tensor, bool, int]]:
    """Every value of a pixel in each channel, by factors of which most products are rounded."""
    values = np.arange(256, dtype=np.uint8)
    picture = np.stack([values, values[::-1], np.roll(values, 100)], axis=-1).reshape(4, 64, 3)
    gain, shift = (np.array(row, np.float32) for row in ((0.0171, 1 / 57, 1 / 128), (2.1179, -0.3, 0.9922)))
    return [(picture, gain, shift, bgr, 0) for bgr in (False, True)]


_SHIFTED = Quick(_shifted, _compiled, _samples)
