"""Colour stages: RGB pixels to RGB pixels; the reference hands them on unchanged."""

from __future__ import annotations

from holdfast.core.registry import stage
from holdfast.core.types import Image


@stage("colour")
def rgb(image: Image) -> Image:
    """The pixels as decoded."""
    return image
