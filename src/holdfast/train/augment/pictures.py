"""What every augmentation asks of its pictures."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import InputError

Pictures: TypeAlias = NDArray[np.uint8]  # (n, height, width, 3) RGB


def check(name: str, images: Pictures, severity: float) -> None:
    """Raise InputError unless these are pictures (n, h, w, 3) uint8 and the severity is 0..1."""
    if images.ndim != 4 or images.shape[3] != 3 or images.dtype != np.uint8:
        got = f"{images.shape} {images.dtype.name}"
        raise InputError(f"augment {name!r}: expected pictures (n, h, w, 3) uint8, got {got}")
    if not 0 <= severity <= 1:
        raise InputError(f"augment {name!r}: expected a severity of 0 to 1, got {severity}")
