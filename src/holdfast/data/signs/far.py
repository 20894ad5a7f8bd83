"""Pictures of one sign in a wider view, coarsely compressed: how they are decoded and resized matters."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from holdfast.core.errors import OutputError
from holdfast.data.signs.catalogue import CLASSES
from holdfast.data.signs.crops import View, render
from holdfast.data.signs.scene import encode, stream
from holdfast.data.signs.strokes import Pixels

SIDES: Final = (112, 160)  # pixels; a network of 48 sees each shrunk by 2 to 3
PART: Final = (0.25, 0.5)  # of the side that the sign fills: 13 to 27 of the network's pixels
REACH: Final = 0.2  # how far from the middle the sign may be, as a part of the side
QUALITIES: Final = (10, 40)
SMALL: Final = (
    0.18,
    0.36,
)  # of a small picture of 72 pixels: as many pixels as that network sees of the sign


def crop_far(seed: int, index: int) -> tuple[Pixels, int, int]:
    """A sign in the inner part of a square of 112 to 160 pixels, RGB; its class; the quality of its JPEG."""
    rng = stream("far", seed, index)
    side = int(rng.integers(SIDES[0], SIDES[1] + 1))
    size = float(side * rng.uniform(*PART))
    x, y = side / 2 + rng.uniform(-REACH, REACH, 2) * side
    label = int(rng.integers(len(CLASSES)))
    quality = int(rng.integers(QUALITIES[0], QUALITIES[1] + 1))
    image, _ = render(View(side, size, float(x), float(y)), label, rng)
    return image, label, quality


def crop_small(seed: int, index: int, side: int = 72) -> tuple[Pixels, int]:
    """A sign in a view drawn at `side` pixels, so that nothing has to be resized; RGB, and its class."""
    rng = stream("small", seed, index)
    size = float(side * rng.uniform(*SMALL))
    x, y = side / 2 + rng.uniform(-REACH, REACH, 2) * side
    label = int(rng.integers(len(CLASSES)))
    image, _ = render(View(side, size, float(x), float(y)), label, rng)
    return image, label


def write_far(folder: Path, seed: int, indices: range) -> int:
    """How many pictures were written into `folder`, one sub folder a class; those that are there stay."""
    try:
        for name in CLASSES:
            (folder / name).mkdir(parents=True, exist_ok=True)
        there = {file.name for file in folder.glob("*/*.jpg")}
        missing = [index for index in indices if f"far-{seed}-{index:06d}.jpg" not in there]
        for index in missing:
            image, label, quality = crop_far(seed, index)
            path = folder / CLASSES[label] / f"far-{seed}-{index:06d}.jpg"
            part = path.with_suffix(".part")
            part.write_bytes(encode(image, quality))
            part.replace(path)  # a kill leaves no half picture
    except OSError as problem:
        raise OutputError(f"cannot write to {folder}: {problem.strerror}") from problem
    return len(missing)
