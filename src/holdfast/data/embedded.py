"""The embedded data set `signs`: road scenes drawn when they are loaded, in the view a task needs."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from importlib import resources
from io import BytesIO

import numpy as np

from holdfast.core.dataset import Dataset
from holdfast.core.errors import InputError
from holdfast.core.fingerprint import of
from holdfast.core.model import Task
from holdfast.core.types import Boxes, Label, MaskFile, Sample

DEFAULT_SEED, DEFAULT_COUNT = 0, 1000


@dataclass(frozen=True)
class SignsEntry:
    """One scene or crop, named by what it is drawn from."""

    seed: int
    index: int
    task: Task

    @property
    def name(self) -> str:
        """A file name, as if the picture had been written."""
        return f"signs-{self.seed}-{self.index:06d}.jpg"

    def key(self) -> str:
        """The generator's source, the seed, the index and the task: known without drawing."""
        return of(["signs", generator_fingerprint(), self.seed, self.index, self.task])

    def load(self) -> Sample:
        """The picture as JPEG, with its truth."""
        return _LOADERS[self.task](self.name, self.seed, self.index)


def signs_dataset(name: str, task: Task, images: int | None = None) -> Dataset:
    """The data set of `signs`, `signs:SEED` or `signs:SEED:COUNT` for a task."""
    from holdfast.data.signs import CLASSES, GROUPS, SEGMENTS

    seed, count = _numbers(name)
    classes = {"detect": CLASSES, "classify": CLASSES, "single": GROUPS, "segment": SEGMENTS}[task]
    entries = tuple(SignsEntry(seed, index, task) for index in range(count if images is None else images))
    return Dataset(name, "signs", task, tuple(classes), entries)


@functools.cache
def generator_fingerprint() -> str:
    """The hash of the generator's source files: it changes when the pictures may."""
    sources = resources.files("holdfast.data.signs").iterdir()
    return of({file.name: file.read_bytes() for file in sources if file.name.endswith(".py")})


def _numbers(name: str) -> tuple[int, int]:
    parts = name.split(":")[1:]
    if len(parts) > 2 or any(not part.isdecimal() for part in parts):
        raise InputError(f"expected signs, signs:SEED or signs:SEED:COUNT with whole numbers, got {name!r}")
    seed = int(parts[0]) if parts else DEFAULT_SEED
    count = int(parts[1]) if len(parts) > 1 else DEFAULT_COUNT
    if count < 1:
        raise InputError(f"{name}: expected a count of 1 or more, got {count}")
    return seed, count


def _detect(name: str, seed: int, index: int) -> Sample:
    from holdfast.data.signs import encode, scene

    drawn = scene(seed, index)
    return Sample(name, encode(drawn.image), Boxes(drawn.boxes, drawn.classes))


def _classify(name: str, seed: int, index: int) -> Sample:
    from holdfast.data.signs import crop_classify, encode

    image, label = crop_classify(seed, index)
    return Sample(name, encode(image), Label(int(label)))


def _single(name: str, seed: int, index: int) -> Sample:
    from holdfast.data.signs import crop_single, encode

    image, box, group = crop_single(seed, index)
    height, width = image.shape[:2]
    xyxy = np.asarray(box, np.float64).reshape(1, 4) * np.array([width, height, width, height])
    return Sample(name, encode(image), Boxes(xyxy, np.array([group])))


def _segment(name: str, seed: int, index: int) -> Sample:
    from PIL import Image as Pillow

    from holdfast.data.signs import encode, scene

    drawn, stream = scene(seed, index), BytesIO()
    Pillow.fromarray(np.ascontiguousarray(drawn.mask, np.uint8)).save(stream, "PNG")
    return Sample(name, encode(drawn.image), MaskFile(stream.getvalue()))


_LOADERS = {"detect": _detect, "classify": _classify, "single": _single, "segment": _segment}
