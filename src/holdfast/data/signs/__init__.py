"""Procedural road scenes with traffic signs: the data set that is always at hand."""

from holdfast.data.signs.catalogue import CLASSES, GROUP_OF, GROUPS, SEGMENTS
from holdfast.data.signs.coco import make
from holdfast.data.signs.crops import crop_classify, crop_single
from holdfast.data.signs.far import crop_far, crop_small, write_far
from holdfast.data.signs.scene import Scene, encode, scene

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
