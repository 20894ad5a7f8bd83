"""Crop the targets of a detection dataset into square pictures."""

import io
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import orjson

from holdfast.core.dataset import Dataset
from holdfast.core.errors import DataError, ImageError
from holdfast.core.fingerprint import generator
from holdfast.core.types import Boxes, Floats, Image, Sample, Size
from holdfast.data.files import atomic_folder
from holdfast.data.images import sniff
from holdfast.data.patchfile import png_of
from holdfast.data.readers.cctsdb import CLASSES
from holdfast.data.signs.annotations import coco_content

MARK = "holdfast-crop.json"
INTRUDED, SMALL, CROWD = "contains part of another target", "too small", "a crowd"
LARGE, OUTSIDE = "no square around it fits into the image", "extends beyond the image"


@dataclass(frozen=True)
class CropSettings:
    """Settings of the square window around each target."""

    size: int = 64  # pixels of a picture's side
    margin: float = 0.2  # on each side of the target, as a fraction of its longer side
    shift: float = 0.5  # largest random shift of the target off centre, as a fraction of the free space
    least: float = 8.0  # targets of fewer pixels are skipped
    crowded: bool = False  # whether another target may reach into the window
    seed: int = 0


@dataclass(frozen=True)
class CropSummary:
    """The number of crops and targets, and why the others were skipped."""

    folder: Path
    format: str
    pictures: int
    targets: int
    skipped: Mapping[str, int]
    unreadable: tuple[str, ...] = field(default=(), repr=False)


def crop(
    data: Dataset,
    folder: Path,
    settings: CropSettings,
    progress: Callable[[int, int], None] = lambda done, reused: None,
) -> CropSummary:
    """Write the crops to a new or empty folder atomically; return a summary.

    The layout is images/ and gt_labels/ for CCTSDB's three classes, else images/ and annotations.json (COCO).
    """
    three = set(data.classes) <= set(CLASSES)
    skipped, unreadable, names = Counter[str](), list[str](), set[str]()
    size, written = Size(settings.size, settings.size), list[tuple[str, Size, Floats, list[int]]]()
    with atomic_folder(folder) as place:
        for part in ("images", *(["gt_labels"] if three else [])):
            (place / part).mkdir()
        for entry in data.entries:
            try:
                pieces = list(_pieces(entry.load(), settings, skipped))
            except ImageError as problem:
                unreadable.append(str(problem))
                pieces = []
            for stem, image, box, label in pieces:
                name = _unique(stem, names)
                (place / "images" / f"{name}.png").write_bytes(png_of(image))
                if three:
                    corners = " ".join(f"{corner:.9g}" for corner in box)
                    line = f"{CLASSES.index(data.classes[label])} {corners}\n"
                    (place / "gt_labels" / f"{name}.txt").write_text(line)
                written.append((f"{name}.png", size, box[None] * settings.size, [label]))
            progress(1, 0)
        if not written:
            why = ", ".join(f"{reason}: {count}" for reason, count in skipped.items()) or "it has no boxes"
            raise DataError(f"{data.name}: no target can be cut out ({why})")
        if not three:
            (place / "annotations.json").write_bytes(orjson.dumps(coco_content(written, data.classes)))
        about = {"data": data.name, "format": data.format, "pictures": len(written), **vars(settings)}
        (place / MARK).write_bytes(orjson.dumps(about, option=orjson.OPT_INDENT_2) + b"\n")
    counts, kind = (len(written), len(written) + skipped.total()), "cctsdb-yolo" if three else "coco"
    return CropSummary(folder, kind, *counts, dict(skipped), unreadable=tuple(unreadable))


def _pieces(
    sample: Sample, settings: CropSettings, skipped: Counter[str]
) -> Iterator[tuple[str, Image, Floats, int]]:
    """Name, crop, box xyxy as fractions of the crop, and class of each target of one image, in order."""
    from PIL import Image as Pillow

    if not isinstance(sample.truth, Boxes):
        raise DataError(f"{sample.name}: expected boxes, got {type(sample.truth).__name__}")
    if not len(sample.truth):
        return
    size = sniff(sample.data, sample.name).size
    windows = []
    for number in range(len(sample.truth)):
        rng = generator(settings.seed, sample.name, number)
        window = window_of(sample.truth, number, size, settings, rng)
        if isinstance(window, str):
            skipped[window] += 1
        else:
            windows.append((number, *window))
    if not windows:
        return
    try:
        picture = Pillow.open(io.BytesIO(sample.data)).convert("RGB")
    except (OSError, ValueError, SyntaxError) as problem:
        raise ImageError(f"{sample.name}: cannot be decoded: {problem}") from None
    stem = re.sub(r"[^A-Za-z0-9.\-]+", "_", sample.name.rpartition(".")[0] or sample.name).strip("._")
    for number, x, y, side in windows:
        square = picture.crop((x, y, x + side, y + side))
        small = np.asarray(square.resize((settings.size, settings.size), Pillow.Resampling.BILINEAR))
        box = np.clip((sample.truth.xyxy[number] - [x, y, x, y]) / side, 0.0, 1.0)
        yield f"{stem}_{number}", small, box, int(sample.truth.classes[number])


def window_of(
    truth: Boxes, number: int, extent: tuple[int, int], settings: CropSettings, rng: np.random.Generator
) -> tuple[int, int, int] | str:
    """Left, top and side in pixels of the window around one target, or the reason why there is none."""
    x1, y1, x2, y2 = truth.xyxy[number].tolist()
    if truth.crowd[number]:
        return CROWD
    if min(x1, y1) < -1 or x2 > extent[0] + 1 or y2 > extent[1] + 1:
        return OUTSIDE
    longer = max(x2 - x1, y2 - y1)
    if longer < settings.least:
        return SMALL
    enclosing = max(math.ceil(x2) - math.floor(x1), math.ceil(y2) - math.floor(y1))
    side = min(max(math.ceil(longer * (1 + 2 * settings.margin)), enclosing), *extent)
    if side < longer:
        return LARGE
    corner = []
    for low, high, size in ((x1, x2, extent[0]), (y1, y2, extent[1])):
        play = (side - (high - low)) / 2
        begin = round((low + high - side) / 2 + play * settings.shift * rng.uniform(-1, 1))
        begin = min(max(begin, math.ceil(high) - side), math.floor(low))  # keep the whole target inside
        corner.append(min(max(begin, 0), size - side))
    x, y = corner
    others = np.delete(truth.xyxy, number, axis=0)
    meets = (others[:, 0] < x + side) & (others[:, 2] > x) & (others[:, 1] < y + side) & (others[:, 3] > y)
    return INTRUDED if meets.any() and not settings.crowded else (x, y, side)


def _unique(name: str, names: set[str]) -> str:
    new, number = name, 2
    while new in names:
        new, number = f"{name}-{number}", number + 1
    names.add(new)
    return new
