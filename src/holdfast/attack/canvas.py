"""An image under a sparse attack: which pixels are painted, in which colours, within the limits."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from holdfast.attack.regions import count_regions, heaviest, labelled
from holdfast.attack.types import Limits
from holdfast.core.patch import changed
from holdfast.core.types import Bools, Image


@dataclass(frozen=True, eq=False)
class Canvas:
    """The clean image, where it may be painted, and the two extreme values of every channel."""

    clean: Image
    allowed: Bools  # (h, w)
    low: Image
    high: Image


@dataclass(frozen=True, eq=False)
class Paint:
    """Painted pixels (h, w) and the extreme of every channel (h, w, 3): high where true."""

    where: Bools
    bright: Bools

    def __len__(self) -> int:
        return int(np.count_nonzero(self.where))


def canvas_of(image: Image, allowed: Bools, amplitude: int) -> Canvas:
    """The canvas of an image whose channels may change by that much."""
    wide = image.astype(np.int16)
    low = np.clip(wide - amplitude, 0, 255).astype(np.uint8)
    return Canvas(image, allowed, low, np.clip(wide + amplitude, 0, 255).astype(np.uint8))


def painted(canvas: Canvas, paint: Paint) -> Image:
    """The image with the paint on it."""
    colours = np.where(paint.bright, canvas.high, canvas.low)
    return np.where(paint.where[..., None], colours, canvas.clean)


def empty(canvas: Canvas) -> Paint:
    """No paint at all."""
    return Paint(np.zeros(canvas.allowed.shape, bool), np.zeros(canvas.clean.shape, bool))


def without(paint: Paint, gone: Bools) -> Paint:
    """The paint with some pixels (h, w) taken away."""
    return replace(paint, where=paint.where & ~gone)


def cut(canvas: Canvas, paint: Paint, limits: Limits, rng: np.random.Generator) -> Paint:
    """The paint with no more regions than the limits allow; which ones stay is left to chance."""
    # A pixel whose colour is its clean one joins no region.
    seen = changed(canvas.clean, painted(canvas, paint)) if limits.regions else paint.where
    if not limits.regions or count_regions(seen) <= limits.regions:
        return paint
    _, labels = labelled(seen)
    weights = rng.random(int(labels.max()) + 1)[labels]
    sizes = np.bincount(labels.ravel())[labels]
    return Paint(heaviest(seen, weights / sizes, limits.regions), paint.bright)


def fits(canvas: Canvas, paint: Paint, limits: Limits) -> bool:
    """Whether the paint keeps to the limits of pixels and regions."""
    if len(paint) > limits.pixels:
        return False
    if not limits.regions:
        return True
    return count_regions(changed(canvas.clean, painted(canvas, paint))) <= limits.regions
