"""The faces of the 20 signs as RGBA squares, drawn once and kept at several sizes, and their pictograms."""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Final

import cv2
import numpy as np
from numpy.typing import ArrayLike

from holdfast.core.types import Floats, Image
from holdfast.data.signs.canvas import CLASSES, GROUP_OF, arc, arrow, box, disc, frozen, polygon, stroke

Ink = Sequence[int]
Glyph = Callable[[Image, Ink], None]

SIZE: Final = 256
_DRAWN: Final = 2 * SIZE

_BLUE: Final = (24, 86, 178, 255)
_RED: Final = (204, 24, 32, 255)
_YELLOW: Final = (250, 200, 16, 255)
_WHITE: Final = (246, 246, 244, 255)
_BLACK: Final = (22, 22, 24, 255)
_CAR_RED: Final = (200, 22, 30, 255)


def _blank(colour: Ink) -> Image:
    """A transparent square that already has the rim's colour, so that resizing leaves no dark fringe."""
    image = np.empty((_DRAWN, _DRAWN, 4), dtype=np.uint8)
    image[:] = (*colour[:3], 0)
    return image


def _triangle(scale: float, radius: float) -> Floats:
    """A triangle as wide as the square, with corners rounded by `radius`, about its inner circle's centre."""
    centre = np.array([0.0, 0.22])
    corners = centre + (np.array([(0.0, -1.05), (1.06, 0.86), (-1.06, 0.86)]) - centre) * scale
    out = []
    t = np.linspace(0, 1, 9)[:, None]
    for here, before, after in zip(corners, np.roll(corners, 1, 0), np.roll(corners, -1, 0), strict=True):
        a = here + (before - here) / np.linalg.norm(before - here) * radius
        b = here + (after - here) / np.linalg.norm(after - here) * radius
        out.append((1 - t) ** 2 * a + 2 * t * (1 - t) * here + t**2 * b)
    return np.concatenate(out)


def _mandatory(name: str) -> Image:
    image = _blank(_WHITE)
    disc(image, 0, 0, 0.985, _WHITE)
    disc(image, 0, 0, 0.935, _BLUE)
    GLYPHS[name](image, _WHITE)
    return image


def _prohibitory(name: str) -> Image:
    if name == "stop":
        image = _blank(_WHITE)
        for radius, colour in ((1.06, _WHITE), (0.97, _RED)):
            polygon(image, arc(0, 0, radius, radius, 22.5, 337.5, 8), colour)
        GLYPHS[name](image, _WHITE)
        return image
    image = _blank(_RED)
    disc(image, 0, 0, 0.985, _RED)
    if name == "no-entry":
        GLYPHS[name](image, _WHITE)
    elif name == "no-parking":
        disc(image, 0, 0, 0.78, _BLUE)
        for end in ((0.6, 0.6), (-0.6, 0.6)):
            stroke(image, [(-end[0], -end[1]), end], 0.17, _RED)
    else:
        disc(image, 0, 0, 0.77, _WHITE)
        GLYPHS[name](image, _BLACK)
        if name == "no-trucks":
            stroke(image, [(-0.58, -0.58), (0.58, 0.58)], 0.14, _RED)
    return image


def _warning(name: str) -> Image:
    image = _blank(_YELLOW)
    polygon(image, _triangle(1.0, 0.24), _YELLOW)
    polygon(image, _triangle(0.95, 0.22), _BLACK)
    polygon(image, _triangle(0.8, 0.14), _YELLOW)
    GLYPHS[name](image, _BLACK)
    return image


@lru_cache(maxsize=256)
def face(index: int, size: int = SIZE) -> Image:
    """The face of class `index` as read-only RGBA (size, size, 4); what is outside the sign has alpha 0."""
    draw = (_mandatory, _prohibitory, _warning)[GROUP_OF[index]]
    source = draw(CLASSES[index]) if size == SIZE else face(index, SIZE)
    return frozen(cv2.resize(source, (size, size), interpolation=cv2.INTER_AREA))


def nearest_size(pixels: float) -> int:
    """The smallest kept size (32, 64, 128 or 256) that is not below `pixels`."""
    return next((size for size in (32, 64, 128) if pixels <= size), SIZE)


def _arrow(width: float, head: float, *parts: ArrayLike) -> Glyph:
    shaft, triangle = arrow(np.concatenate(parts), width, head)

    def draw(image: Image, ink: Ink) -> None:
        stroke(image, shaft, width, ink)
        polygon(image, triangle, ink)

    return draw


def _boxes(image: Image, ink: Ink, boxes: Sequence[tuple[float, float, float, float]]) -> None:
    for corners in boxes:
        polygon(image, box(*corners), ink)


def _roundabout(image: Image, ink: Ink) -> None:
    for start in (90, 210, 330):
        path = arc(0, 0, 0.5, 0.5, start, start - 88, 24)
        stroke(image, path[:-6], 0.2, ink)
        tip = arc(0, 0, 0.5, 0.5, start - 70, start - 104, 2)
        polygon(image, arrow(tip, 0.2, 0.36)[1], ink)


def _walker(image: Image, ink: Ink, x: float, y: float, scale: float, facing: float) -> None:
    def at(*points: tuple[float, float]) -> Floats:
        return np.array([(x + facing * scale * px, y + scale * py) for px, py in points])

    disc(image, x + facing * scale * 0.05, y - scale * 0.74, scale * 0.17, ink)
    polygon(image, at((-0.16, -0.5), (0.18, -0.5), (0.14, 0.12), (-0.16, 0.12)), ink)
    limb = 0.15 * scale
    stroke(image, at((0.04, 0.06), (0.2, 0.42), (0.38, 0.84)), limb * 1.15, ink)
    stroke(image, at((-0.04, 0.06), (-0.16, 0.46), (-0.46, 0.8)), limb * 1.15, ink)
    stroke(image, at((0.08, -0.42), (0.32, -0.16), (0.5, -0.02)), limb, ink)
    stroke(image, at((-0.08, -0.42), (-0.32, -0.18), (-0.4, 0.1)), limb, ink)


def _children(image: Image, ink: Ink) -> None:
    _walker(image, ink, -0.2, 0.3, 0.4, 1.0)
    _walker(image, ink, 0.22, 0.22, 0.5, 1.0)


def _cycle_path(image: Image, ink: Ink) -> None:
    for x in (-0.42, 0.42):
        stroke(image, arc(x, 0.2, 0.27, 0.27, 0, 360), 0.1, ink, closed=True)
    pedal, saddle, steer = (-0.04, 0.2), (-0.18, -0.2), (0.28, -0.24)
    stroke(image, [(-0.42, 0.2), saddle, pedal, (-0.42, 0.2)], 0.09, ink)
    stroke(image, [saddle, steer, pedal], 0.09, ink)
    stroke(image, [(0.42, 0.2), (0.24, -0.4), (0.44, -0.44)], 0.09, ink)
    stroke(image, [(-0.32, -0.3), (-0.08, -0.3)], 0.12, ink)
    stroke(image, [saddle, (-0.2, -0.3)], 0.09, ink)


def _truck(image: Image, ink: Ink) -> None:
    polygon(image, box(-0.6, -0.34, 0.12, 0.2), ink)
    polygon(image, [(0.18, -0.16), (0.4, -0.16), (0.58, 0.04), (0.58, 0.2), (0.18, 0.2)], ink)
    polygon(image, box(-0.6, 0.14, 0.5, 0.24), ink)
    for x in (-0.38, 0.36):
        disc(image, x, 0.26, 0.17, (255, 255, 255, 255))
        disc(image, x, 0.26, 0.13, ink)


def _car(image: Image, ink: Ink, x: float) -> None:
    right = np.array([(0.1, -0.3), (0.15, -0.08), (0.24, -0.02), (0.24, 0.2)])
    body = np.concatenate([right[::-1] * (-1, 1), right])
    polygon(image, body + np.array((x, 0.0)), ink)
    for side in (-0.17, 0.17):
        polygon(image, box(x + side - 0.06, 0.18, x + side + 0.06, 0.32), ink)
    window = [(x - 0.1, -0.09), (x - 0.07, -0.23), (x + 0.07, -0.23), (x + 0.1, -0.09)]
    polygon(image, window, (255, 255, 255, 255))


def _two_cars(image: Image, ink: Ink) -> None:
    _car(image, _CAR_RED, -0.31)
    _car(image, ink, 0.31)


def _digit(image: Image, ink: Ink, digit: str, x: float) -> None:
    w, h, pen = 0.185, 0.37, 0.15
    if digit == "0":
        path = np.concatenate([arc(x, -h + w, w, w, 180, 360, 24), arc(x, h - w, w, w, 0, 180, 24)])
        stroke(image, path, pen, ink, closed=True)
    elif digit == "3":
        stroke(image, arc(x, -h / 2, w, h / 2, 200, 450, 32), pen, ink)
        stroke(image, arc(x, h / 2, w * 1.06, h / 2, -90, 160, 32), pen, ink)
    elif digit == "5":
        stroke(image, [(x + w, -h), (x - w * 0.8, -h), (x - w * 0.95, -0.03)], pen, ink)
        stroke(image, arc(x - w * 0.1, 0.13, w * 1.15, h * 0.66, -140, 145, 32), pen, ink)
    else:
        stroke(image, arc(x, -h / 2 - 0.005, w * 0.88, h / 2, 0, 360), pen * 0.95, ink, closed=True)
        stroke(image, arc(x, h / 2, w * 1.08, h / 2, 0, 360), pen * 0.95, ink, closed=True)


def _number(image: Image, ink: Ink, text: str) -> None:
    _digit(image, ink, text[0], -0.3)
    _digit(image, ink, text[1], 0.3)


def _stop_word(image: Image, ink: Ink) -> None:
    pen, h = 0.12, 0.24
    s = [arc(-0.57, -h / 2, 0.13, h / 2, -20, -270, 20), arc(-0.57, h / 2, 0.13, h / 2, -90, 160, 20)]
    stroke(image, np.concatenate(s), pen, ink)
    stroke(image, [(-0.36, -h), (-0.04, -h)], pen, ink)
    stroke(image, [(-0.2, -h), (-0.2, h)], pen, ink)
    stroke(image, arc(0.2, 0, 0.14, h, 0, 360), pen, ink, closed=True)
    stroke(image, [(0.5, h), (0.5, -h), (0.6, -h)], pen, ink)
    bowl = np.concatenate([[(0.5, -h)], arc(0.6, -h / 2, 0.12, h / 2, -90, 90, 20), [(0.5, 0.0)]])
    stroke(image, bowl, pen, ink)


def _signals(image: Image, ink: Ink) -> None:
    polygon(image, box(-0.18, -0.26, 0.18, 0.66), ink)
    for y, lamp in ((-0.1, (225, 30, 30, 255)), (0.2, (250, 225, 90, 255)), (0.5, (30, 190, 80, 255))):
        disc(image, 0, y, 0.12, lamp)


def _exclamation(image: Image, ink: Ink) -> None:
    polygon(image, [(-0.12, -0.28), (0.12, -0.28), (0.065, 0.32), (-0.065, 0.32)], ink)
    disc(image, 0, 0.54, 0.11, ink)


_LEFT, _RIGHT = arc(0.08, 0.08, 0.24, 0.24, 0, -90, 12), arc(-0.08, 0.08, 0.24, 0.24, 180, 270, 12)
_BEND_LEFT, _BEND_RIGHT = arc(-0.22, 0.36, 0.4, 0.4, 0, -52, 16), arc(0.22, 0.36, 0.4, 0.4, 180, 232, 16)
GLYPHS: Final[dict[str, Glyph]] = {
    "go-straight": _arrow(0.28, 0.52, [(0, 0.6), (0, -0.68)]),
    "turn-left": _arrow(0.26, 0.48, [(0.32, 0.58), (0.32, 0.2)], _LEFT, [(-0.68, -0.16)]),
    "turn-right": _arrow(0.26, 0.48, [(-0.32, 0.58), (-0.32, 0.2)], _RIGHT, [(0.68, -0.16)]),
    "roundabout": _roundabout,
    "footpath": partial(_walker, x=0.0, y=0.0, scale=0.78, facing=-1.0),
    "cycle-path": _cycle_path,
    "stop": _stop_word,
    "no-entry": partial(_boxes, boxes=[(-0.68, -0.17, 0.68, 0.17)]),
    "no-trucks": _truck,
    "no-overtaking": _two_cars,
    **{f"speed-limit-{speed}": partial(_number, text=speed) for speed in ("30", "50", "80")},
    "curve-left": _arrow(0.16, 0.34, [(0.18, 0.66), (0.18, 0.4)], _BEND_LEFT, [(-0.24, -0.14)]),
    "curve-right": _arrow(0.16, 0.34, [(-0.18, 0.66), (-0.18, 0.4)], _BEND_RIGHT, [(0.24, -0.14)]),
    "crossroads": partial(_boxes, boxes=[(-0.1, -0.2, 0.1, 0.68), (-0.4, 0.16, 0.4, 0.36)]),
    "children": _children,
    "traffic-signals": _signals,
    "danger": _exclamation,
}
