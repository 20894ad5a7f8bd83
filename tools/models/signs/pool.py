"""Pre-rendered training pictures: what the deployed pipeline shows the network, on disk, rendered once."""

import hashlib
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import DataError
from holdfast.core.frame import frame_of
from holdfast.core.types import Image, Size
from holdfast.data import signs
from models.signs.inputs import INPUTS

MAX_SIGNS: Final = 16
CLASS_SIDE: Final = 72  # the classifier's short side: its 64-pixel crops are drawn from it

Row: TypeAlias = dict[str, NDArray[Any]]
Render: TypeAlias = Callable[[int, int], Row]


@dataclass(frozen=True)
class Pool:
    """Columns of equal length by name, memory-mapped: e.g. images (n, h, w, 3) uint8 and boxes (n, 16, 5)."""

    columns: Row
    name: str = ""

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.columns[name]


def seen(image: Image, size: Size) -> Image:
    """The picture as the deployed system sees it: JPEG, decoded by Pillow, resized by Pillow's bilinear."""
    from holdfast.stages.decode.pillow import pillow
    from holdfast.stages.resize.libraries import pillow_bilinear

    return pillow_bilinear(pillow(signs.encode(image)), size)


def scene_row(seed: int, index: int) -> Row:
    """One scene: the detector's picture and boxes (16, 5) class, xyxy (-1: none), the segmenter's, mask."""
    drawn = signs.scene(seed, index)
    if len(drawn.boxes) > MAX_SIGNS:
        raise DataError(f"scene {index} has {len(drawn.boxes)} signs, the pool holds {MAX_SIGNS} a scene")
    yolo, seg = INPUTS["signs-yolo"], INPUTS["signs-seg"].size
    boxes = np.full((MAX_SIGNS, 5), -1, np.float32)
    boxes[: len(drawn.boxes), 0] = drawn.classes
    boxes[: len(drawn.boxes), 1:] = frame_of(_size(drawn.image), yolo).to_network(drawn.boxes)
    return {
        "images": seen(drawn.image, yolo.size),
        "boxes": boxes,
        "small": seen(drawn.image, seg),
        "masks": _nearest(drawn.mask, seg),
    }


def class_row(seed: int, index: int) -> Row:
    """One sign for the classifier, before its 64-pixel crop."""
    image, label = signs.crop_classify(seed, index)
    return {"images": seen(image, Size(CLASS_SIDE, CLASS_SIDE)), "labels": np.asarray(label, np.int64)}


def single_row(seed: int, index: int) -> Row:
    """One sign with its box (4,) as parts of the picture and its group."""
    image, box, group = signs.crop_single(seed, index)
    picture = seen(image, INPUTS["signs-single"].size)
    return {"images": picture, "boxes": np.asarray(box, np.float32), "labels": np.asarray(group, np.int64)}


def open_pool(folder: Path, render: Render, seed: int, count: int, processes: int = 2) -> Pool:
    """The pool of `count` rows of that seed, rendered now unless the folder holds these very pictures."""
    first = render(seed, 0)
    home = folder / f"{render.__name__}-{seed}-{count}-{look(render, seed)}"
    if not (home / "done").exists():
        home.mkdir(parents=True, exist_ok=True)
        for name, value in first.items():
            np.lib.format.open_memmap(_file(home, name), "w+", value.dtype, (count, *value.shape))
        starts = range(0, count, 100)
        with ProcessPoolExecutor(processes) as workers:
            chunks = [workers.submit(_fill, home, render, seed, s, min(s + 100, count)) for s in starts]
            for chunk in chunks:
                chunk.result()
        (home / "done").touch()
    return Pool({name: np.load(_file(home, name), mmap_mode="r") for name in first}, home.name)


def look(render: Render, seed: int, rows: int = 12) -> str:
    """A short hash of the first pictures and their truth: it changes when the scenes or the inputs do."""
    digest = hashlib.sha256()
    for index in range(rows):
        for name, value in sorted(render(seed, index).items()):
            digest.update(f"{name}{value.dtype}{value.shape}".encode() + value.tobytes())
    return digest.hexdigest()[:10]


def _fill(home: Path, render: Render, seed: int, start: int, stop: int) -> None:
    """Write rows start to stop into the pool's files."""
    names = list(render(seed, start))
    files = {name: np.load(_file(home, name), mmap_mode="r+") for name in names}
    for index in range(start, stop):
        for name, value in render(seed, index).items():
            files[name][index] = value


def _file(home: Path, name: str) -> Path:
    return home / f"{name}.npy"


def _size(image: Image) -> Size:
    return Size(image.shape[1], image.shape[0])


def _nearest(mask: NDArray[np.uint8], size: Size) -> NDArray[np.uint8]:
    """The mask at another size: the value at the centre of each new pixel."""
    rows = ((np.arange(size.height) + 0.5) * mask.shape[0] / size.height).astype(np.int64)
    columns = ((np.arange(size.width) + 0.5) * mask.shape[1] / size.width).astype(np.int64)
    chosen: NDArray[np.uint8] = mask[rows[:, None], columns]
    return chosen
