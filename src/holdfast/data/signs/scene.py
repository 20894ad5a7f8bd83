"""Road scenes and crops of one sign with their truth, from seed and index; scenes as a dataset on disk."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Final

import numpy as np
import orjson
from PIL import Image as Pillow

from holdfast.core.errors import DataError, InputError, OutputError
from holdfast.core.fingerprint import generator
from holdfast.core.types import Floats, Image, Ints, Size
from holdfast.data.signs.annotations import coco_content
from holdfast.data.signs.backdrop import paint_ground, paint_sky, paint_skyline
from holdfast.data.signs.canvas import CLASSES, GROUP_OF, GROUPS, HEIGHT, SEGMENTS, WIDTH, Camera, Road, blank
from holdfast.data.signs.conditions import SceneDrawing, choose_mood, photograph
from holdfast.data.signs.placement import carry, choose_places, clipped, draw_sign, hide, place_of
from holdfast.data.signs.roadside import paint_roadside

_HIDDEN, _HIDDEN_ALONE = 0.17, 0.12  # how often something hides a part of a sign, in scenes and in crops


@dataclass(frozen=True)
class Scene:
    """A picture and what is in it."""

    image: Image  # (480, 640, 3) RGB
    boxes: Floats  # (n, 4) xyxy, clipped to the picture: whole signs, also where something hides a part
    classes: Ints  # (n,) into `CLASSES`
    mask: Image  # (480, 640) into `SEGMENTS`; only what is visible


def stream(name: str, seed: int, index: int) -> np.random.Generator:
    """The generator of one picture; InputError if seed or index is negative."""
    if seed < 0 or index < 0:
        got = f"seed {seed} and index {index}"
        raise InputError(f"expected a seed and index of 0 or more for {name}, got {got}")
    return generator(seed, "signs", name, index)


def camera_of(rng: np.random.Generator) -> Camera:
    """A camera in a car or on the pavement."""
    return Camera(
        focal=rng.uniform(520, 900),
        height=rng.uniform(1.25, 2.2),
        x=rng.uniform(170, 470),
        y=rng.uniform(215, 330),
        bend=rng.normal(0, 0.0006),
    )


def road_of(rng: np.random.Generator) -> Road:
    """A street in a town, a country road or a highway."""
    setting = ("town", "country", "highway")[int(rng.choice(3, p=(0.42, 0.33, 0.25)))]
    lanes = int(rng.integers(2, 5)) if setting != "country" else 2
    lane = rng.uniform(2.9, 3.7)
    width = lanes * lane
    # the camera drives in the right lane, or stands near the edge, where near signs come into view
    from_right = rng.uniform(0.2, lane * 0.55) if rng.random() < 0.75 else rng.uniform(0.3, width - 0.3)
    return Road(from_right - width, from_right, lanes, setting)


def paint(shot: SceneDrawing) -> SceneDrawing:
    """The picture with all but the signs."""
    for layer in (paint_sky, paint_skyline, paint_ground, paint_roadside):
        layer(shot)
    return shot


def scene(seed: int, index: int) -> Scene:
    """The scene `index` of the endless row `seed`; it depends on nothing else."""
    rng = stream("scene", seed, index)
    mood, camera, road = choose_mood(rng), camera_of(rng), road_of(rng)
    shot = paint(SceneDrawing(blank(HEIGHT, WIDTH), camera, road, mood, rng))
    places = choose_places(shot)
    for place in places:
        carry(shot, place)
    extents = [draw_sign(shot, place) for place in places]
    for number, (place, extent) in enumerate(zip(places, extents, strict=True)):
        whole = extent[0] >= 0 and extent[1] >= 0 and extent[2] <= WIDTH and extent[3] <= HEIGHT
        if rng.random() < _HIDDEN and whole:
            hide(shot, extent, place.foot, extents[:number] + extents[number + 1 :])
    boxes = np.array([clipped(extent, WIDTH, HEIGHT) for extent in extents], dtype=np.float64).reshape(-1, 4)
    classes = np.array([place.label for place in places], dtype=np.int64)
    return Scene(photograph(shot), boxes, classes, shot.canvas.mask)


def encode(image: Image, quality: int = 92, subsampling: str = "4:2:0") -> bytes:
    """The JPEG file of an RGB image; the same bytes for the same pixels."""
    buffer = BytesIO()
    Pillow.fromarray(image).save(buffer, format="JPEG", quality=quality, subsampling=subsampling)
    return buffer.getvalue()


def render(
    side: int, size: float, x: float, y: float, label: int, rng: np.random.Generator
) -> tuple[Image, Floats]:
    """A window (side, side, 3) of a scene with a sign of `size` pixels about (x, y); and the sign's box xyxy.

    Only the window is painted: the camera of a whole scene, seen from the window's corner.
    """
    mood, camera, road = choose_mood(rng), camera_of(rng), road_of(rng)
    left = rng.uniform(size, WIDTH - size)
    top = np.clip(camera.y - size * rng.uniform(0.2, 2.8), size / 2, HEIGHT * 0.8)
    camera = replace(camera, x=camera.x - left + x, y=camera.y - top + y)
    shot = paint(SceneDrawing(blank(side, side), camera, road, mood, rng))
    depth = camera.focal * rng.uniform(0.6, 1.1) / size
    place = place_of(shot, label, x, y, size, depth, x)
    carry(shot, place)
    extent = draw_sign(shot, place)
    if rng.random() < _HIDDEN_ALONE:
        hide(shot, extent, place.foot, [])
    return photograph(shot), clipped(extent, side, side)


def crop_classify(seed: int, index: int) -> tuple[Image, int]:
    """A sign near the middle of a square of 72 to 160 pixels, RGB, and its class."""
    rng = stream("crop", seed, index)
    side = int(rng.integers(72, 161))
    size = side * rng.uniform(0.5, 0.86)
    slack = (side - size) / 2 * 0.7
    x, y = (side / 2 + rng.uniform(-slack, slack, 2)).tolist()
    label = int(rng.integers(len(CLASSES)))
    return render(side, size, x, y, label, rng)[0], label


def crop_single(seed: int, index: int) -> tuple[Image, Floats, int]:
    """A sign anywhere in a square of 96 to 160 pixels, RGB; its box xyxy in 0..1 and its group.

    The sign fills 35 to 80 % of the side and lies wholly inside.
    """
    rng = stream("single", seed, index)
    side = int(rng.integers(96, 161))
    size = side * rng.uniform(0.37, 0.78)
    margin = size / 2 + 0.04 * side
    x, y = rng.uniform(margin, side - margin, 2).tolist()
    label = int(rng.integers(len(CLASSES)))
    image, box = render(side, size, x, y, label, rng)
    return image, box / side, GROUP_OF[label]


REACH: Final = 0.2  # how far from the middle the sign may be, as a part of the side


def crop_far(seed: int, index: int) -> tuple[Image, int, int]:
    """A sign in the inner part of a square of 112 to 160 pixels, RGB; its class; the quality of its JPEG.

    Wider views, coarsely compressed: how they are decoded and resized matters. A network of 48 pixels sees
    the side shrunk by 2 to 3, and 13 to 27 pixels of the sign.
    """
    rng = stream("far", seed, index)
    side = int(rng.integers(112, 161))
    size = side * rng.uniform(0.25, 0.5)
    x, y = (side / 2 + rng.uniform(-REACH, REACH, 2) * side).tolist()
    label, quality = int(rng.integers(len(CLASSES))), int(rng.integers(10, 41))
    return render(side, size, x, y, label, rng)[0], label, quality


_MARK: Final = "holdfast-signs.json"
_NAMES: Final = "masks.yaml"  # what the mask values mean, for readers of masks
_ENTRIES: Final = frozenset({_MARK, _NAMES, "annotations.json", "annotations.json.part", "images", "masks"})


def _claim(folder: Path, images: int, seed: int) -> None:
    """Mark a folder as ours, with what it will hold; DataError if something else is in it."""
    mark = orjson.dumps({"data": "signs", "images": images, "seed": seed})
    present = {entry.name for entry in folder.iterdir()} if folder.is_dir() else set()
    if present and (_MARK not in present or present - _ENTRIES):
        strange = sorted(present - _ENTRIES) or sorted(present)
        got = f"{folder} with {strange[0]!r}; choose another folder, or empty this one"
        raise DataError(f"expected an empty folder or one written by this command, got {got}")
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
        why = f"{error.strerror}; free some space and run the same command again"
        raise OutputError(f"cannot write to {folder}: {why}") from error


def _write(folder: Path, images: int, seed: int, progress: Callable[[int], None]) -> Path:
    pictures: list[tuple[str, Size, Floats, list[int]]] = []
    for number in range(images):
        drawing = scene(seed, number)
        name = f"{number:06d}"
        (folder / "images" / f"{name}.jpg").write_bytes(encode(drawing.image))
        Pillow.fromarray(drawing.mask).save(folder / "masks" / f"{name}.png")
        pictures.append((f"{name}.jpg", Size(WIDTH, HEIGHT), drawing.boxes, drawing.classes.tolist()))
        progress(number + 1)
    info = {"description": "procedural road scenes with traffic signs", "seed": seed, "segments": SEGMENTS}
    content = {"info": info, **coco_content(pictures, CLASSES)}
    for category, group in zip(content["categories"], GROUP_OF, strict=True):
        category["supercategory"] = GROUPS[group]
    part = folder / "annotations.json.part"
    part.write_bytes(orjson.dumps(content))
    return part.replace(folder / "annotations.json")
