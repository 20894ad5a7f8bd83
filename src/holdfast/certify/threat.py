"""How far a patch spreads from the pixels where it lives to the pixels that are masked.

A mask removes a patch if it hides every pixel that depends on it. Each pixel of the patch changes an interval
of columns and of rows of what is masked: of the JPEG blocks it is in, and of the resized pixels whose filter
reaches it. The *effective* mask is the largest rectangle of patch pixels whose intervals the mask contains.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from holdfast.core.errors import InputError
from holdfast.core.model import Card
from holdfast.core.pipeline import Frame, Pipeline, frame_of
from holdfast.core.registry import lookup
from holdfast.core.types import Ints, Size
from holdfast.data.images import Encoding
from holdfast.stages.defence import Where

Threat: TypeAlias = Literal["decoded", "scene", "input"]
WORDS: dict[Threat, str] = {
    "decoded": "replaces pixels of the decoded image",
    "scene": "is in the scene before the image is compressed",
    "input": "replaces pixels of the network's input",
}
# Radius of a filter in pixels of the smaller of source and result, by a word in the name of the resize.
RADII = {
    "nearest": 0.5,
    "box": 0.5,
    "area": 1.0,
    "bilinear": 1.0,
    "hamming": 1.0,
    "bicubic": 2.0,
    "lanczos": 4.0,
}
# Decoders of the libjpeg family: chroma is interpolated over one pixel beyond a block at most.
DECODERS = ("pillow", "opencv", "ijg", "fast-idct", "float-dct", "no-fancy-upsampling", "tensorflow")


class Reach(NamedTuple):
    """Per pixel of one axis of the patch's image: the first masked pixel it changes, and the end of them."""

    first: Ints
    end: Ints

    def then(self, other: Reach) -> Reach:
        """The reach through both steps, one after the other."""
        last = np.maximum(self.end - 1, self.first)
        return Reach(other.first[self.first], np.maximum(other.end[last], other.first[self.first]))


@dataclass(frozen=True)
class Spread:
    """The reach of a patch in an image: columns and rows."""

    columns: Reach
    rows: Reach
    size: Size  # of the image that the patch is in

    def effective(self, masks: Ints) -> Ints:
        """The masks (n, 4) in the pixels of the patch; one that removes no patch is empty."""
        found = []
        for x1, y1, x2, y2 in masks.tolist():
            (left, right), (top, bottom) = _inside(self.columns, x1, x2), _inside(self.rows, y1, y2)
            empty = left >= right or top >= bottom
            found.append([0, 0, 0, 0] if empty else [left, top, right, bottom])
        return np.array(found, np.int64).reshape(-1, 4)


def _inside(reach: Reach, low: int, high: int) -> tuple[int, int]:
    """The pixels whose whole reach is in low … high − 1. Both ends of a reach grow with the pixel."""
    inside = np.flatnonzero((reach.first >= low) & (reach.end <= high))
    return (int(inside[0]), int(inside[-1]) + 1) if len(inside) else (0, 0)


def spread_of(
    threat: Threat, where: Where, size: Size, frame: Frame, encoding: Encoding, resize: str
) -> Spread:
    """How far a patch in an image of that size spreads before it is masked."""
    if threat == "input":
        return Spread(_identity(frame.network.width), _identity(frame.network.height), frame.network)
    columns, rows = _identity(size.width), _identity(size.height)
    if threat == "scene":
        (wide, tall), margin = encoding.blocks, encoding.margin
        columns, rows = blocks(size.width, wide, margin), blocks(size.height, tall, margin)
    if where == "input":
        net, new, radius = frame.network, frame.resized, radius_of(resize)
        x, y = frame.offset_x, frame.offset_y
        columns = columns.then(resized(size.width, new.width, radius, x, net.width))
        rows = rows.then(resized(size.height, new.height, radius, y, net.height))
    return Spread(columns, rows, size)


def _identity(side: int) -> Reach:
    return Reach(np.arange(side), np.arange(side) + 1)


def blocks(side: int, block: int, margin: int) -> Reach:
    """The reach through blocks of a codec, and `margin` pixels beyond them; blocks of 1 keep every pixel."""
    if block <= 1:
        return _identity(side)
    low = np.arange(side) // block * block
    return Reach(np.maximum(low - margin, 0), np.minimum(low + block + margin, side))


def resized(source: int, result: int, radius: float, offset: int, side: int) -> Reach:
    """The reach through a resize of one axis and its place in the network's input of `side` pixels.

    Pixel j of the result is at (j + ½) s of the source, s = source / result, and depends on source pixels
    nearer than radius · max(1, s). One source pixel and one result pixel more cover other conventions.
    """
    scale = source / result
    wide = radius * max(1.0, scale) + 1.0 + scale
    at = np.arange(source) + 0.5
    first = np.floor((at - wide) / scale - 0.5).astype(np.int64)
    end = np.ceil((at + wide) / scale - 0.5).astype(np.int64) + 1
    # Clipped to the resized image, then to the input, of which a crop may be a part.
    first, end = np.clip(first, 0, result - 1) + offset, np.clip(end, 1, result) + offset
    return Reach(np.clip(first, 0, side - 1), np.clip(end, 0, side))


def radius_of(resize: str) -> float:
    """The radius of a resize filter; InputError if it is not known."""
    known = [radius for word, radius in RADII.items() if word in resize]
    if not known or resize.startswith("resized-twice"):
        raise InputError(
            f"--masks input: how far the resize {resize} spreads a patch is not known; use --masks scene"
        )
    return max(known)


def check_threat(threat: Threat, where: Where, pipeline: Pipeline) -> None:
    """Raise InputError if it is not known how far the patch spreads in this pipeline."""
    if threat == "input" and where == "scene":
        raise InputError("--threat input: a patch in the network's input needs --masks input")
    if threat == "scene" and (not isinstance(pipeline.decode, str) or pipeline.decode not in DECODERS):
        names = ", ".join(DECODERS)
        raise InputError(f"--threat scene: expected one of the decoders {names}, got {pipeline.decode}")
    if threat != "input" and where == "input":
        if pipeline.colour != "rgb":
            raise InputError(f"--masks input: expected the colour stage rgb, got {pipeline.colour}")
        if not isinstance(pipeline.resize, str):
            raise InputError("--masks input: expected a named resize, got a function; use --masks scene")
        radius_of(pipeline.resize)


def frame_for(size: Size, card: Card, pipeline: Pipeline) -> Frame:
    """Where an image of that size is in the network's input."""
    return frame_of(size, lookup("fit", pipeline.fit)(card.input))
