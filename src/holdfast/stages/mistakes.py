"""Common mistakes of deployments as noise options: `holdfast noise --only mistakes`.

They are not part of the default suite: a product does not make them, but an integration does. Most change
the stated input of the network (kind `fit`); the others change pixels.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from holdfast.core.model import Input
from holdfast.core.pipeline import LETTERBOXES
from holdfast.core.registry import stage
from holdfast.core.types import Image, Size, Tensor
from holdfast.stages.normalise import card

MISTAKE: dict[str, Any] = {
    "family": "mistakes",
    "systems": "deployments by mistake",
    "on_request": True,
    "default": False,
}
IMAGENET: dict[str, Any] = {
    "scale": 1 / 255,
    "mean": (0.485, 0.456, 0.406),
    "std": (0.229, 0.224, 0.225),
}
PLAIN: dict[str, Any] = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}


@stage("fit", **MISTAKE)
def channels_swapped(spec: Input) -> Input:
    """RGB where the model wants BGR, or the reverse."""
    if spec.colour == "grey":
        return spec
    return replace(spec, colour="rgb" if spec.colour == "bgr" else "bgr")


@stage("fit", **MISTAKE)
def not_normalised(spec: Input) -> Input:
    """Pixel levels from 0 to 255, without scale, mean and standard deviation."""
    return replace(spec, scale=1.0, **PLAIN)


@stage("fit", **MISTAKE)
def divided_by_255(spec: Input) -> Input:
    """Pixel levels divided by 255 and nothing else."""
    return replace(spec, scale=1 / 255, **PLAIN)


@stage("fit", **MISTAKE)
def divided_twice(spec: Input) -> Input:
    """The normalisation of the model after pixel levels were divided by 255 once too often."""
    return replace(spec, scale=spec.scale / 255)


@stage("fit", **MISTAKE)
def imagenet_normalised(spec: Input) -> Input:
    """Pixel levels divided by 255, minus ImageNet's mean, divided by its standard deviation."""
    return replace(spec, **IMAGENET)


@stage("fit", **MISTAKE)
def minus_one_to_one(spec: Input) -> Input:
    """Values from −1 to 1: (x − 127.5) / 127.5."""
    return replace(spec, scale=1 / 127.5, mean=(1.0, 1.0, 1.0), std=(1.0, 1.0, 1.0))


@stage("fit", **MISTAKE)
def stretched(spec: Input) -> Input:
    """The image stretched to the input, its aspect ratio lost."""
    return replace(spec, policy="stretch")


@stage("fit", **MISTAKE)
def letterbox_corner(spec: Input) -> Input:
    """The image in its aspect ratio in the upper left corner, padded."""
    return replace(spec, policy="letterbox", place="corner")


@stage("fit", **MISTAKE)
def letterbox_centre(spec: Input) -> Input:
    """The image in its aspect ratio in the centre, padded."""
    return replace(spec, policy="letterbox", place="centre")


@stage("fit", **MISTAKE)
def letterbox_truncated(spec: Input) -> Input:
    """The model's letterbox with sides rounded down (YOLOX) instead of to the nearest pixel, or reverse."""
    truncate: dict[str, Any] = {"letterbox": "letterbox-truncate", "letterbox-truncate": "letterbox"}
    return replace(spec, policy=truncate.get(spec.policy, spec.policy))


@stage("fit", **MISTAKE)
def centre_crop(spec: Input) -> Input:
    """The short side resized to the input, and what is left over cut off."""
    return replace(spec, policy="crop", short_side=None)


@stage("fit", **MISTAKE)
def pad_black(spec: Input) -> Input:
    """A letterbox padded with 0."""
    return replace(spec, pad=0) if spec.policy in LETTERBOXES else spec


@stage("fit", **MISTAKE)
def pad_grey(spec: Input) -> Input:
    """A letterbox padded with 128."""
    return replace(spec, pad=128) if spec.policy in LETTERBOXES else spec


@stage("normalise", **MISTAKE)
def mirrored(image: Image, spec: Input) -> Tensor:
    """The input mirrored horizontally."""
    return card(np.ascontiguousarray(image[:, ::-1]), spec)


@stage("normalise", **MISTAKE)
def upside_down(image: Image, spec: Input) -> Tensor:
    """The input flipped vertically."""
    return card(np.ascontiguousarray(image[::-1]), spec)


@stage("normalise", **MISTAKE)
def shifted_one_pixel(image: Image, spec: Input) -> Tensor:
    """The input shifted by one pixel to the right and down, its first row and column repeated."""
    return card(np.pad(image, ((1, 0), (1, 0), (0, 0)), mode="edge")[:-1, :-1], spec)


@stage("normalise", **MISTAKE)
def shifted_half_pixel(image: Image, spec: Input) -> Tensor:
    """The input shifted by half a pixel to the right and down: the mean of 2 × 2 neighbours."""
    wide = np.pad(image, ((1, 0), (1, 0), (0, 0)), mode="edge").astype(np.uint16)
    four = wide[:-1, :-1] + wide[1:, :-1] + wide[:-1, 1:] + wide[1:, 1:]
    return card(((four + 2) >> 2).astype(np.uint8), spec)


@stage("normalise", **MISTAKE)
def reshaped(image: Image, spec: Input) -> Tensor:
    """Values in the other order of axes, reshaped, not transposed: NHWC read as NCHW, or the reverse."""
    other = replace(spec, layout="nhwc" if spec.layout == "nchw" else "nchw")
    tensor = card(image, other)
    rows, columns = image.shape[:2]
    shape = (3, rows, columns) if spec.layout == "nchw" else (rows, columns, 3)
    return tensor.reshape(shape)


@stage("colour", **MISTAKE)
def grey(image: Image) -> Image:
    """Luma of BT.601 in all three channels."""
    luma = image @ np.array([0.299, 0.587, 0.114])
    return np.repeat(np.round(luma).astype(np.uint8)[:, :, None], 3, axis=2)


@stage("colour", **MISTAKE)
def gamma_darker(image: Image) -> Image:
    """Levels raised to the power 2.2: linear light where the model wants sRGB."""
    return _curve(2.2)[image]


@stage("colour", **MISTAKE)
def gamma_brighter(image: Image) -> Image:
    """Levels raised to the power 1/2.2: the gamma correction applied twice."""
    return _curve(1 / 2.2)[image]


@stage("colour", **MISTAKE)
def levels_limited(image: Image) -> Image:
    """Levels compressed to 16 to 235: limited range where the model wants full range."""
    return np.round(16 + image * (219 / 255)).astype(np.uint8)


@stage("colour", **MISTAKE)
def levels_expanded(image: Image) -> Image:
    """Levels from 16 to 235 expanded to 0 to 255 and clipped: full range read as limited range."""
    return np.clip(np.round((image - 16.0) * (255 / 219)), 0, 255).astype(np.uint8)


def _curve(power: float) -> Image:
    """The level of each of the 256 levels after a power."""
    return np.round(255 * (np.arange(256) / 255) ** power).astype(np.uint8)


@stage("resize", **MISTAKE)
def resized_twice(image: Image, size: Size) -> Image:
    """Pillow's bilinear filter twice: to half the size of the image, then to the size that is needed."""
    from holdfast.stages.resize.libraries import pillow_bilinear

    half = Size(max(1, image.shape[1] // 2), max(1, image.shape[0] // 2))
    return pillow_bilinear(pillow_bilinear(image, half), size)
