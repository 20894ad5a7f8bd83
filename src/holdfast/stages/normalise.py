"""From an image to the input of the network: fit policies, and normalisation to a tensor."""

import dataclasses

import numpy as np

from holdfast.core.model import Input
from holdfast.core.registry import stage
from holdfast.core.types import Image, Tensor


@stage("fit", "card")
def as_card(spec: Input) -> Input:
    """The input as the card states it."""
    return spec


@stage("fit", family="resize", systems="the SysNoise authors' code")
def square(spec: Input) -> Input:
    """Stretched to short side × short side before the centre crop; other policies stay as they are."""
    return dataclasses.replace(spec, policy="square") if spec.policy == "crop" else spec


def luma(image: Image) -> Image:
    """Grey levels (h, w, 1) of an image (h, w, 3): 0.299 R + 0.587 G + 0.114 B as in BT.601, rounded."""
    weighted = image.astype(np.uint32) @ np.array([19595, 38470, 7471], np.uint32)
    return ((weighted + 0x8000) >> 16).astype(np.uint8)[:, :, np.newaxis]


@stage("normalise")
def card(image: Image, spec: Input) -> Tensor:
    """(pixel · scale − mean) / std in the card's colour order, layout and type, computed in float32."""
    channel = 0 if spec.layout == "nchw" else 2
    image = luma(image) if spec.colour == "grey" else image[:, :, ::-1] if spec.colour == "bgr" else image
    pixels = np.moveaxis(image, 2, channel)
    if spec.dtype == "uint8":
        return np.ascontiguousarray(pixels)
    # One multiply and one subtract in float32: x · (scale/std) − mean/std.
    gain = np.float32(spec.scale) / np.asarray(spec.std, np.float32)
    shift = np.asarray(spec.mean, np.float32) / np.asarray(spec.std, np.float32)
    tensor = np.empty(pixels.shape, np.float32)
    gain, shift = gain[: spec.channels], shift[: spec.channels]
    # Channel by channel: eight times as fast as all at once, which accesses memory in small strides.
    planes_out, planes_in = np.moveaxis(tensor, channel, 0), np.moveaxis(pixels, channel, 0)
    for out, plane, factor, offset in zip(planes_out, planes_in, gain, shift, strict=True):
        np.multiply(plane, factor, out=out, dtype=np.float32)
        np.subtract(out, offset, out=out)
    return tensor.astype(spec.dtype, copy=False)
