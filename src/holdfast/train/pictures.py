"""Training images under several preprocessings: decoded and resized once, stored on disk.

Without torch, because worker processes load this module.
"""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from holdfast.core.dataset import Dataset, Entry
from holdfast.core.errors import DataError, HoldfastError, InputError, OutputError
from holdfast.core.model import Input, Model
from holdfast.core.pipeline import place
from holdfast.core.registry import lookup
from holdfast.core.types import Image, Label
from holdfast.engine.cells import ItemWork, Setup, count_missing, run
from holdfast.engine.executor import Progress, silent
from holdfast.engine.store import FolderStore

Say: TypeAlias = Callable[[str], None]
IMAGES: Final = "images.npy"
RESERVE: Final = 100 << 20  # bytes that stay free on the disk


@dataclass(frozen=True)
class Preprocessing:
    """The preprocessing of a system: the stages before normalisation, by name."""

    decode: str = "pillow"
    resize: str = "pillow-bilinear"
    colour: str = "rgb"
    fit: str = "card"

    @property
    def label(self) -> str:
        """The printed name."""
        more = [n for n, usual in ((self.colour, "rgb"), (self.fit, "card")) if n != usual]
        return " + ".join([self.decode, self.resize, *more])


@dataclass(frozen=True, eq=False)
class PreparedImages:
    """Images (choices, n, h, w, 3) uint8, memory-mapped, before normalisation; labels (n,)."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    choices: tuple[Preprocessing, ...]
    key: str
    names: tuple[str, ...] = field(repr=False, default=())
    left_out: tuple[str, ...] = ()  # images that could not be read

    def __len__(self) -> int:
        return len(self.labels)

    def place(self, choice: Preprocessing) -> int:
        """The index of a choice."""
        if choice not in self.choices:
            known = ", ".join(c.label for c in self.choices)
            raise InputError(f"no images for {choice.label}; expected one of {known}")
        return self.choices.index(choice)


@dataclass(frozen=True)
class ImageWork(ItemWork[tuple[int, Entry], NDArray[np.uint8]]):
    """Write the variants of each image to its row of the file; the cell contains its class."""

    home: Path
    input: Input
    choices: tuple[Preprocessing, ...]
    key: str
    batch = 32

    def setups(self) -> list[Setup]:
        """The key, which covers everything that determines the pixels."""
        return [Setup("train", ["pictures", self.key])]

    def contents(self, item: tuple[int, Entry]) -> list[Any]:
        """The row of the image."""
        return [item[0]]

    def open(self, threads: int) -> NDArray[np.uint8]:
        """The file of all pictures."""
        images: NDArray[np.uint8] = np.load(self.home / IMAGES, mmap_mode="r+")
        return images

    def compute_item(self, state: NDArray[np.uint8], item: tuple[int, Entry]) -> dict[str, Any]:
        """Write the variants of an image; return its class, or the reason why it cannot be read."""
        row, entry = item
        try:
            label, images = self.preprocessed(entry)
        except HoldfastError as problem:
            text = str(problem)
            return {"failed": text if text.startswith(entry.name) else f"{entry.name}: {text}"}
        for index, image in enumerate(images):
            state[index, row] = image
        return {"label": label}

    def preprocessed(self, entry: Entry) -> tuple[int, list[Image]]:
        """The class of an image and its preprocessed pixels under each choice."""
        sample = entry.load()
        if not isinstance(sample.truth, Label):
            raise DataError(f"{entry.name}: expected one class for the image")
        decoded: dict[tuple[str, str], Image] = {}
        images = []
        for choice in self.choices:
            key = (choice.decode, choice.colour)
            if key not in decoded:
                decoded[key] = lookup("colour", choice.colour)(lookup("decode", choice.decode)(sample.data))
            fitted = lookup("fit", choice.fit)(self.input)
            images.append(place(decoded[key], fitted, lookup("resize", choice.resize))[0])
        return sample.truth.index, images


def prepare_images(
    model: Model,
    dataset: Dataset,
    choices: Sequence[Preprocessing],
    folder: Path,
    jobs: int,
    say: Say,
    places: Sequence[int] | None = None,
    progress: Progress = silent,
) -> PreparedImages:
    """Preprocess a dataset under each choice; images that the folder contains are not recomputed.

    An interrupted run resumes. `jobs` are worker processes (0: one per core; then a script needs `if __name__
    == "__main__"`). `places` gives the model's class index of each class of the data; without it they are the
    same. Images that cannot be read are skipped and reported.
    """
    if not dataset.entries:
        raise DataError(f"{dataset.name}: the dataset is empty; expected at least one image with its class")
    if dataset.task != "classify":
        expected = "expected a dataset for classification"
        raise DataError(f"{dataset.name}: {expected}, got one for the task {dataset.task}")
    network_input, choices = model.card.input, tuple(choices)
    kinds = ("decode", "colour", "resize", "fit")
    stages = [[lookup(kind, getattr(choice, kind)) for kind in kinds] for choice in choices]
    key = Setup("train", [network_input, choices, stages, [entry.key() for entry in dataset.entries]]).name
    home = folder / f"pictures-{key[-16:]}"
    _prepare(home, (len(choices), len(dataset), network_input.size.height, network_input.size.width, 3))
    work = ImageWork(home, network_input, choices, key)
    items, store = list(enumerate(dataset.entries)), FolderStore(home / "cells")
    if not count_missing(work, items, store):
        jobs = 1  # no process is needed, and a worker may not start any
    cells = run(work, items, store, jobs=jobs, progress=progress).read()
    failed = tuple(cell["failed"] for cell in cells if "failed" in cell)
    if len(failed) == len(cells):
        raise DataError(f"none of the {len(dataset)} images can be read; first {failed[0]}")
    if failed:
        say(f"skipped {len(failed)} of {len(dataset)} images that cannot be read, first {failed[0]}")
    order = _close_gaps(home / IMAGES, np.array(["label" in cell for cell in cells]))
    labels = np.array([cells[index]["label"] for index in order], np.int64)
    labels = labels if places is None else np.asarray(places, np.int64)[labels]
    classes = len(model.card.classes)
    if labels.min() < 0 or labels.max() >= classes:
        expected = f"expected classes 0 to {classes - 1}, as the model has"
        raise DataError(f"{dataset.name}: {expected}, got {labels.min()} to {labels.max()}")
    images = np.load(home / IMAGES, mmap_mode="r")[:, : len(order)]
    names = tuple(dataset.entries[index].name for index in order)
    return PreparedImages(images, labels, choices, key, names=names, left_out=failed)


def _prepare(home: Path, shape: tuple[int, ...]) -> None:
    """Create the file of all pictures, unless an earlier run did."""
    if (home / IMAGES).exists():
        return
    try:
        home.mkdir(parents=True, exist_ok=True)
        # Writing to a memory-mapped file on a full disk kills the process.
        needed, free = prod(shape), shutil.disk_usage(home).free
        if needed + RESERVE > free:
            raise OutputError(
                f"{home}: the images need {needed / 1e9:.1f} GB, {free / 1e9:.1f} GB are free; mix fewer "
                "decoders and resizes, use fewer images or another folder"
            )
        part = home / "part.npy"
        np.lib.format.open_memmap(part, "w+", np.uint8, shape)
        part.replace(home / IMAGES)
    except OSError as problem:
        raise OutputError(f"{home}: the images cannot be stored there: {problem.strerror}") from problem


def _close_gaps(path: Path, readable: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Move readable pictures from the end into the gaps; return the image of each row from the front."""
    count = int(readable.sum())
    order = np.arange(count)
    # Rows after `count` move into gaps before it: repeating this after an interruption is safe.
    order[~readable[:count]] = count + np.flatnonzero(readable[count:])
    if not readable[:count].all():
        images = np.load(path, mmap_mode="r+")
        for gap in np.flatnonzero(~readable[:count]):
            images[:, gap] = images[:, order[gap]]
    return order
