"""Where the signs of a scene stand: sizes, places and how each is carried."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from holdfast.data.signs.backdrop import Road
from holdfast.data.signs.canvas import Camera
from holdfast.data.signs.catalogue import CLASSES, HEIGHT, WIDTH

SMALLEST: Final = 24.0
LARGEST: Final = 170.0
_COUNTS: Final = (0.25, 0.30, 0.23, 0.14, 0.08)
_TRIES: Final = 40


@dataclass(frozen=True)
class Place:
    """One sign to be drawn: its class, centre and side in pixels, and its depth in metres.

    `foot` is the row where its mast meets the ground and `mast` the column: that of the sign, or the
    roadside's if the sign hangs on an arm above the road.
    """

    label: int
    x: float
    y: float
    size: float
    depth: float
    yaw: float
    roll: float
    foot: float
    mast: float

    @property
    def extent(self) -> tuple[float, float, float, float]:
        """The square about the face, xyxy, with a margin that keeps signs apart."""
        half = 0.5 * self.size + 3.0
        return self.x - half, self.y - half, self.x + half, self.y + half

    @property
    def pole(self) -> tuple[float, float, float, float]:
        """The rectangle of the mast, xyxy."""
        half = 0.06 * self.size + 1.0
        return self.mast - half, self.y - 0.5 * self.size, self.mast + half, self.foot


def overlap(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> bool:
    """Whether two rectangles xyxy share area."""
    return min(a[2], b[2]) > max(a[0], b[0]) and min(a[3], b[3]) > max(a[1], b[1])


def tilt(rng: np.random.Generator) -> tuple[float, float]:
    """Yaw and roll in degrees: most signs face the driver, few are turned far."""
    return float(np.clip(rng.normal(0, 13), -38, 38)), float(np.clip(rng.normal(0, 2.2), -7, 7))


def _truncate(x: float, y: float, size: float, rng: np.random.Generator) -> tuple[float, float]:
    """The centre moved so that 12 to 40 % of the side is outside one border."""
    hidden = rng.uniform(0.12, 0.40) * size
    side = int(rng.choice(3, p=(0.4, 0.4, 0.2)))
    if side == 0:
        return size / 2 - hidden, y
    if side == 1:
        return WIDTH - size / 2 + hidden, y
    return x, size / 2 - hidden


def _candidate(camera: Camera, road: Road, size: float, label: int, rng: np.random.Generator) -> Place | None:
    """A place on the verge or on an arm above the road; nothing if it would stand on the road."""
    half = size / 2 + 2
    x = rng.uniform(half, WIDTH - half)
    y = float(np.clip(camera.y - size * rng.uniform(0.2, 2.8), half, HEIGHT * 0.8 - half))
    if rng.random() < 0.1 and size > 36:
        x, y = _truncate(x, y, size, rng)
    depth = camera.focal * rng.uniform(0.6, 1.1) / size
    lateral = (x - camera.x) / camera.focal * depth - camera.bend * depth**2
    foot = camera.y + camera.focal * camera.height / depth
    on_road = road.left - 0.2 < lateral < road.right + 0.2
    mast = float(x)
    if on_road:
        if y + size / 2 > camera.y - 12 or rng.random() < 0.5:
            return None
        edge = road.right + 0.7 if rng.random() < 0.7 else road.left - 0.7
        mast = float(camera.ground(edge, depth)[0])
    yaw, roll = tilt(rng)
    return Place(label, float(x), float(y), size, float(depth), yaw, roll, float(foot), mast)


def _below(place: Place, label: int, rng: np.random.Generator) -> Place:
    """A second sign under the first on the same post."""
    size = place.size * float(rng.uniform(0.86, 1.0))
    y = place.y + 0.5 * (place.size + size) + 0.07 * size + 6.5
    yaw = float(np.clip(place.yaw + rng.normal(0, 2), -38, 38))
    return Place(label, place.x, y, size, place.depth, yaw, place.roll, place.foot, place.mast)


def _clear(new: Place, others: list[Place], *, shared: Place | None = None) -> bool:
    """Whether a new sign and its pole stay off the signs and poles that are there."""
    for other in others:
        if overlap(new.extent, other.extent):
            return False
        if other is not shared and (overlap(new.pole, other.extent) or overlap(new.extent, other.pole)):
            return False
    return True


def choose(camera: Camera, road: Road, rng: np.random.Generator) -> list[Place]:
    """One to five places, farthest (smallest) first."""
    wanted = 1 + int(rng.choice(5, p=_COUNTS))
    places: list[Place] = []
    for tries in range(_TRIES * 5):
        if len(places) == wanted or (tries >= _TRIES and places):
            break
        label = int(rng.integers(len(CLASSES)))
        if places and rng.random() < 0.25:
            upper = places[-1]
            lower = _below(upper, label, rng)
            inside = (
                lower.size >= SMALLEST
                and lower.y + lower.size / 2 < HEIGHT - 4
                and upper.extent[0] > 0
                and upper.extent[2] < WIDTH
                and upper.mast == upper.x
            )
            if inside and _clear(lower, places, shared=upper):
                places.append(lower)
            continue
        size = float(np.exp(rng.uniform(np.log(SMALLEST), np.log(LARGEST))))
        found = _candidate(camera, road, size, label, rng)
        if found is not None and _clear(found, places):
            places.append(found)
    return sorted(places, key=lambda place: place.size)
