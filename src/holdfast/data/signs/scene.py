"""Road scenes and crops of one sign with their truth, from seed and index; scenes as a dataset on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import orjson
from PIL import Image

from holdfast.core.errors import DataError, InputError, OutputError
from holdfast.core.fingerprint import generator
from holdfast.data.signs.backdrop import Road, paint_ground, paint_sky, paint_skyline
from holdfast.data.signs.canvas import (
    CLASSES,
    GROUP_OF,
    GROUPS,
    HEIGHT,
    SEGMENTS,
    WIDTH,
    Camera,
    Canvas,
    Pixels,
)
from holdfast.data.signs.conditions import Glow, Mood, choose_mood, photograph
from holdfast.data.signs.plant import Place, carry, choose_places, clipped, hide, plant, tilt
from holdfast.data.signs.roadside import paint_roadside

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
    mood = choose_mood(rng)
    camera, road = camera_of(rng), road_of(rng)
    canvas = blank(HEIGHT, WIDTH)
    glows = paint(canvas, camera, road, mood, rng)
    places = choose_places(camera, road, rng)
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


_HIDDEN_ALONE: Final = 0.12


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
    mood, whole, road = choose_mood(rng), camera_of(rng), road_of(rng)
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
    if rng.random() < _HIDDEN_ALONE:
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


SIDES: Final = (112, 160)  # pixels; a network of 48 sees each shrunk by 2 to 3
PART: Final = (0.25, 0.5)  # of the side that the sign fills: 13 to 27 of the network's pixels
REACH: Final = 0.2  # how far from the middle the sign may be, as a part of the side
QUALITIES: Final = (10, 40)
SMALL: Final = (0.18, 0.36)  # of a picture of 72 pixels: as many pixels as that network sees of the sign


def crop_far(seed: int, index: int) -> tuple[Pixels, int, int]:
    """A sign in the inner part of a square of 112 to 160 pixels, RGB; its class; the quality of its JPEG.

    Wider views, coarsely compressed: how they are decoded and resized matters.
    """
    rng = stream("far", seed, index)
    side = int(rng.integers(SIDES[0], SIDES[1] + 1))
    size = float(side * rng.uniform(*PART))
    x, y = side / 2 + rng.uniform(-REACH, REACH, 2) * side
    label = int(rng.integers(len(CLASSES)))
    quality = int(rng.integers(QUALITIES[0], QUALITIES[1] + 1))
    image, _ = render(View(side, size, float(x), float(y)), label, rng)
    return image, label, quality


def crop_small(seed: int, index: int, side: int = 72) -> tuple[Pixels, int]:
    """A sign in a view drawn at `side` pixels, so that nothing has to be resized; RGB, and its class."""
    rng = stream("small", seed, index)
    size = float(side * rng.uniform(*SMALL))
    x, y = side / 2 + rng.uniform(-REACH, REACH, 2) * side
    label = int(rng.integers(len(CLASSES)))
    image, _ = render(View(side, size, float(x), float(y)), label, rng)
    return image, label


def write_far(folder: Path, seed: int, indices: range) -> int:
    """How many pictures were written into `folder`, one sub folder a class; those that are there stay."""
    try:
        for name in CLASSES:
            (folder / name).mkdir(parents=True, exist_ok=True)
        there = {file.name for file in folder.glob("*/*.jpg")}
        missing = [index for index in indices if f"far-{seed}-{index:06d}.jpg" not in there]
        for index in missing:
            image, label, quality = crop_far(seed, index)
            path = folder / CLASSES[label] / f"far-{seed}-{index:06d}.jpg"
            part = path.with_suffix(".part")
            part.write_bytes(encode(image, quality))
            part.replace(path)  # a kill leaves no half picture
    except OSError as problem:
        raise OutputError(f"cannot write to {folder}: {problem.strerror}") from problem
    return len(missing)


_MARK: Final = "holdfast-signs.json"
_NAMES: Final = "masks.yaml"  # what the mask values mean, for readers of masks
_ENTRIES: Final = frozenset({_MARK, _NAMES, "annotations.json", "annotations.json.part", "images", "masks"})


def _claim(folder: Path, images: int, seed: int) -> None:
    """Mark a folder as ours, with what it will hold; DataError if something else is in it."""
    mark = orjson.dumps({"data": "signs", "images": images, "seed": seed})
    found = {entry.name for entry in folder.iterdir()} if folder.is_dir() else set()
    if found and (_MARK not in found or found - _ENTRIES):
        strange = sorted(found - _ENTRIES) or sorted(found)
        raise DataError(
            f"expected an empty folder or one made by this command, got {folder} with {strange[0]!r} in it: "
            "give another folder, or empty this one"
        )
    try:
        for part in (folder / "images", folder / "masks"):
            part.mkdir(parents=True, exist_ok=True)
            for old in part.iterdir():
                old.unlink()
        (folder / "annotations.json").unlink(missing_ok=True)
        (folder / _MARK).write_bytes(mark)
        names = "".join(f"  {index}: {name}\n" for index, name in enumerate(SEGMENTS))
        (folder / _NAMES).write_text(f"images: images\nmasks: masks\nclasses:\n{names}")
    except OSError as error:
        raise OutputError(f"cannot write to {folder}: {error.strerror}") from error


def coco_annotations(
    boxes: npt.NDArray[np.float64], labels: Iterable[int], image_id: int, first: int
) -> list[dict[str, Any]]:
    """The COCO annotations of one image's boxes (n, 4) xyxy, numbered from `first`; category ids from 1."""
    rows = []
    for number, (label, (x0, y0, x1, y1)) in enumerate(zip(labels, boxes.tolist(), strict=True), first):
        width, height = x1 - x0, y1 - y0
        row = {"id": number, "image_id": image_id, "category_id": label + 1}
        rows.append({**row, "bbox": [x0, y0, width, height], "area": width * height, "iscrowd": 0})
    return rows


def make(folder: Path, images: int, seed: int, *, progress: Callable[[int], None] | None = None) -> Path:
    """The annotation file of `images` scenes written to `folder` (images/, masks/, annotations.json).

    The annotation file appears last and at once, so a folder that has one is complete. Category ids are the
    class index plus 1. `progress` is called with the number of images done. A folder with other things in it
    is refused.
    """
    if images < 1:
        raise InputError(f"expected at least 1 image, got {images}")
    _claim(folder, images, seed)
    try:
        return _write(folder, images, seed, progress or (lambda done: None))
    except OSError as error:
        raise OutputError(
            f"cannot write to {folder}: {error.strerror}; free some space, then make it again"
        ) from error


def _write(folder: Path, images: int, seed: int, progress: Callable[[int], None]) -> Path:
    pictures: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for number in range(images):
        found = scene(seed, number)
        name = f"{number:06d}"
        (folder / "images" / f"{name}.jpg").write_bytes(encode(found.image))
        Image.fromarray(found.mask).save(folder / "masks" / f"{name}.png")
        pictures.append({"id": number + 1, "file_name": f"{name}.jpg", "width": WIDTH, "height": HEIGHT})
        labels, first = found.classes.tolist(), len(annotations) + 1
        annotations += coco_annotations(found.boxes, labels, number + 1, first)
        progress(number + 1)
    categories = [
        {"id": index + 1, "name": name, "supercategory": GROUPS[GROUP_OF[index]]}
        for index, name in enumerate(CLASSES)
    ]
    info = {"description": "procedural road scenes with traffic signs", "seed": seed, "segments": SEGMENTS}
    content = {"info": info, "images": pictures, "annotations": annotations, "categories": categories}
    target = folder / "annotations.json"
    part = folder / "annotations.json.part"
    part.write_bytes(orjson.dumps(content))
    return part.replace(target)
