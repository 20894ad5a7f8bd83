"""Pre-rendered training pictures, as the deployed pipeline shows them, and the batches drawn from them."""

import hashlib
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holdfast.core.errors import DataError
from holdfast.core.pipeline import frame_of
from holdfast.core.types import Image, Size
from holdfast.data.signs import scene as signs
from holdfast.train.loop import Batch, Stage
from models.signs import INPUTS

MAX_SIGNS: Final = 16
CLASS_SIDE: Final = 72  # the classifier's short side: its 64-pixel crops are drawn from it

Row: TypeAlias = dict[str, NDArray[Any]]
Render: TypeAlias = Callable[[int, int], Row]
MIN_VISIBLE = 0.5  # a sign of which a window shows less is not asked for


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
    from holdfast.stages.decode.libjpeg import pillow
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


def draw_scenes(pool: Pool, stage: Stage, rng: np.random.Generator) -> Batch:
    """Images (n, 3, s, s) and targets (m, 6) image, class, cx, cy, w, h: windows of scenes, or whole ones."""
    images = np.empty((stage.batch, stage.size, stage.size, 3), np.uint8)
    targets = []
    for i, index in enumerate(rng.integers(len(pool), size=stage.batch)):
        boxes = pool["boxes"][index]
        boxes = np.array(boxes[boxes[:, 0] >= 0])
        window = _window(boxes, pool["images"].shape[1], stage.size, rng)
        images[i] = _look(pool["images"][index], window, stage.size)
        shown = _shown(boxes, window, stage.size)
        targets.append(np.concatenate((np.full((len(shown), 1), i, np.float32), shown), 1))
    return lit(images, rng), torch.from_numpy(np.concatenate(targets).astype(np.float32))


def _window(
    boxes: NDArray[Any], side: int, size: int, rng: np.random.Generator
) -> tuple[float, float, float, float]:
    """Left, top, width and height of a window; four of five contain a sign, and some are zoomed."""
    if size == side:
        return 0.0, 0.0, float(side), float(side)
    zoom = np.exp(rng.uniform(-0.35, 0.35)) if rng.random() < 0.6 else 1.0
    w, h = (min(side, size / zoom * np.exp(rng.uniform(-0.06, 0.06) * (zoom != 1.0))) for _ in range(2))
    if len(boxes) and rng.random() < 0.85:
        x1, y1, x2, y2 = boxes[rng.integers(len(boxes)), 1:]
        left, top = (
            rng.uniform(x2 - w, x1) if x2 - x1 < w else x1,
            rng.uniform(y2 - h, y1) if y2 - y1 < h else y1,
        )
    else:
        left, top = rng.uniform(0, side - w + 1e-6), rng.uniform(0, side - h + 1e-6)
    left, top = min(max(left, 0.0), side - w), min(max(top, 0.0), side - h)
    if zoom == 1.0:  # whole pixels need no resampling
        left, top = float(round(left)), float(round(top))
    return left, top, w, h


def _look(
    image: NDArray[np.uint8], window: tuple[float, float, float, float], size: int
) -> NDArray[np.uint8]:
    """The window of the image, (size, size, 3)."""
    left, top, w, h = window
    if w == size and h == size and left == int(left) and top == int(top):
        return image[int(top) : int(top) + size, int(left) : int(left) + size]
    to_source = np.array([[w / size, 0, left + w / size / 2 - 0.5], [0, h / size, top + h / size / 2 - 0.5]])
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    border = cv2.BORDER_REPLICATE
    view: NDArray[np.uint8] = cv2.warpAffine(image, to_source, (size, size), flags=flags, borderMode=border)
    return view


def _shown(boxes: NDArray[Any], window: tuple[float, float, float, float], size: int) -> NDArray[Any]:
    """Targets (m, 5) class, cx, cy, w, h in pixels of the window, of the signs enough of which it shows."""
    left, top, w, h = window
    scale = np.array([size / w, size / h] * 2)
    corners = (boxes[:, 1:] - np.array([left, top] * 2)) * scale
    inside = corners.clip(0, size)
    area = (corners[:, 2:] - corners[:, :2]).prod(1)
    sides = inside[:, 2:] - inside[:, :2]
    keep = (sides.prod(1) >= MIN_VISIBLE * area) & (sides.min(1) >= 4)
    centres = (inside[:, :2] + inside[:, 2:]) / 2
    shown: NDArray[Any] = np.concatenate((boxes[:, :1], centres, sides), 1)[keep]
    return shown


def draw_crops(pool: Pool, stage: Stage, rng: np.random.Generator) -> Batch:
    """Images (n, 3, s, s) at random places of the pool's larger pictures, and labels (n,)."""
    index = rng.integers(len(pool), size=stage.batch)
    spare = pool["images"].shape[1] - stage.size
    corner = rng.integers(0, spare + 1, (stage.batch, 2))
    images = np.stack(
        [
            pool["images"][i, y : y + stage.size, x : x + stage.size]
            for i, (y, x) in zip(index, corner, strict=True)
        ]
    )
    return lit(images, rng), torch.from_numpy(pool["labels"][index])


def draw_singles(pool: Pool, stage: Stage, rng: np.random.Generator) -> Batch:
    """Images (n, 3, 64, 64), boxes (n, 4) xyxy as parts of the picture, labels (n,); some are shifted."""
    index = rng.integers(len(pool), size=stage.batch)
    images, boxes = np.array(pool["images"][index]), np.array(pool["boxes"][index])
    side = images.shape[1]
    for i in np.flatnonzero(rng.random(stage.batch) < 0.5):
        low = np.maximum(-boxes[i, :2] * side, -8).astype(int)
        high = np.minimum((1 - boxes[i, 2:]) * side, 8).astype(int)
        dx, dy = (int(rng.integers(min(a, 0), max(b, 0) + 1)) for a, b in zip(low, high, strict=True))
        to_source = np.array([[1.0, 0, -dx], [0, 1.0, -dy]])
        flags = cv2.INTER_NEAREST | cv2.WARP_INVERSE_MAP
        images[i] = cv2.warpAffine(
            images[i], to_source, (side, side), flags=flags, borderMode=cv2.BORDER_REPLICATE
        )
        boxes[i] += np.array([dx, dy, dx, dy], np.float32) / side
    return lit(images, rng), torch.from_numpy(boxes), torch.from_numpy(pool["labels"][index])


def draw_masks(pool: Pool, stage: Stage, rng: np.random.Generator) -> Batch:
    """Images (n, 3, 192, 256) and masks (n, 192, 256), half of them mirrored: segments have no handedness."""
    index = rng.integers(len(pool), size=stage.batch)
    images, masks = np.array(pool["small"][index]), np.array(pool["masks"][index])
    mirrored = rng.random(stage.batch) < 0.5
    images[mirrored] = images[mirrored, :, ::-1]
    masks[mirrored] = masks[mirrored, :, ::-1]
    return lit(images, rng), torch.from_numpy(masks.astype(np.int64))


def lit(images: NDArray[np.uint8], rng: np.random.Generator) -> Tensor:
    """Float images (n, 3, h, w) in 0..1, each with its own brightness, contrast and tint."""
    n = len(images)
    gain = np.exp(rng.normal(0, 0.12, (n, 1, 1, 1)) + rng.normal(0, 0.04, (n, 1, 1, 3)))
    shift = rng.normal(0, 0.03, (n, 1, 1, 1))
    tensor = torch.from_numpy(images).to(torch.float32)
    tensor = tensor * torch.from_numpy((gain / 255).astype(np.float32)) + torch.from_numpy(
        shift.astype(np.float32)
    )
    return tensor.clamp_(0, 1).permute(0, 3, 1, 2)
