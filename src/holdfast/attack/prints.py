"""Patches of a shape as PNG files to print."""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.attack.result import Attempt
from holdfast.attack.shapes import outline
from holdfast.attack.types import PatchShape, Sticker
from holdfast.core.patch import Patch, nearest
from holdfast.core.text import printable
from holdfast.core.types import Image

PRINTS = "prints"  # the folder of these files
PER_METRE = 11811  # 300 dpi
ENLARGED = 20  # factor if the width of the object is not known
LARGEST = 8000  # pixels a side; larger patches are printed at fewer dots per inch


@dataclass(frozen=True)
class PrintSize:
    """The size of a printed patch: its side in pixels and centimetres, and its dots per metre.

    Without the width of the object, centimetres and dots per metre are None.
    """

    pixels: int
    centimetres: float | None = None
    per_metre: int | None = None


def print_size(sticker: Sticker) -> PrintSize:
    """300 dots per inch; 20 times enlarged if the size in centimetres is not known.

    No pixel of the patch is lost: a finely resolved patch has more dots per inch.
    """
    side, centimetres = sticker.side, sticker.centimetres
    if not centimetres:
        return PrintSize(max(side, min(ENLARGED, LARGEST // side) * side))
    wanted = round(PER_METRE * centimetres / 100)
    pixels = min(max(wanted, side), max(side, LARGEST))
    per_metre = PER_METRE if pixels == wanted else round(100 * pixels / centimetres)
    return PrintSize(pixels, centimetres, per_metre)


def cut_out(patch: Patch, sticker: Sticker, shape: PatchShape) -> Image:
    """(side, side, 4): the pixels of one shape, transparent outside."""
    part = np.s_[sticker.y : sticker.y + sticker.side, sticker.x : sticker.x + sticker.side]
    inside = outline(shape, sticker.side)
    pixels = np.where(inside[..., None], patch.pixels[part], 0)
    cut: Image = np.dstack([pixels, np.where(inside, 255, 0)]).astype(np.uint8)
    return cut


def print_png(rgba: Image, size: PrintSize) -> bytes:
    """The cut-out patch as a PNG of this size, enlarged without interpolation."""
    from PIL import Image as Pillow

    index = nearest(len(rgba), size.pixels)
    out = io.BytesIO()
    picture = Pillow.fromarray(np.ascontiguousarray(rgba[index[:, None], index]))
    if size.per_metre is None:
        picture.save(out, "PNG", compress_level=6)
    else:
        inches = size.per_metre * 0.0254  # Pillow rounds dots per inch to whole dots per metre
        picture.save(out, "PNG", compress_level=6, dpi=(inches, inches))
    return out.getvalue()


def prints_of(attempt: Attempt, shape: PatchShape) -> Iterator[tuple[Image, PrintSize]]:
    """Each cut-out patch of an attacked image, and the size at which it is printed."""
    for sticker in attempt.stickers:
        yield cut_out(attempt.patch, sticker, shape), print_size(sticker)


def print_name(stem: str, number: int) -> str:
    """The file of a patch in the folder of results: `stem` is the name of its image, `number` starts at 0."""
    return f"{PRINTS}/{stem}-{number + 1}.png"


def describe_prints(attempt: Attempt, stem: str, shape: PatchShape) -> list[dict[str, Any]]:
    """The patches of an image as JSON values: file, position and side in the image, size in print."""
    rows = []
    prints = zip(attempt.stickers, prints_of(attempt, shape), strict=True)
    for number, (sticker, (rgba, size)) in enumerate(prints):
        row = {
            "file": printable(print_name(stem, number)),
            "x": sticker.x,
            "y": sticker.y,
            "side": sticker.side,
        }
        row |= {"pixels": int((rgba[..., 3] > 0).sum()), "print_pixels": size.pixels}
        rows.append(row | {"centimetres": size.centimetres, "dots_per_metre": size.per_metre})
    return rows
