"""Anti-aliased drawing in unit coordinates (x right, y down, both -1..1) on square arrays."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.uint8]
Points = npt.NDArray[np.float64]
Colour = tuple[int, int, int]
PointLike = Points | Sequence[tuple[float, float]]

# OpenCV draws with this many fractional bits: edges move by 1/16 px, not by whole ones
_BITS = 4


def fixed(points: PointLike, size: int) -> npt.NDArray[np.int32]:
    """Unit points as fixed-point pixel coordinates (n, 1, 2) of a square of `size` pixels."""
    xy = (np.asarray(points, dtype=np.float64) + 1.0) * (0.5 * size) - 0.5
    return np.rint(xy * (1 << _BITS)).astype(np.int32).reshape(-1, 1, 2)


def polygon(image: Pixels, points: PointLike, colour: Sequence[int]) -> None:
    """Fill a polygon."""
    cv2.fillPoly(image, [fixed(points, image.shape[0])], tuple(colour), cv2.LINE_AA, _BITS)


def stroke(
    image: Pixels, points: PointLike, width: float, colour: Sequence[int], *, closed: bool = False
) -> None:
    """Draw a polyline of a width given in unit lengths, with round ends."""
    size = image.shape[0]
    pixels = max(1, round(width * size / 2))
    cv2.polylines(image, [fixed(points, size)], closed, tuple(colour), pixels, cv2.LINE_AA, _BITS)


def arc(x: float, y: float, rx: float, ry: float, start: float, stop: float, steps: int = 48) -> Points:
    """Points (steps, 2) on an ellipse from `start` to `stop` degrees, clockwise on the screen."""
    t = np.deg2rad(np.linspace(start, stop, steps))
    return np.stack([x + rx * np.cos(t), y + ry * np.sin(t)], axis=1)


def disc(image: Pixels, x: float, y: float, radius: float, colour: Sequence[int]) -> None:
    """Fill a circle."""
    polygon(image, arc(x, y, radius, radius, 0, 360, 96), colour)


def rectangle(x0: float, y0: float, x1: float, y1: float) -> Points:
    """The four corners (4, 2) of an upright rectangle."""
    return np.array([(x0, y0), (x1, y0), (x1, y1), (x0, y1)])


def arrow(tail: PointLike, width: float, head: float) -> tuple[Points, Points]:
    """The shaft (n, 2) and the triangular head (3, 2) of an arrow along a polyline.

    The shaft stops inside the head, so that its round end does not stick out of the tip.
    """
    points = np.asarray(tail, dtype=np.float64)
    direction = points[-1] - points[-2]
    direction = direction / np.hypot(direction[0], direction[1])
    normal = np.array([-direction[1], direction[0]])
    tip = points[-1]
    base = tip - direction * head
    triangle = np.stack([tip, base + normal * head * 0.72, base - normal * head * 0.72])
    shaft = points.copy()
    shaft[-1] = base + direction * min(width, head) * 0.1
    return shaft, triangle
