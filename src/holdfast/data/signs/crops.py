"""Pictures of one sign each, for a classifier and for a detector of a single object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from holdfast.data.signs import mood as moods
from holdfast.data.signs.canvas import Camera
from holdfast.data.signs.catalogue import CLASSES, GROUP_OF, HEIGHT, WIDTH
from holdfast.data.signs.finish import photograph
from holdfast.data.signs.placement import Place, tilt
from holdfast.data.signs.plant import carry, clipped, hide, plant
from holdfast.data.signs.scene import blank, camera_of, paint, road_of, stream
from holdfast.data.signs.strokes import Pixels

_HIDDEN: Final = 0.12


@dataclass(frozen=True)
class View:
    """A square window of a scene: its side, and the sign's side and centre in pixels of the window."""

    side: int
    size: float
    x: float
    y: float


def render(view: View, label: int, rng: np.random.Generator) -> tuple[Pixels, npt.NDArray[np.float64]]:
    """The picture (side, side, 3) and the sign's box xyxy in pixels.

    Only the window is painted: the camera of a whole scene, seen from the window's corner.
    """
    mood, whole, road = moods.choose(rng), camera_of(rng), road_of(rng)
    centre_x = rng.uniform(view.size, WIDTH - view.size)
    centre_y = np.clip(whole.y - view.size * rng.uniform(0.2, 2.8), view.size / 2, HEIGHT * 0.8)
    camera = Camera(
        whole.focal, whole.height, whole.x - centre_x + view.x, whole.y - centre_y + view.y, whole.bend
    )
    canvas = blank(view.side, view.side)
    glows = paint(canvas, camera, road, mood, rng)
    depth = camera.focal * rng.uniform(0.6, 1.1) / view.size
    yaw, roll = tilt(rng)
    foot = camera.y + camera.focal * camera.height / depth
    place = Place(label, view.x, view.y, view.size, float(depth), yaw, roll, float(foot), view.x)
    carry(canvas, place, rng)
    extent = plant(canvas, place, mood, rng).extent
    if rng.random() < _HIDDEN:
        hide(canvas, extent, place.foot, [], rng)
    return photograph(canvas, camera, mood, glows, rng), clipped(extent, view.side, view.side)


def crop_classify(seed: int, index: int) -> tuple[Pixels, int]:
    """A sign near the middle of a square of 72 to 160 pixels, RGB, and its class."""
    rng = stream("crop", seed, index)
    side = int(rng.integers(72, 161))
    size = side * rng.uniform(0.5, 0.86)
    slack = (side - size) / 2 * 0.7
    x, y = side / 2 + rng.uniform(-slack, slack, 2)
    label = int(rng.integers(len(CLASSES)))
    image, _ = render(View(side, float(size), float(x), float(y)), label, rng)
    return image, label


def crop_single(seed: int, index: int) -> tuple[Pixels, npt.NDArray[np.float64], int]:
    """A sign anywhere in a square of 96 to 160 pixels, RGB; its box xyxy in 0..1 and its group.

    The sign fills 35 to 80 % of the side and lies wholly inside.
    """
    rng = stream("single", seed, index)
    side = int(rng.integers(96, 161))
    size = side * rng.uniform(0.37, 0.78)
    margin = size / 2 + 0.04 * side
    x, y = rng.uniform(margin, side - margin, 2)
    label = int(rng.integers(len(CLASSES)))
    image, box = render(View(side, float(size), float(x), float(y)), label, rng)
    return image, box / side, GROUP_OF[label]
