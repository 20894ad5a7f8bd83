"""The faces of the 20 signs as RGBA squares, drawn once and kept at several sizes."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import cv2
import numpy as np

from holdfast.data.signs.catalogue import CLASSES, GROUP_OF
from holdfast.data.signs.glyphs import GLYPHS
from holdfast.data.signs.strokes import Colour, Pixels, Points, arc, disc, polygon, stroke

SIZE: Final = 256
_DRAWN: Final = 2 * SIZE

_BLUE: Final = (24, 86, 178)
_RED: Final = (204, 24, 32)
_YELLOW: Final = (250, 200, 16)
_WHITE: Final = (246, 246, 244)
_BLACK: Final = (22, 22, 24)


def _opaque(colour: Colour) -> tuple[int, int, int, int]:
    return (*colour, 255)


def _blank(colour: Colour) -> Pixels:
    """A transparent square that already has the rim's colour, so that resizing leaves no dark fringe."""
    image = np.empty((_DRAWN, _DRAWN, 4), dtype=np.uint8)
    image[:] = (*colour, 0)
    return image


def _rounded(corners: Points, radius: float) -> Points:
    """The outline of a polygon whose corners are rounded by `radius`."""
    out = []
    count = len(corners)
    for i in range(count):
        here, before, after = corners[i], corners[i - 1], corners[(i + 1) % count]
        a = here + (before - here) / np.linalg.norm(before - here) * radius
        b = here + (after - here) / np.linalg.norm(after - here) * radius
        t = np.linspace(0, 1, 9)[:, None]
        out.append((1 - t) ** 2 * a + 2 * t * (1 - t) * here + t**2 * b)
    return np.concatenate(out)


def _triangle(scale: float, radius: float) -> Points:
    """A rounded triangle about the centre of the face's inner circle; the face fills the square's width."""
    corners = np.array([(0.0, -1.05), (1.06, 0.86), (-1.06, 0.86)])
    centre = np.array([0.0, 0.22])
    return _rounded(centre + (corners - centre) * scale, radius)


def _mandatory(name: str) -> Pixels:
    image = _blank(_WHITE)
    disc(image, 0, 0, 0.985, _opaque(_WHITE))
    disc(image, 0, 0, 0.935, _opaque(_BLUE))
    GLYPHS[name](image, _opaque(_WHITE))
    return image


def _prohibitory(name: str) -> Pixels:
    if name == "stop":
        image = _blank(_WHITE)
        for radius, colour in ((1.06, _WHITE), (0.97, _RED)):
            polygon(image, arc(0, 0, radius, radius, 22.5, 337.5, 8), _opaque(colour))
        GLYPHS[name](image, _opaque(_WHITE))
        return image
    image = _blank(_RED)
    disc(image, 0, 0, 0.985, _opaque(_RED))
    if name == "no-entry":
        GLYPHS[name](image, _opaque(_WHITE))
    elif name == "no-parking":
        disc(image, 0, 0, 0.78, _opaque(_BLUE))
        for end in ((0.6, 0.6), (-0.6, 0.6)):
            stroke(image, [(-end[0], -end[1]), end], 0.17, _opaque(_RED))
    else:
        disc(image, 0, 0, 0.77, _opaque(_WHITE))
        GLYPHS[name](image, _opaque(_BLACK))
        if name == "no-trucks":
            stroke(image, [(-0.58, -0.58), (0.58, 0.58)], 0.14, _opaque(_RED))
    return image


def _warning(name: str) -> Pixels:
    image = _blank(_YELLOW)
    polygon(image, _triangle(1.0, 0.24), _opaque(_YELLOW))
    polygon(image, _triangle(0.95, 0.22), _opaque(_BLACK))
    polygon(image, _triangle(0.8, 0.14), _opaque(_YELLOW))
    GLYPHS[name](image, _opaque(_BLACK))
    return image


@lru_cache(maxsize=256)
def face(index: int, size: int = SIZE) -> Pixels:
    """The face of class `index` as read-only RGBA (size, size, 4); what is outside the sign has alpha 0."""
    if size == SIZE:
        draw = (_mandatory, _prohibitory, _warning)[GROUP_OF[index]]
        source = draw(CLASSES[index])
    else:
        source = face(index, SIZE)
    image: Pixels = cv2.resize(source, (size, size), interpolation=cv2.INTER_AREA)
    image.flags.writeable = False
    return image


def nearest_size(pixels: float) -> int:
    """The smallest kept size (32, 64, 128 or 256) that is not below `pixels`."""
    for size in (32, 64, 128):
        if pixels <= size:
            return size
    return SIZE
