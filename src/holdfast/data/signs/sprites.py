"""Things of the roadside drawn once as sprites: trees, leaves, house fronts, vehicles."""

from collections.abc import Callable
from functools import lru_cache
from typing import Final

import cv2
import numpy as np

from holdfast.core.types import Image
from holdfast.data.signs.canvas import box, clouds, disc, frozen, grain, polygon, stroke, window

TREES: Final = 8
LEAVES: Final = 4
FRONTS: Final = 8
VEHICLES: Final = ("saloon", "estate", "van", "lorry", "bus")
_SIDE: Final = 256
_WHITE, _RED = (238, 238, 226, 255), (168, 24, 26, 255)  # head lamps and tail lamps


def _blank(*colour: int) -> Image:
    """A transparent square (256, 256, 4) of that colour."""
    image = np.zeros((_SIDE, _SIDE, 4), dtype=np.uint8)
    image[..., :3] = colour
    return image


def _tree(variant: int) -> Image:
    """A tree (256, 256, 4): trunk and leaves lit from above; even variants broad, odd ones slender."""
    rng = np.random.default_rng([20_213, variant])
    image = _blank(58, 84, 40)
    stroke(image, [(0, 1.0), (0.02, 0.1)], 0.09, (74, 58, 44, 255))
    for side in (-1.0, 1.0):
        stroke(image, [(0, 0.4), (side * 0.3, -0.1)], 0.045, (66, 52, 40, 255))
    broad = variant % 2 == 0
    for level in np.sort(rng.uniform(-1, 1, 90))[::-1]:
        y = -0.22 + level * (0.58 if broad else 0.66)
        reach = np.sqrt(max(0.0, 1 - level**2)) * 0.72 if broad else (1.05 + level) * 0.26
        x = rng.uniform(-1, 1) * reach
        lit = 0.72 - 0.3 * level + rng.uniform(-0.2, 0.2)
        green = np.clip(np.array([78, 112, 50]) * lit, 0, 255)
        disc(image, x, y, rng.uniform(0.1, 0.2), (*green.tolist(), 255))
    leaves = window(clouds(), rng, _SIDE, _SIDE)
    speckle = window(grain(), rng, _SIDE, _SIDE)
    rough = cv2.GaussianBlur(speckle, (0, 0), 1.6) * np.float32(5) + leaves * np.float32(0.4)
    ragged = (rough > -1.25).astype(np.float32)
    foliage = image[..., 1] > image[..., 0] * 1.1
    image[..., 3] = np.where(foliage, image[..., 3] * cv2.GaussianBlur(ragged, (0, 0), 0.8), image[..., 3])
    shade = 1 + np.float32(0.16) * np.clip(rough, -2.5, 2.5)
    image[..., :3] = np.clip(image[..., :3] * shade[..., None], 0, 255)
    return frozen(image)


def _leaves(variant: int) -> Image:
    """A near bunch of leaves (256, 256, 4) within the square's inner circle."""
    rng = np.random.default_rng([20_215, variant])
    image = _blank(50, 78, 36)
    twig = [(rng.uniform(-0.3, 0.3), 0.95), (0, 0), (rng.uniform(-0.4, 0.4), -0.6)]
    stroke(image, twig, 0.03, (70, 56, 42, 255))
    for _ in range(230):
        angle = rng.uniform(0, 2 * np.pi)
        lobes = 0.72 + 0.16 * np.sin(2 * angle + variant) + 0.12 * np.sin(5 * angle + 2 * variant)
        radius = np.sqrt(rng.uniform(0, 1)) * 0.84 * lobes
        x, y = radius * np.cos(angle), radius * np.sin(angle)
        turn, length = rng.uniform(0, 2 * np.pi), rng.uniform(0.08, 0.15)
        along = np.array([np.cos(turn), np.sin(turn)]) * length
        across = np.array([-along[1], along[0]]) * 0.42
        tip = np.array([x, y])
        green = np.array([84, 122, 52]) * (0.75 - 0.3 * y + rng.uniform(-0.3, 0.3))
        leaf = np.stack([tip - along, tip + across, tip + along, tip - across])
        polygon(image, leaf, (*green.clip(0, 255).tolist(), 255))
    return frozen(image)


@lru_cache(maxsize=FRONTS)
def front(variant: int) -> Image:
    """A house front (256, 256, 3): rows of windows over a ground floor of shops."""
    rng = np.random.default_rng([20_214, variant])
    walls = (188, 176, 160), (160, 150, 146), (196, 188, 180), (150, 110, 92)
    wall = np.array(walls[variant % 4], dtype=np.float64)
    image = np.empty((_SIDE, _SIDE, 3), dtype=np.uint8)
    image[:] = wall
    columns, rows = int(rng.integers(4, 9)), int(rng.integers(4, 8))
    pane = np.array([70, 84, 98])
    for row in range(rows):
        for column in range(columns):
            x0 = -1 + 2 * (column + 0.2) / columns
            y0 = -0.97 + 1.6 * (row + 0.2) / rows
            x1, y1 = x0 + 1.2 / columns, y0 + 1.0 / rows
            frame = box(x0 - 0.012, y0 - 0.012, x1 + 0.012, y1 + 0.016)
            polygon(image, frame, (wall * 1.12).clip(0, 255).tolist())
            polygon(image, box(x0, y0, x1, y1), (pane * rng.uniform(0.55, 1.45)).tolist())
        if variant % 2:
            y = -0.97 + 1.6 * (row + 0.95) / rows
            polygon(image, box(-1, y, 1, y + 0.025), (wall * 0.8).tolist())
    shops = int(rng.integers(2, 5))
    for shop in range(shops):
        x0, x1 = -1 + 2 * shop / shops, -1 + 2 * (shop + 1) / shops
        panel = rng.uniform(50, 200, 3)
        polygon(image, box(x0 + 0.03, 0.66, x1 - 0.03, 0.78), panel.tolist())
        polygon(image, box(x0 + 0.05, 0.8, x1 - 0.05, 1.0), (62, 66, 72))
    stain = 1 + np.float32(0.05) * window(clouds(), rng, _SIDE, _SIDE)
    stain += np.float32(0.02) * window(grain(), rng, _SIDE, _SIDE)
    image[:] = np.clip(image * stain[..., None], 0, 255)
    return frozen(image)


def _car(image: Image, roof: float, glass: float, *, front: bool) -> None:
    body, dark = (205, 205, 208, 255), (34, 36, 40, 255)
    for x in (-0.66, 0.66):
        polygon(image, box(x - 0.16, 0.6, x + 0.16, 0.98), (24, 24, 26, 255))
    polygon(image, [(-0.86, 0.82), (-0.9, 0.1), (-0.8, -0.06), (0.8, -0.06), (0.9, 0.1), (0.86, 0.82)], body)
    cabin = [(-0.84, 0.0), (-0.6, roof), (-0.5, roof - 0.06), (0.5, roof - 0.06), (0.6, roof), (0.84, 0.0)]
    polygon(image, cabin, body)
    polygon(image, [(-0.68, -0.04), (-0.52, glass), (0.52, glass), (0.68, -0.04)], (52, 60, 70, 255))
    shine = [(-0.6, -0.1), (-0.5, glass + 0.04), (-0.1, glass + 0.04), (-0.25, -0.1)]
    polygon(image, shine, (84, 96, 110, 255))
    polygon(image, box(-0.86, 0.66, 0.86, 0.84), (96, 97, 100, 255))
    for x in (-0.74, 0.74):
        polygon(image, box(x - 0.14, 0.14, x + 0.14, 0.32), _WHITE if front else _RED)
    if front:
        polygon(image, box(-0.52, 0.2, 0.52, 0.42), dark)
        polygon(image, box(-0.24, 0.68, 0.24, 0.8), (40, 78, 150, 255))
    else:
        polygon(image, box(-0.24, 0.36, 0.24, 0.5), (40, 78, 150, 255))
    polygon(image, box(-0.6, 0.84, 0.6, 0.9), dark)


def _box(image: Image, *, front: bool, glass: bool) -> None:
    for x in (-0.58, 0.58):
        polygon(image, box(x - 0.2, 0.74, x + 0.2, 0.99), (24, 24, 26, 255))
    polygon(image, box(-0.8, -0.96, 0.8, 0.74), (208, 208, 206, 255))
    polygon(image, box(-0.84, 0.7, 0.84, 0.84), (60, 60, 62, 255))
    if front:
        polygon(image, box(-0.7, -0.6, 0.7, 0.06), (46, 54, 64, 255))
        polygon(image, box(-0.5, 0.3, 0.5, 0.48), (52, 52, 54, 255))
    elif glass:
        polygon(image, box(-0.68, -0.8, 0.68, -0.1), (46, 54, 64, 255))
        polygon(image, box(-0.7, 0.1, 0.7, 0.16), (150, 150, 150, 255))
    else:
        polygon(image, box(-0.015, -0.94, 0.015, 0.7), (130, 130, 130, 255))
        for x in (-0.4, 0.4):
            polygon(image, box(x - 0.012, -0.9, x + 0.012, 0.66), (160, 160, 160, 255))
    for x in (-0.68, 0.68):
        polygon(image, box(x - 0.1, 0.5, x + 0.1, 0.64), _WHITE if front else _RED)


def _vehicle(variant: int) -> Image:
    """The back (from 5 on: the front) of a vehicle (256, 256, 4) in light grey, to be coloured by a gain."""
    image = _blank(60, 60, 62)
    kind, front = VEHICLES[variant % len(VEHICLES)], variant >= len(VEHICLES)
    cars = {"saloon": (-0.5, -0.42), "estate": (-0.74, -0.64), "van": (-0.9, -0.78)}
    if kind in cars:
        _car(image, *cars[kind], front=front)
    else:
        _box(image, front=front, glass=kind == "bus")
    fall = np.linspace(1.08, 0.8, _SIDE, dtype=np.float32)[:, None, None]
    image[..., :3] = np.clip(image[..., :3] * fall, 0, 255)
    return frozen(image)


_SPRITES: Final[dict[str, Callable[[int], Image]]] = {"tree": _tree, "leaves": _leaves, "vehicle": _vehicle}


@lru_cache(maxsize=128)
def sprite(kind: str, variant: int, size: int = _SIDE) -> Image:
    """A sprite RGBA (size, size, 4) of a kind (tree, leaves, vehicle), kept for the next use."""
    if size == _SIDE:
        return _SPRITES[kind](variant)
    return frozen(cv2.resize(sprite(kind, variant), (size, size), interpolation=cv2.INTER_AREA))


def fitting(kind: str, variant: int, pixels: float) -> Image:
    """A sprite of the kept size that is next above `pixels`."""
    size = 16
    while size < min(pixels, _SIDE):
        size *= 2
    return sprite(kind, variant, size)
