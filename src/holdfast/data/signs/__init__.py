"""Procedural road scenes with traffic signs: the data set that is always at hand."""

from holdfast.data.signs.catalogue import CLASSES, GROUP_OF, GROUPS, SEGMENTS
from holdfast.data.signs.scene import Scene, encode, scene

__all__ = ["CLASSES", "GROUPS", "GROUP_OF", "SEGMENTS", "Scene", "encode", "scene"]
