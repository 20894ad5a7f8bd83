"""The augmentation every recipe begins with: a little of another view and another light."""

from __future__ import annotations

import cv2
import numpy as np

from holdfast.core.registry import stage
from holdfast.train.augment import Pictures, check, warp

SHIFT = 0.08  # of the side, each way
ZOOM = 0.1
GAIN, TINT, OFFSET = 0.12, 0.04, 8.0  # deviations: of all channels, of each, and in levels


@stage("augment")
def standard(images: Pictures, rng: np.random.Generator, severity: float = 1.0) -> Pictures:
    """Pictures (n, h, w, 3) shifted, zoomed and lit anew, each by its own draw; never mirrored.

    A mirrored sign is another sign.
    """
    check("standard", images, severity)
    if severity == 0:
        return images.copy()
    n, height, width = images.shape[:3]
    shift = rng.uniform(-SHIFT, SHIFT, (n, 2)) * (width, height) * severity
    zoom = np.exp(rng.uniform(-ZOOM, ZOOM, n) * severity)
    tables = _light(n, rng, severity)
    made = np.empty_like(images)
    for place in range(n):
        scale = zoom[place]
        middle = np.array([width - 1, height - 1]) / 2 * (1 - scale)
        to_source = np.array([[scale, 0, middle[0]], [0, scale, middle[1]]])
        to_source[:, 2] += shift[place]
        made[place] = cv2.LUT(warp(images[place], to_source), tables[place])
    return made


def _light(n: int, rng: np.random.Generator, severity: float) -> Pictures:
    """Tables (n, 1, 256, 3) from a level to the level in another light."""
    gain = np.exp((rng.normal(0, GAIN, (n, 1, 1, 1)) + rng.normal(0, TINT, (n, 1, 1, 3))) * severity)
    offset = rng.normal(0, OFFSET, (n, 1, 1, 1)) * severity
    levels = np.arange(256.0).reshape(1, 1, 256, 1)
    return np.asarray(np.rint(np.clip(levels * gain + offset, 0, 255)).astype(np.uint8))
