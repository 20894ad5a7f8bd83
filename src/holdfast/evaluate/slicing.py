"""How data is sliced: by object size, class, brightness, or a column of a CSV file.

- size: true boxes inside COCO's ranges of area; others are ignored, as in COCO's AP small, medium and large
- class: detections and true boxes of one class; images of that class of other tasks
- brightness: images by their mean luma: dark below 70, medium below 140, bright from 140
- any column of a CSV file that names images: one slice per value
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from holdfast.core.dataset import Dataset
from holdfast.core.errors import DataError, ImageError, InputError
from holdfast.core.model import Task
from holdfast.core.text import printable

SIZE, CLASS, BRIGHTNESS = "size", "class", "brightness"
DARK, BRIGHT = 70, 140  # mean luma of 0 to 255
NAMES = ("image", "file", "file_name", "filename", "name", "path")  # headings of a column of images
MOST = 30  # values of a column
SIDE = 64  # pixels a side from which the brightness of a JPEG is read


@dataclass(frozen=True)
class Slicing:
    """A way to slice; `values` is the value of each image, of slices by image."""

    by: str
    values: Mapping[str, str] = field(default_factory=dict)


def open_slicings(
    names: Sequence[str], file: Path | None, dataset: Dataset, task: Task
) -> tuple[Slicing, ...]:
    """The slicings of these names; InputError for one that neither the task nor a CSV file has."""
    if file and not names:
        raise InputError("--slice-file: expected with --slice COLUMN")
    return tuple(_slicing(name, file, dataset, task) for name in dict.fromkeys(names))


def _slicing(name: str, file: Path | None, dataset: Dataset, task: Task) -> Slicing:
    if name == SIZE and task not in ("detect", "single"):
        raise InputError(f"--slice size: expected a detector, whose objects have a size; the task is {task}")
    if name in (SIZE, CLASS):
        return Slicing(name)
    if name == BRIGHTNESS:
        return Slicing(name, brightness_of(dataset))
    files = [file] if file else _files_beside(dataset)
    for candidate in files:
        columns = read_columns(candidate)
        if name in columns:
            return Slicing(name, _by_image(columns, name, dataset, candidate))
    known = f"size, class, brightness or a column of a CSV file ({', '.join(NAMES)} names the images)"
    where = (
        ", ".join(map(str, files)) or "there is no CSV file in the folder of the data; add --slice-file FILE"
    )
    raise InputError(f"--slice {name}: expected {known}; searched: {where}")


def brightness_of(dataset: Dataset) -> dict[str, str]:
    """dark, medium or bright of every image that can be read."""
    values = {}
    for entry in dataset.entries:
        try:
            luma = mean_luma(entry.load().data)
        except (InputError, OSError):
            continue  # the evaluation reports it
        values[printable(entry.name)] = "dark" if luma < DARK else "medium" if luma < BRIGHT else "bright"
    return values


def mean_luma(data: bytes) -> float:
    """The mean luma (BT.601) of an encoded image, 0 to 255; of a JPEG from its reduced DCT."""
    from PIL import Image as Pillow

    try:
        with Pillow.open(io.BytesIO(data)) as picture:
            picture.draft("L", (SIDE, SIDE))
            return float(np.asarray(picture.convert("L"), np.float64).mean())
    except (OSError, SyntaxError, ValueError) as problem:
        raise ImageError(f"cannot be decoded: {problem}") from problem


def _files_beside(dataset: Dataset) -> list[Path]:
    place = Path(str(dataset.source.get("data", "")))
    folder = place if place.is_dir() else place.parent
    return sorted(folder.glob("*.csv")) if "data" in dataset.source and folder.is_dir() else []


def read_columns(file: Path) -> dict[str, list[str]]:
    """Heading -> values of a CSV file with a heading line; InputError if it cannot be read."""
    try:
        rows = list(csv.reader(file.read_text("utf-8-sig").splitlines()))
    except (OSError, UnicodeDecodeError, csv.Error) as problem:
        raise InputError(f"{file}: expected a CSV file in UTF-8, got: {problem}") from problem
    if not rows:
        return {}
    heads = [head.strip() for head in rows[0]]
    lines = [row for row in rows[1:] if any(row)]
    for number, row in enumerate(lines, 2):
        if len(row) != len(heads):
            raise InputError(f"{file}:{number}: expected {len(heads)} fields, got {len(row)}")
    return {head: [row[i].strip() for row in lines] for i, head in enumerate(heads)}


def _by_image(columns: Mapping[str, list[str]], name: str, dataset: Dataset, file: Path) -> dict[str, str]:
    """The value of each image; images are named by path, file name, or file name without its ending."""
    heading = next((head for head in NAMES if head in columns and head != name), None)
    if heading is None:
        raise InputError(f"{file}: expected a column {' or '.join(NAMES)} that names the images")
    if len(set(columns[name])) > MOST:
        raise InputError(
            f"{file}: column {name!r} has {len(set(columns[name]))} values; expected at most {MOST} slices"
        )
    listed = dict(zip(columns[heading], columns[name], strict=True))
    values = {}
    for entry in dataset.entries:
        path = Path(entry.name)
        value = next((listed[key] for key in (entry.name, path.name, path.stem) if key in listed), "")
        if value:
            values[printable(entry.name)] = value
    if not values:
        raise DataError(
            f"{file}: column {heading!r} names none of the {len(dataset)} images of {dataset.name}"
        )
    return values
