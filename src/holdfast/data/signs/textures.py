"""Fixed noise fields, made once: drawing a window of them is much cheaper than drawing noise per scene."""

from __future__ import annotations

from functools import lru_cache

import cv2
import numpy as np
import numpy.typing as npt

Field = npt.NDArray[np.float32]


@lru_cache(maxsize=1)
def grain() -> Field:
    """Standard normal noise (1024, 1024)."""
    field = np.random.default_rng(20_211).standard_normal((1024, 1024), dtype=np.float32)
    field.flags.writeable = False
    return field


@lru_cache(maxsize=1)
def clouds() -> Field:
    """Smooth noise of many scales (1024, 1024) with mean 0 and deviation 1."""
    rng = np.random.default_rng(20_212)
    total = np.zeros((1024, 1024), dtype=np.float32)
    for octave in range(2, 9):
        coarse = rng.standard_normal((2**octave, 2**octave), dtype=np.float32)
        total += cv2.resize(coarse, (1024, 1024), interpolation=cv2.INTER_CUBIC) * np.float32(0.62**octave)
    field: Field = (total - total.mean()) / total.std()
    field.flags.writeable = False
    return field


@lru_cache(maxsize=1)
def rough() -> npt.NDArray[np.uint8]:
    """The brightness of rough ground (1024, 1024): 128 is the mean, fine grains over coarse stains."""
    field = 128 + np.float32(128) * (np.float32(0.075) * grain() + np.float32(0.06) * clouds())
    ground = np.clip(np.rint(field), 0, 255).astype(np.uint8)
    ground.flags.writeable = False
    return ground


@lru_cache(maxsize=16)
def sensor(level: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Noise of deviation `level` (576, 736, 3) as what to add and what to subtract.

    Most of it is common to the channels. Two saturating operations on bytes are ten times as fast as one on
    floats.
    """
    rng = np.random.default_rng([20_216, level])
    common = rng.standard_normal((576, 736, 1), dtype=np.float32) * np.float32(0.8)
    noise = np.rint(
        (common + rng.standard_normal((576, 736, 3), dtype=np.float32) * np.float32(0.6)) * np.float32(level)
    )
    plus, minus = np.clip(noise, 0, 255).astype(np.uint8), np.clip(-noise, 0, 255).astype(np.uint8)
    plus.flags.writeable = minus.flags.writeable = False
    return plus, minus


def window(field: Field, rng: np.random.Generator, height: int, width: int) -> Field:
    """A view (height, width) of a field at a random place."""
    y = int(rng.integers(0, field.shape[0] - height + 1))
    x = int(rng.integers(0, field.shape[1] - width + 1))
    return field[y : y + height, x : x + width]
