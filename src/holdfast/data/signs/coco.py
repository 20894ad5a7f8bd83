"""Writing the scenes as a data set on disk: JPEG files, PNG masks and one COCO annotation file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import orjson
from PIL import Image

from holdfast.core.errors import DataError, InputError, OutputError
from holdfast.data.signs.catalogue import CLASSES, GROUP_OF, GROUPS, HEIGHT, SEGMENTS, WIDTH
from holdfast.data.signs.scene import Scene, encode, scene

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


def _annotations(found: Scene, image_id: int, first: int) -> list[dict[str, Any]]:
    """The COCO annotations of one scene, numbered from `first`."""
    rows = []
    for number, (label, (x0, y0, x1, y1)) in enumerate(
        zip(found.classes.tolist(), found.boxes.tolist(), strict=True)
    ):
        rows.append(
            {
                "id": first + number,
                "image_id": image_id,
                "category_id": label + 1,
                "bbox": [x0, y0, x1 - x0, y1 - y0],
                "area": (x1 - x0) * (y1 - y0),
                "iscrowd": 0,
            }
        )
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
        annotations += _annotations(found, number + 1, len(annotations) + 1)
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
