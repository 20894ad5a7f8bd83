"""Procedural road scenes with traffic signs: the data set that is always at hand."""

from holdfast.data.signs.canvas import CLASSES, GROUP_OF, GROUPS, SEGMENTS
from holdfast.data.signs.scene import (
    Scene,
    crop_classify,
    crop_far,
    crop_single,
    crop_small,
    encode,
    make,
    scene,
    write_far,
)

__all__ = [
    "CLASSES",
    "GROUPS",
    "GROUP_OF",
    "SEGMENTS",
    "Scene",
    "crop_classify",
    "crop_far",
    "crop_single",
    "crop_small",
    "encode",
    "make",
    "scene",
    "write_far",
]
