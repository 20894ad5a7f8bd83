"""Recipes of the seven detectors, classifiers and segmenters of signs."""

from typing import Final

from holdfast.core.model import Input
from holdfast.core.types import Size

# How each model is fed; training pools, held-out figures and cards all come through these.
INPUTS: Final[dict[str, Input]] = {
    "signs-yolo": Input(Size(416, 416), scale=1 / 255),
    "signs-free": Input(Size(416, 416), scale=1 / 255),
    "signs-plain": Input(Size(416, 416), scale=1 / 255),
    "signs-single": Input(Size(64, 64), scale=1 / 255),
    "signs-certified": Input(Size(64, 64), scale=1 / 255),
    "signs-class": Input(Size(64, 64), scale=1 / 255, policy="crop", short_side=72),
    "signs-seg": Input(Size(256, 192), scale=1 / 255),
}
