"""Pillow's resampling, by Pillow at first, and by the kernel once that was seen to give the same.

Which pass comes first, along rows or along columns, is Pillow's choice, and changes the rounding: until
version 12 rows; since 13 columns where the height shrinks by more than twice as many pixels as the width.
(https://github.com/python-pillow/Pillow/pull/9549; the factor as seen, without exception in 6,000 sizes.)
A rule is used only if it gives the bits of the Pillow that is installed on all of SAMPLES.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from holdfast.core.frame import Window
from holdfast.core.types import Image, Size
from holdfast.stages.quick import Meter, equal, of_pixels

Rule: TypeAlias = Callable[[Size, Size], bool]  # before and after -> whether columns come first
SAMPLES = (
    (Size(90, 61), Size(33, 29)),
    (Size(61, 90), Size(41, 60)),
    (Size(60, 150), Size(40, 100)),  # tall
    (Size(150, 60), Size(100, 40)),
    (Size(100, 150), Size(80, 111)),  # the height shrinks by just less than twice as much, twice, and more
    (Size(100, 150), Size(80, 110)),
    (Size(100, 150), Size(80, 109)),
    (Size(160, 50), Size(159, 48)),
    (Size(160, 50), Size(159, 47)),
    (Size(60, 90), Size(90, 60)),
    (Size(90, 60), Size(60, 90)),
    (Size(40, 30), Size(50, 89)),
    (Size(40, 30), Size(90, 50)),
    (Size(80, 70), Size(80, 40)),
    (Size(80, 70), Size(50, 70)),
    (Size(330, 250), Size(224, 170)),
)


def rows_first(before: Size, after: Size) -> bool:
    """Pillow up to version 12."""
    return False


def columns_if_tall(before: Size, after: Size) -> bool:
    """Pillow 13."""
    less = before.height - after.height
    return less > 0 and less > 2 * (before.width - after.width)


RULES: tuple[Rule, ...] = (columns_if_tall, rows_first)


class Resampler:
    """Pictures of other sizes by Pillow's filters."""

    def __init__(self) -> None:
        self.rule: Rule | None = None
        self.asked = False

    def cut(self, image: Image, size: Size, name: str, window: Window) -> Image:
        """A part of the picture (h, w, 3) in another size, as Pillow gives it."""
        if not self.asked and Meter.full():
            self.asked, self.rule = True, rule_of()
        if self.rule is not None and of_pixels(image):
            from holdfast.stages.quick.resample import resized

            before = Size(image.shape[1], image.shape[0])
            return resized(image, size, name, window, self.rule(before, size))
        made = Meter.timed(lambda: plain(image, size, name))
        left, top, width, height = window
        return made[top : top + height, left : left + width]


def rule_of() -> Rule | None:
    """The rule by which the kernel gives Pillow's bits on all samples; None if there is none."""
    return next((rule for rule in RULES if _agrees(rule)), None)


def _agrees(rule: Rule) -> bool:
    rng = np.random.default_rng(0)
    try:
        from holdfast.stages.quick.resample import NAMES, resized

        for before, after in SAMPLES:
            picture = rng.integers(0, 256, (before.height, before.width, 3), np.uint8)
            way, whole = rule(before, after), Window(0, 0, *after)
            for name in NAMES:
                if not equal(plain(picture, after, name), resized(picture, after, name, whole, way)):
                    return False
    except Exception:  # noqa: BLE001 - whatever a compiler raises, Pillow is there
        return False
    return True


def plain(image: Image, size: Size, name: str) -> Image:
    """The picture in another size by Pillow itself."""
    from PIL import Image as Pillow

    picture = Pillow.fromarray(image)
    return np.asarray(picture.resize((size.width, size.height), getattr(Pillow.Resampling, name)))
