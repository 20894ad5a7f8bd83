"""The pictograms of the signs, each a function that draws itself in unit coordinates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from holdfast.data.signs.strokes import (
    Pixels,
    PointLike,
    Points,
    arc,
    arrow,
    disc,
    polygon,
    rectangle,
    stroke,
)

Ink = Sequence[int]
Glyph = Callable[[Pixels, Ink], None]

_RED: Final = (200, 22, 30, 255)


def _draw_arrow(image: Pixels, path: PointLike, ink: Ink, width: float = 0.25, head: float = 0.42) -> None:
    shaft, triangle = arrow(path, width, head)
    stroke(image, shaft, width, ink)
    polygon(image, triangle, ink)


def go_straight(image: Pixels, ink: Ink) -> None:
    """An arrow up."""
    _draw_arrow(image, [(0, 0.6), (0, -0.68)], ink, 0.28, 0.52)


def turn_left(image: Pixels, ink: Ink) -> None:
    """An arrow from below that bends to the left."""
    bend = np.concatenate(
        [[(0.32, 0.58), (0.32, 0.2)], arc(0.08, 0.08, 0.24, 0.24, 0, -90, 12), [(-0.68, -0.16)]]
    )
    _draw_arrow(image, bend, ink, 0.26, 0.48)


def turn_right(image: Pixels, ink: Ink) -> None:
    """An arrow from below that bends to the right."""
    bend = np.concatenate(
        [[(-0.32, 0.58), (-0.32, 0.2)], arc(-0.08, 0.08, 0.24, 0.24, 180, 270, 12), [(0.68, -0.16)]]
    )
    _draw_arrow(image, bend, ink, 0.26, 0.48)


def roundabout(image: Pixels, ink: Ink) -> None:
    """Three arrows that chase one another anticlockwise."""
    for start in (90, 210, 330):
        path = arc(0, 0, 0.5, 0.5, start, start - 88, 24)
        stroke(image, path[:-6], 0.2, ink)
        tip = arc(0, 0, 0.5, 0.5, start - 70, start - 104, 2)
        polygon(image, arrow(tip, 0.2, 0.36)[1], ink)


def _walker(image: Pixels, ink: Ink, x: float, y: float, scale: float, facing: float) -> None:
    def at(*points: tuple[float, float]) -> Points:
        return np.array([(x + facing * scale * px, y + scale * py) for px, py in points])

    disc(image, x + facing * scale * 0.05, y - scale * 0.74, scale * 0.17, ink)
    polygon(image, at((-0.16, -0.5), (0.18, -0.5), (0.14, 0.12), (-0.16, 0.12)), ink)
    limb = 0.15 * scale
    stroke(image, at((0.04, 0.06), (0.2, 0.42), (0.38, 0.84)), limb * 1.15, ink)
    stroke(image, at((-0.04, 0.06), (-0.16, 0.46), (-0.46, 0.8)), limb * 1.15, ink)
    stroke(image, at((0.08, -0.42), (0.32, -0.16), (0.5, -0.02)), limb, ink)
    stroke(image, at((-0.08, -0.42), (-0.32, -0.18), (-0.4, 0.1)), limb, ink)


def footpath(image: Pixels, ink: Ink) -> None:
    """A walking person."""
    _walker(image, ink, 0.0, 0.0, 0.78, -1.0)


def children(image: Pixels, ink: Ink) -> None:
    """Two children who run hand in hand."""
    _walker(image, ink, -0.2, 0.3, 0.4, 1.0)
    _walker(image, ink, 0.22, 0.22, 0.5, 1.0)


def cycle_path(image: Pixels, ink: Ink) -> None:
    """A bicycle from the side."""
    for x in (-0.42, 0.42):
        stroke(image, arc(x, 0.2, 0.27, 0.27, 0, 360), 0.1, ink, closed=True)
    pedal, saddle, steer = (-0.04, 0.2), (-0.18, -0.2), (0.28, -0.24)
    stroke(image, [(-0.42, 0.2), saddle, pedal, (-0.42, 0.2)], 0.09, ink)
    stroke(image, [saddle, steer, pedal], 0.09, ink)
    stroke(image, [(0.42, 0.2), (0.24, -0.4), (0.44, -0.44)], 0.09, ink)
    stroke(image, [(-0.32, -0.3), (-0.08, -0.3)], 0.12, ink)
    stroke(image, [saddle, (-0.2, -0.3)], 0.09, ink)


def bar(image: Pixels, ink: Ink) -> None:
    """A horizontal bar."""
    polygon(image, rectangle(-0.68, -0.17, 0.68, 0.17), ink)


def truck(image: Pixels, ink: Ink) -> None:
    """A lorry from the side."""
    polygon(image, rectangle(-0.6, -0.34, 0.12, 0.2), ink)
    polygon(image, [(0.18, -0.16), (0.4, -0.16), (0.58, 0.04), (0.58, 0.2), (0.18, 0.2)], ink)
    polygon(image, rectangle(-0.6, 0.14, 0.5, 0.24), ink)
    for x in (-0.38, 0.36):
        disc(image, x, 0.26, 0.17, (255, 255, 255, 255))
        disc(image, x, 0.26, 0.13, ink)


def _car(image: Pixels, ink: Ink, x: float) -> None:
    body = [
        (-0.24, 0.2),
        (-0.24, -0.02),
        (-0.15, -0.08),
        (-0.1, -0.3),
        (0.1, -0.3),
        (0.15, -0.08),
        (0.24, -0.02),
        (0.24, 0.2),
    ]
    polygon(image, [(x + px, py) for px, py in body], ink)
    for side in (-0.17, 0.17):
        polygon(image, rectangle(x + side - 0.06, 0.18, x + side + 0.06, 0.32), ink)
    polygon(
        image,
        [(x - 0.1, -0.09), (x - 0.07, -0.23), (x + 0.07, -0.23), (x + 0.1, -0.09)],
        (255, 255, 255, 255),
    )


def two_cars(image: Pixels, ink: Ink) -> None:
    """A red car beside one in the ink's colour."""
    _car(image, _RED, -0.31)
    _car(image, ink, 0.31)


def _digit(image: Pixels, ink: Ink, digit: str, x: float) -> None:
    w, h, pen = 0.185, 0.37, 0.15
    if digit == "0":
        path = np.concatenate([arc(x, -h + w, w, w, 180, 360, 24), arc(x, h - w, w, w, 0, 180, 24)])
        stroke(image, path, pen, ink, closed=True)
    elif digit == "3":
        upper = arc(x, -h / 2, w, h / 2, 200, 450, 32)
        stroke(image, upper, pen, ink)
        stroke(image, arc(x, h / 2, w * 1.06, h / 2, -90, 160, 32), pen, ink)
    elif digit == "5":
        stroke(image, [(x + w, -h), (x - w * 0.8, -h), (x - w * 0.95, -0.03)], pen, ink)
        bowl = arc(x - w * 0.1, 0.13, w * 1.15, h * 0.66, -140, 145, 32)
        stroke(image, bowl, pen, ink)
    else:
        stroke(image, arc(x, -h / 2 - 0.005, w * 0.88, h / 2, 0, 360), pen * 0.95, ink, closed=True)
        stroke(image, arc(x, h / 2, w * 1.08, h / 2, 0, 360), pen * 0.95, ink, closed=True)


def number(text: str) -> Glyph:
    """A glyph of two digits."""

    def draw(image: Pixels, ink: Ink) -> None:
        _digit(image, ink, text[0], -0.3)
        _digit(image, ink, text[1], 0.3)

    return draw


def stop_word(image: Pixels, ink: Ink) -> None:
    """The word STOP."""
    pen, h = 0.12, 0.24
    stroke(
        image,
        np.concatenate(
            [arc(-0.57, -h / 2, 0.13, h / 2, -20, -270, 20), arc(-0.57, h / 2, 0.13, h / 2, -90, 160, 20)]
        ),
        pen,
        ink,
    )
    stroke(image, [(-0.36, -h), (-0.04, -h)], pen, ink)
    stroke(image, [(-0.2, -h), (-0.2, h)], pen, ink)
    stroke(image, arc(0.2, 0, 0.14, h, 0, 360), pen, ink, closed=True)
    stroke(image, [(0.5, h), (0.5, -h), (0.6, -h)], pen, ink)
    stroke(
        image,
        np.concatenate([[(0.5, -h)], arc(0.6, -h / 2, 0.12, h / 2, -90, 90, 20), [(0.5, 0.0)]]),
        pen,
        ink,
    )


def curve_left(image: Pixels, ink: Ink) -> None:
    """A road that bends to the left, with an arrowhead."""
    path = np.concatenate(
        [[(0.18, 0.66), (0.18, 0.4)], arc(-0.22, 0.36, 0.4, 0.4, 0, -52, 16), [(-0.24, -0.14)]]
    )
    _draw_arrow(image, path, ink, 0.16, 0.34)


def curve_right(image: Pixels, ink: Ink) -> None:
    """A road that bends to the right, with an arrowhead."""
    path = np.concatenate(
        [[(-0.18, 0.66), (-0.18, 0.4)], arc(0.22, 0.36, 0.4, 0.4, 180, 232, 16), [(0.24, -0.14)]]
    )
    _draw_arrow(image, path, ink, 0.16, 0.34)


def crossroads(image: Pixels, ink: Ink) -> None:
    """A cross."""
    polygon(image, rectangle(-0.1, -0.2, 0.1, 0.68), ink)
    polygon(image, rectangle(-0.4, 0.16, 0.4, 0.36), ink)


def signals(image: Pixels, ink: Ink) -> None:
    """A traffic light with its three lamps."""
    polygon(image, rectangle(-0.18, -0.26, 0.18, 0.66), ink)
    for y, lamp in ((-0.1, (225, 30, 30, 255)), (0.2, (250, 225, 90, 255)), (0.5, (30, 190, 80, 255))):
        disc(image, 0, y, 0.12, lamp)


def exclamation(image: Pixels, ink: Ink) -> None:
    """An exclamation mark."""
    polygon(image, [(-0.12, -0.28), (0.12, -0.28), (0.065, 0.32), (-0.065, 0.32)], ink)
    disc(image, 0, 0.54, 0.11, ink)


GLYPHS: Final[dict[str, Glyph]] = {
    "go-straight": go_straight,
    "turn-left": turn_left,
    "turn-right": turn_right,
    "roundabout": roundabout,
    "footpath": footpath,
    "cycle-path": cycle_path,
    "stop": stop_word,
    "no-entry": bar,
    "no-trucks": truck,
    "no-overtaking": two_cars,
    "speed-limit-30": number("30"),
    "speed-limit-50": number("50"),
    "speed-limit-80": number("80"),
    "curve-left": curve_left,
    "curve-right": curve_right,
    "crossroads": crossroads,
    "children": children,
    "traffic-signals": signals,
    "danger": exclamation,
}
