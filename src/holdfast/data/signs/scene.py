"""A road scene with its truth, from a seed and an index alone."""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from typing import Final

import numpy as np
import numpy.typing as npt
from PIL import Image

from holdfast.core.errors import InputError
from holdfast.core.seeds import generator
from holdfast.data.signs import mood as moods
from holdfast.data.signs import placement
from holdfast.data.signs.backdrop import Road, paint_ground, paint_sky, paint_skyline
from holdfast.data.signs.canvas import Camera, Canvas
from holdfast.data.signs.catalogue import HEIGHT, WIDTH
from holdfast.data.signs.finish import Glow, photograph
from holdfast.data.signs.mood import Mood
from holdfast.data.signs.plant import carry, clipped, hide, plant
from holdfast.data.signs.roadside import paint_roadside
from holdfast.data.signs.strokes import Pixels

_HIDDEN: Final = 0.17


@dataclass(frozen=True)
class Scene:
    """A picture and what is in it.

    image: uint8 (480, 640, 3) RGB. boxes: float64 (n, 4) xyxy pixels; the full extent of each sign, also
    where something hides a part of it, clipped to the picture. classes: int64 (n,) into `CLASSES`.
    mask: uint8 (480, 640) into `SEGMENTS`; only what is visible.
    """

    image: Pixels
    boxes: npt.NDArray[np.float64]
    classes: npt.NDArray[np.int64]
    mask: Pixels


def stream(name: str, seed: int, index: int) -> np.random.Generator:
    """The generator of one picture; InputError if seed or index is negative."""
    if seed < 0 or index < 0:
        raise InputError(f"seed and index of a {name} must be 0 or more, got seed {seed} and index {index}")
    return generator(seed, "signs", name, index)


def camera_of(rng: np.random.Generator) -> Camera:
    """A camera in a car or on the pavement."""
    return Camera(
        focal=float(rng.uniform(520, 900)),
        height=float(rng.uniform(1.25, 2.2)),
        x=float(rng.uniform(170, 470)),
        y=float(rng.uniform(215, 330)),
        bend=float(rng.normal(0, 0.0006)),
    )


def road_of(rng: np.random.Generator) -> Road:
    """A street in a town, a country road or a highway."""
    setting = ("town", "country", "highway")[int(rng.choice(3, p=(0.42, 0.33, 0.25)))]
    lanes = int(rng.integers(2, 5)) if setting != "country" else 2
    lane = rng.uniform(2.9, 3.7)
    width = lanes * lane
    # the camera drives in the right lane, or stands near the edge, where near signs come into view
    from_right = rng.uniform(0.2, lane * 0.55) if rng.random() < 0.75 else rng.uniform(0.3, width - 0.3)
    return Road(left=float(from_right - width), right=float(from_right), lanes=lanes, setting=setting)


def blank(height: int, width: int) -> Canvas:
    """A canvas to paint on."""
    return Canvas(np.empty((height, width, 3), dtype=np.uint8), np.empty((height, width), dtype=np.uint8))


def paint(canvas: Canvas, camera: Camera, road: Road, mood: Mood, rng: np.random.Generator) -> list[Glow]:
    """Paint all but the signs; the lamps that shine at night."""
    paint_sky(canvas, mood, rng)
    paint_skyline(canvas, camera, road, mood, rng)
    paint_ground(canvas, camera, road, mood, rng)
    return paint_roadside(canvas, camera, road, mood, rng)


def scene(seed: int, index: int) -> Scene:
    """The scene `index` of the endless row `seed`; it depends on nothing else."""
    rng = stream("scene", seed, index)
    mood = moods.choose(rng)
    camera, road = camera_of(rng), road_of(rng)
    canvas = blank(HEIGHT, WIDTH)
    glows = paint(canvas, camera, road, mood, rng)
    places = placement.choose(camera, road, rng)
    for place in places:
        carry(canvas, place, rng)
    extents = [plant(canvas, place, mood, rng).extent for place in places]
    for number, extent in enumerate(extents):
        whole = extent[0] >= 0 and extent[1] >= 0 and extent[2] <= WIDTH and extent[3] <= HEIGHT
        if rng.random() < _HIDDEN and whole:
            hide(canvas, extent, places[number].foot, extents[:number] + extents[number + 1 :], rng)
    boxes = np.array([clipped(extent, WIDTH, HEIGHT) for extent in extents], dtype=np.float64).reshape(-1, 4)
    classes = np.array([place.label for place in places], dtype=np.int64)
    return Scene(photograph(canvas, camera, mood, glows, rng), boxes, classes, canvas.mask)


def encode(image: Pixels, quality: int = 92, subsampling: str = "4:2:0") -> bytes:
    """The JPEG file of an RGB image; the same bytes for the same pixels."""
    buffer = BytesIO()
    Image.fromarray(image).save(buffer, format="JPEG", quality=quality, subsampling=subsampling)
    return buffer.getvalue()
