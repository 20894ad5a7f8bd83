"""The reference: nothing happens to the colours."""

from __future__ import annotations

from holdfast.core.registry import stage
from holdfast.core.types import Image


@stage("colour", systems="training on decoded RGB pixels")
def rgb(image: Image) -> Image:
    """The pixels as decoded."""
    return image
