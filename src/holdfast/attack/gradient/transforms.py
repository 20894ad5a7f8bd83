"""Random differentiable transforms of an image between the patch and the network.

Every transform maps pixels (b, h, w, 3) in 0..255 to pixels of the same shape and returns the 2×3 affine map
of coordinates, old to new: (x, y) maps to m[:, :2] @ (x, y) + m[:, 2]. Coordinates are those of boxes: pixel
i covers i to i + 1. All images of a batch get the same transform. The ranges are the constants below.
"""

import io
import math

import numpy as np
import torch
from PIL import Image as Pillow
from torch import Tensor
from torch.nn import functional

from holdfast.core.registry import stage
from holdfast.core.types import Floats

SHIFT = 0.05  # share of the image's side in either direction, in whole pixels
SCALE = 1.25  # largest factor or divisor, about the centre, log-uniform
DEGREES = 10.0  # either way, about the centre
GAMMA = CONTRAST = 1.25  # exponent, or factor about mid-grey: largest factor or divisor, log-uniform
BRIGHTNESS = 20.0  # of 255, either way
QUALITY = (50, 95)  # libjpeg's scale, colours at half resolution
SMALLEST = 0.75  # smallest relative side of a picture reduced by `diverse`
GREY = 114.0  # padding around a reduced picture


@stage("transform")
def shift(pixels: Tensor, rng: np.random.Generator) -> tuple[Tensor, Floats]:
    """The picture moved by whole pixels, up to 5 % of its sides; its border is continued."""
    height, width = pixels.shape[1:3]
    reach = int(SHIFT * width), int(SHIFT * height)
    x, y = (int(rng.integers(-r, r, endpoint=True)) for r in reach)
    rows = torch.arange(height).sub(y).clamp(0, height - 1)
    columns = torch.arange(width).sub(x).clamp(0, width - 1)
    return pixels[:, rows][:, :, columns], np.array([[1.0, 0.0, x], [0.0, 1.0, y]])


@stage("transform")
def scale(pixels: Tensor, rng: np.random.Generator) -> tuple[Tensor, Floats]:
    """The picture enlarged or reduced by up to 1.25 about its centre."""
    factor = _factor(rng, SCALE)
    return _about_centre(pixels, np.array([[factor, 0.0], [0.0, factor]]))


@stage("transform")
def rotation(pixels: Tensor, rng: np.random.Generator) -> tuple[Tensor, Floats]:
    """The picture turned by up to 10 degrees about its centre."""
    angle = math.radians(rng.uniform(-DEGREES, DEGREES))
    c, s = math.cos(angle), math.sin(angle)
    return _about_centre(pixels, np.array([[c, -s], [s, c]]))


@stage("transform")
def light(pixels: Tensor, rng: np.random.Generator) -> tuple[Tensor, Floats]:
    """The picture in other light: gamma and contrast by up to 1.25, brightness by up to 20 of 255."""
    gamma, contrast = _factor(rng, GAMMA), _factor(rng, CONTRAST)
    # A power below 1 is infinitely steep at 0.
    lit = 255.0 * (pixels.clamp(1.0, 255.0) / 255.0) ** gamma
    lit = (lit - 127.5) * contrast + 127.5 + rng.uniform(-BRIGHTNESS, BRIGHTNESS)
    return lit.clamp(0.0, 255.0), np.eye(2, 3)


@stage("transform")
def jpeg(pixels: Tensor, rng: np.random.Generator) -> tuple[Tensor, Floats]:
    """The picture as libjpeg returns it, quality 50 to 95, with a straight-through gradient."""
    quality = int(rng.integers(*QUALITY, endpoint=True))
    quantised = pixels.detach().round().clamp(0, 255).to(torch.uint8).cpu().numpy()
    decoded = []
    for image in quantised:
        stream = io.BytesIO()
        Pillow.fromarray(image).save(stream, "JPEG", quality=quality, subsampling=2)
        with Pillow.open(stream) as opened:
            decoded.append(np.asarray(opened.convert("RGB")))
    compressed = torch.from_numpy(np.stack(decoded)).to(pixels)
    return pixels + (compressed - pixels).detach(), np.eye(2, 3)


@stage("transform")
def diverse(pixels: Tensor, rng: np.random.Generator) -> tuple[Tensor, Floats]:
    """The picture reduced to 75 to 100 % of its sides, at a random position on grey, for better transfer."""
    height, width = pixels.shape[1:3]
    ratio = rng.uniform(SMALLEST, 1.0)
    h, w = max(1, round(ratio * height)), max(1, round(ratio * width))
    y, x = int(rng.integers(0, height - h, endpoint=True)), int(rng.integers(0, width - w, endpoint=True))
    pictures = pixels.permute(0, 3, 1, 2)
    small = functional.interpolate(pictures, (h, w), mode="bilinear", align_corners=False, antialias=True)
    padded = functional.pad(small, (x, width - w - x, y, height - h - y), value=GREY)
    return padded.permute(0, 2, 3, 1), np.array([[w / width, 0.0, x], [0.0, h / height, y]])


def moved(boxes: Floats, matrix: Floats) -> Floats:
    """Boxes (n, 4) xyxy after the map, each around the image of the ellipse inscribed in the old box."""
    centres, half = (boxes[:, :2] + boxes[:, 2:]) / 2, (boxes[:, 2:] - boxes[:, :2]) / 2
    # The box of a turned box would grow at its corners, where an object seldom is.
    reach = np.sqrt(half**2 @ matrix[:, :2].T ** 2)
    centres = centres @ matrix[:, :2].T + matrix[:, 2]
    return np.concatenate([centres - reach, centres + reach], axis=1)


def _factor(rng: np.random.Generator, most: float) -> float:
    return float(np.exp(rng.uniform(-np.log(most), np.log(most))))


def _about_centre(pixels: Tensor, linear: Floats) -> tuple[Tensor, Floats]:
    """The pixels under a linear map (2, 2) about the centre, bilinear, the border continued."""
    height, width = pixels.shape[1:3]
    centre = np.array([width, height]) / 2
    matrix = np.concatenate([linear, (centre - linear @ centre)[:, None]], axis=1)
    # grid_sample expects the source of each new pixel, in -1..1 from edge to edge of the picture.
    inverse = np.linalg.inv(linear) * (centre[None, :] / centre[:, None])
    theta = torch.tensor(np.concatenate([inverse, np.zeros((2, 1))], axis=1), dtype=pixels.dtype)
    pictures = pixels.permute(0, 3, 1, 2)
    grid = functional.affine_grid(theta.expand(len(pixels), 2, 3), list(pictures.shape), align_corners=False)
    warped = functional.grid_sample(pictures, grid, padding_mode="border", align_corners=False)
    return warped.permute(0, 2, 3, 1), matrix
