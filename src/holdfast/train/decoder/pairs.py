"""Pairs of what a JPEG decodes to and what it was made from: windows of the project's own scenes."""

from functools import partial
from io import BytesIO

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image as Pillow

from holdfast.core.seeds import generator
from holdfast.data import signs
from holdfast.stages.decode.learned import facts_of, planes
from holdfast.stages.decode.pillow import pillow
from holdfast.train.loop import Batch, Draw, Stage
from holdfast.train.pool import Pool, Row

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
        y, x = rng.integers(0, SIDE - stage.size + 1, 2)
        window = windows[rng.integers(len(windows)), y : y + stage.size, x : x + stage.size]
        wanted[place] = turned(window, rng)
        data = encoded(wanted[place], rng)
        seen[place], facts[place] = pillow(data), facts_of(data)
    target = torch.from_numpy(wanted).permute(0, 3, 1, 2).float() / 255
    return torch.from_numpy(planes(seen, facts)), target


def turned(window: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.uint8]:
    """The window as it is, mirrored or turned by quarters."""
    made = np.rot90(window, int(rng.integers(4)))
    return np.ascontiguousarray(made[:, ::-1] if rng.random() < 0.5 else made)


def encoded(window: NDArray[np.uint8], rng: np.random.Generator) -> bytes:
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
