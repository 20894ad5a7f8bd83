"""How the Fréchet distance responds to changed pixels: the table of docs/explanation/frechet.md.

python benchmarks/frechet.py [IMAGES] [FEATURES]     e.g. 60 signs, or 60 inception:FILE
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator

import numpy as np

from holdfast.core.types import Image, Size
from holdfast.data.open import open_dataset
from holdfast.metrics.frechet import frechet
from holdfast.stages.decode.libjpeg import pillow
from holdfast.stages.features import open_features
from holdfast.stages.resize.libraries import pillow_bilinear

SIDE = 416
Change = Callable[[Image, np.random.Generator], Image]


def noise(pixels: int, step: int | None = None) -> Change:
    """That many pixels anywhere become random colours, or move by ±step in every channel."""

    def change(image: Image, rng: np.random.Generator) -> Image:
        out = image.copy()
        flat = out.reshape(-1, 3)
        where = rng.choice(len(flat), pixels, replace=False)
        if step is None:
            flat[where] = rng.integers(0, 256, (pixels, 3))
        else:
            flat[where] = np.clip(flat[where] + rng.choice([-step, step], (pixels, 3)), 0, 255)
        return out

    return change


def square(side: int) -> Change:
    """A grey square of that side anywhere."""

    def change(image: Image, rng: np.random.Generator) -> Image:
        out = image.copy()
        y, x = rng.integers(0, SIDE - side, 2)
        out[y : y + side, x : x + side] = 128
        return out

    return change


def cross(length: int) -> Change:
    """A cross of two lines anywhere, three pixels wide, of random colours."""

    def change(image: Image, rng: np.random.Generator) -> Image:
        out = image.copy()
        half = length // 2
        y, x = rng.integers(half, SIDE - half, 2)
        out[y - 1 : y + 2, x - half : x + half] = rng.integers(0, 256, (3, 2 * half, 3))
        out[y - half : y + half, x - 1 : x + 2] = rng.integers(0, 256, (2 * half, 3, 3))
        return out

    return change


def changes() -> Iterator[tuple[str, Change]]:
    """Every change of the table with its name."""
    yield "none", lambda image, _: image
    yield from ((f"random colours, {n} pixels", noise(n)) for n in (100, 300, 1000, 3000))
    yield from ((f"±{step} on 1000 pixels", noise(1000, step)) for step in (8, 32, 64, 128))
    yield from ((f"grey square, {side**2} pixels", square(side)) for side in (10, 17, 32, 54))
    yield from ((f"cross, about {6 * n} pixels", cross(n)) for n in (16, 50, 140))


def main(count: int, text: str) -> None:
    """Print the table and the speeds."""
    net = open_features(text)
    entries = open_dataset(f"signs:0:{count}").entries
    images = [pillow_bilinear(pillow(entry.load().data), Size(SIDE, SIDE)) for entry in entries]
    start = time.process_time()
    clean = net(images)
    speed = count / (time.process_time() - start)
    print(f"{net.name}, d = {net.dimensions}, {count} scenes {SIDE}×{SIDE}; {speed:.0f} images a CPU second")
    print(f"| {'change':28} | {net.name} |\n| :--- | ---: |")
    half = count // 2
    print(f"| {'one half against the other':28} | {frechet(clean[:half], clean[half:]):.5f} |")
    for name, change in changes():
        rng = np.random.default_rng(7)
        print(f"| {name:28} | {frechet(clean, net([change(image, rng) for image in images])):.5f} |")
    rng = np.random.default_rng(0)
    sets = [rng.normal(size=(1000, 2048)) for _ in range(2)]
    start = time.process_time()
    frechet(*sets)
    print(f"n = 1000, d = 2048: {time.process_time() - start:.1f} CPU seconds")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60, sys.argv[2] if len(sys.argv) > 2 else "signs")
