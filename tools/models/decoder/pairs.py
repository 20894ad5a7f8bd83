"""Pairs of what a JPEG decodes to and what it was made from: windows of the project's own scenes."""

from functools import partial
from io import BytesIO

import cv2
import numpy as np
import torch
from PIL import Image as Pillow

from holdfast.core.fingerprint import generator
from holdfast.core.types import Image, Tensor
from holdfast.data.signs import scene as signs
from holdfast.stages.decode.learned import facts_of, planes
from holdfast.stages.decode.libjpeg import pillow
from holdfast.train.loop import Batch, Draw, Stage
from models.signs.pool import Pool, Row

SIDE = 128  # of the windows kept
WINDOWS = 5  # of a scene, all but one on a sign
QUALITIES = (30, 95)
SUBSAMPLINGS = ("4:2:0", "4:4:4")


def window_row(seed: int, index: int) -> Row:
    """Windows (5, 128, 128, 3) of a scene before it was ever encoded, all but the first on a sign."""
    drawn = signs.scene(seed, index)
    rng = generator(seed, "decoder windows", index)
    room = np.array(drawn.image.shape[:2]) - SIDE
    made = np.empty((WINDOWS, SIDE, SIDE, 3), np.uint8)
    for place in range(WINDOWS):
        corner = rng.integers(0, room + 1)
        if place and len(drawn.boxes):
            left, top, right, bottom = drawn.boxes[rng.integers(len(drawn.boxes))]
            aim = np.array([top + bottom, left + right]) / 2 - rng.uniform(0.2, 0.8, 2) * SIDE
            corner = np.clip(aim.astype(int), 0, room)
        y, x = corner
        made[place] = drawn.image[y : y + SIDE, x : x + SIDE]
    return {"images": made}


def drawing(pool: Pool) -> Draw:
    """What draws batches from that pool."""
    return partial(draw, pool)


def draw(pool: Pool, stage: Stage, rng: np.random.Generator) -> Batch:
    """Planes (n, 19, s/2, s/2) of decoded windows and the pictures (n, 3, s, s) they were made from."""
    wanted = np.empty((stage.batch, stage.size, stage.size, 3), np.uint8)
    seen = np.empty_like(wanted)
    facts = np.empty((stage.batch, 3), np.float32)
    for place, index in enumerate(rng.integers(len(pool), size=stage.batch)):
        windows = pool["images"][index]
        one, other = (_cut(windows, stage.size, rng) for _ in range(2))
        wanted[place] = turned(varied(one, other, rng), rng)
        data = encoded(wanted[place], rng)
        seen[place], facts[place] = pillow(data), facts_of(data)
    target = torch.from_numpy(wanted).permute(0, 3, 1, 2).float() / 255
    return torch.from_numpy(planes(seen, facts)), target


def _cut(windows: Image, size: int, rng: np.random.Generator) -> Image:
    """A square of `size` pixels anywhere in one of the windows."""
    y, x = rng.integers(0, SIDE - size + 1, 2)
    return windows[rng.integers(len(windows)), y : y + size, x : x + size]


def varied(one: Image, other: Image, rng: np.random.Generator) -> Image:
    """A window as it is, in other colours, made of two, or no scene at all.

    A net that knew the scenes' colours alone would take all others for an error of the encoder.
    """
    kind = rng.random()
    if kind < 0.4:
        return one
    if kind < 0.65:
        return recoloured(one, rng)
    if kind < 0.85:
        return np.where(_field(len(one), 1, rng) > 0, recoloured(one, rng), recoloured(other, rng))
    levels = 128 + rng.uniform(-60, 60, 3) + _field(len(one), 3, rng) * rng.uniform(10, 90)
    return np.asarray(levels.clip(0, 255).astype(np.uint8))


def recoloured(window: Image, rng: np.random.Generator) -> Image:
    """The window with its channels exchanged, some inverted, and another contrast and brightness."""
    levels = window[..., rng.permutation(3)] - 128.0
    levels *= rng.choice((-1.0, 1.0), 3) * rng.uniform(0.4, 1.5) * rng.uniform(0.7, 1.3, 3)
    return np.asarray((levels + 128 + rng.uniform(-40, 40)).clip(0, 255).astype(np.uint8))


def _field(side: int, channels: int, rng: np.random.Generator) -> Tensor:
    """Random values (side, side, channels) of deviation about 1, smooth over 2 to 20 pixels."""
    cells = int(np.ceil(side / rng.uniform(2, 20))) + 1
    rough = rng.normal(0, 1, (cells, cells, channels)).astype(np.float32)
    smooth = cv2.resize(rough, (side, side), interpolation=cv2.INTER_CUBIC)
    return np.asarray(smooth.reshape(side, side, channels))


def turned(window: Image, rng: np.random.Generator) -> Image:
    """The window as it is, mirrored or turned by quarters."""
    made = np.rot90(window, int(rng.integers(4)))
    return np.ascontiguousarray(made[:, ::-1] if rng.random() < 0.5 else made)


def encoded(window: Image, rng: np.random.Generator) -> bytes:
    """The JPEG of a window at a quality drawn from 30 to 95, with and without halved chroma."""
    low, high = QUALITIES
    buffer = BytesIO()
    Pillow.fromarray(window).save(
        buffer,
        format="JPEG",
        quality=int(rng.integers(low, high + 1)),
        subsampling=SUBSAMPLINGS[int(rng.integers(len(SUBSAMPLINGS)))],
    )
    return buffer.getvalue()
