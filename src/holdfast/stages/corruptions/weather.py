"""Weather and light: snow, frost, fog and brightness."""

import numpy as np

from holdfast.core.types import Image
from holdfast.stages.corruptions.patterns import (
    Plane,
    filtered,
    motion,
    plasma,
    power_of_two,
    zoomed,
)
from holdfast.stages.corruptions.severity import corruption, to_levels

LUMA = np.array([0.299, 0.587, 0.114], np.float32)


@corruption(
    (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
    (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
    (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
    (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
    (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
    needs="cv2",
)
def snow(
    image: Image,
    random: np.random.Generator,
    mean: float,
    deviation: float,
    zoom: float,
    least: float,
    radius: int,
    motion_deviation: float,
    kept: float,
) -> Image:
    """The image whitened under two layers of flakes in motion."""
    height, width = image.shape[:2]
    layer = random.normal(mean, deviation, (height, width)).astype(np.float32)
    layer = zoomed(layer, zoom, height, width)
    layer[layer < least] = 0
    flakes = to_levels(layer * 255)
    angle = random.uniform(-135, -45)
    moved = np.rint(filtered(flakes, motion(radius, motion_deviation, angle)))[..., None]
    values = image.astype(np.float32)
    grey = (values @ LUMA)[..., None]
    white = kept * values + (1 - kept) * np.maximum(values, grey * 1.5 + 127.5)
    return to_levels(white + moved + np.rot90(moved, 2))


@corruption((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75))
def frost(image: Image, random: np.random.Generator, kept: float, share: float) -> Image:
    """a·x + b·frost: the image seen through a frosted window.

    The published code takes crops of six photographs; here the frost is drawn (`frost_texture`), so that this
    corruption is comparable between models but not with published numbers.
    """
    height, width = image.shape[:2]
    texture = frost_texture(height, width, random)
    return to_levels(np.float32(kept) * image + np.float32(share) * texture)


def frost_texture(height: int, width: int, random: np.random.Generator) -> Plane:
    """Levels (h, w, 3) of ice: veins where two fractals cross their middle, on a cloudy, bluish ground."""
    side = power_of_two(max(height, width))
    ground, first, second = (plasma(side, decay, random)[:height, :width] for decay in (2.0, 1.7, 1.5))
    veins = np.maximum(1 - np.abs(2 * first - 1) * 4, 0) + np.maximum(1 - np.abs(2 * second - 1) * 6, 0)
    ice = np.clip(0.15 + 0.45 * ground + 0.3 * veins, 0, 1)
    return np.asarray(ice[..., None] * np.array([225, 240, 255], np.float32))


@corruption((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4))
def fog(image: Image, random: np.random.Generator, amount: float, decay: float) -> Image:
    """(x + a·plasma)·m/(m + a), m the highest level: a fractal fog over the whole image."""
    height, width = image.shape[:2]
    cloud = plasma(power_of_two(max(height, width)), decay, random)[:height, :width, None]
    highest = float(image.max()) / 255
    scale = highest / (highest + amount)
    return to_levels(image * np.float32(scale) + cloud * np.float32(255 * amount * scale))


@corruption(0.1, 0.2, 0.3, 0.4, 0.5)
def brightness(image: Image, random: np.random.Generator, added: float) -> Image:
    """Value of HSV plus a constant, hue and saturation kept: daylight.

    With V the largest channel: x·min(V + c, 1)/V; black becomes grey.
    """
    largest = image.max(axis=2, keepdims=True).astype(np.float32)
    brighter = np.minimum(largest + np.float32(255 * added), 255)
    scaled = image * (brighter / np.maximum(largest, 1))
    return to_levels(np.where(largest > 0, scaled, brighter))
