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


def window(field: Field, rng: np.random.Generator, height: int, width: int) -> Field:
    """A view (height, width) of a field at a random place."""
    y = int(rng.integers(0, field.shape[0] - height + 1))
    x = int(rng.integers(0, field.shape[1] - width + 1))
    return field[y : y + height, x : x + width]
