"""Training pictures as several systems would show them: decoded, resized and laid out once, kept on disk."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holdfast.core import fingerprint
from holdfast.core.dataset import Dataset, Entry
from holdfast.core.errors import DataError, HoldfastError, InputError, OutputError
from holdfast.core.frame import place
from holdfast.core.model import Card, Input, Model
from holdfast.core.registry import lookup
from holdfast.core.types import Image, Label
from holdfast.train.loop import Say

Progress: TypeAlias = Callable[[int, int], None]  # images done, images found finished already
CHUNK: Final = 32
_GOOD, _FAILED = 1, 2
_LIBRARIES: Final = ("pillow", "opencv-python-headless", "av", "simplejpeg", "numpy")


@dataclass(frozen=True)
class Choice:
    """How a system turns bytes into the network's pixels: the stages before normalisation, by name."""

    decode: str = "pillow"
    resize: str = "pillow-bilinear"
    colour: str = "rgb"
    fit: str = "card"

    @property
    def label(self) -> str:
        """What differs from other choices, as it is printed."""
        more = [n for n, usual in ((self.colour, "rgb"), (self.fit, "card")) if n != usual]
        return " + ".join([self.decode, self.resize, *more])


@dataclass(frozen=True, eq=False)
class Pictures:
    """Images (choices, n, h, w, 3) uint8, memory-mapped, as they are before normalisation; labels (n,)."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    choices: tuple[Choice, ...]
    key: str
    names: tuple[str, ...] = field(repr=False, default=())
    left_out: tuple[str, ...] = ()  # images that could not be read

    def __len__(self) -> int:
        return len(self.labels)

    def place(self, choice: Choice) -> int:
        """Where a choice is among those there are."""
        if choice not in self.choices:
            known = ", ".join(c.label for c in self.choices)
            raise InputError(f"no pictures were made for {choice.label}; there are {known}")
        return self.choices.index(choice)


def pictures_of(
    model: Model,
    dataset: Dataset,
    choices: Sequence[Choice],
    folder: Path,
    jobs: int,
    say: Say,
    places: Sequence[int] | None = None,
    progress: Progress = lambda done, reused: None,
) -> Pictures:
    """The pictures of a data set under each choice, made now unless the folder holds them.

    A killed run goes on. `jobs` are processes (0: one a core; then a script needs `if __name__ ==
    "__main__"`). `places` gives for each class of the data its place among the model's; without it they are
    the same. Images that cannot be read are left out, and said.
    """
    if not dataset.entries:
        raise DataError(f"{dataset.name}: the data set is empty; expected at least one image with its class")
    if dataset.task != "classify":
        raise DataError(f"{dataset.name}: expected a data set to classify, got one to {dataset.task}")
    task = _Task(model.card.input, tuple(choices))
    key = _key(task, dataset.entries)
    home = folder / f"pictures-{key[:16]}"
    _prepare(home, task, len(dataset))
    state = np.load(home / "state.npy", mmap_mode="r+")
    progress(int((state > 0).sum()), int((state > 0).sum()))
    waiting = [at for at in range(0, len(dataset), CHUNK) if not (state[at : at + CHUNK] > 0).all()]
    shards = [_Shard(home, task, at, dataset.entries[at : at + CHUNK]) for at in waiting]
    for done in _filled(shards, jobs or os.cpu_count() or 1):
        progress(done, 0)
    made = _opened(home, task, dataset, np.array(state), key)
    if made.left_out:
        say(f"{len(made.left_out)} of {len(dataset)} images could not be read, first {made.left_out[0]}")
    return _placed(made, places, len(model.card.classes), dataset.name)


def normalised(images: NDArray[np.uint8] | Tensor, card: Card) -> Tensor:
    """The network's input tensor of images (b, h, w, 3), in the card's colour order, layout and type."""
    wanted = card.input
    pixels = torch.from_numpy(np.array(images)) if isinstance(images, np.ndarray) else images
    pixels = pixels.flip(3) if wanted.colour == "bgr" else pixels
    if wanted.dtype != "uint8":
        gain, shift = gain_and_shift(wanted)
        pixels = pixels.to(torch.float32) * gain - shift
    return pixels.permute(0, 3, 1, 2) if wanted.layout == "nchw" else pixels


def gain_and_shift(wanted: Input) -> tuple[Tensor, Tensor]:
    """What a pixel's channels (3,) are multiplied with, and what is then taken off."""
    std = np.asarray(wanted.std, np.float32)
    gain = np.float32(wanted.scale) / std
    return torch.from_numpy(gain), torch.from_numpy(np.asarray(wanted.mean, np.float32) / std)


@dataclass(frozen=True)
class _Task:
    wanted: Input
    choices: tuple[Choice, ...]


@dataclass(frozen=True)
class _Shard:
    home: Path
    task: _Task
    start: int
    entries: tuple[Entry, ...]


def _key(task: _Task, entries: Sequence[Entry]) -> str:
    """A hash of all that decides the pixels: entries, choices with their code, libraries, the input."""
    stages = [
        [
            fingerprint.of_function(lookup(kind, getattr(choice, kind)))
            for kind in ("decode", "colour", "resize", "fit")
        ]
        for choice in task.choices
    ]
    versions = {name: metadata.version(name) for name in _LIBRARIES if _is_installed(name)}
    return fingerprint.of([task.wanted, task.choices, stages, versions, [e.key() for e in entries]])


def _is_installed(name: str) -> bool:
    try:
        return bool(metadata.version(name))
    except metadata.PackageNotFoundError:
        return False


def _prepare(home: Path, task: _Task, count: int) -> None:
    """Nothing; the files are there, empty unless an earlier run left them."""
    if (home / "state.npy").exists():
        return
    size = task.wanted.size
    shapes: dict[str, tuple[Any, tuple[int, ...]]] = {
        "images": (np.uint8, (len(task.choices), count, size.height, size.width, 3)),
        "labels": (np.int64, (count,)),
    }
    try:
        home.mkdir(parents=True, exist_ok=True)
        for name, (kind, shape) in shapes.items():
            np.lib.format.open_memmap(home / f"{name}.npy", "w+", kind, shape)
        part = home / "state.part.npy"
        np.save(part, np.zeros(count, np.uint8))
        part.replace(home / "state.npy")  # last: with it the others are whole
    except OSError as problem:
        raise OutputError(f"{home}: the pictures cannot be kept there: {problem.strerror}") from problem


def _filled(shards: list[_Shard], jobs: int) -> Iterator[int]:
    """The number of images of each shard, when it is on disk."""
    if jobs == 1 or len(shards) < 2:
        yield from map(_fill, shards)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(jobs, len(shards)), mp_context=context) as staff:
        try:
            yield from staff.map(_fill, shards)
        except BaseException:
            staff.shutdown(wait=False, cancel_futures=True)
            raise


def _fill(shard: _Shard) -> int:
    """How many images were done; those that cannot be read are marked."""
    files = {n: np.load(shard.home / f"{n}.npy", mmap_mode="r+") for n in ("images", "labels", "state")}
    for row, entry in enumerate(shard.entries, shard.start):
        try:
            files["labels"][row], seen = _seen(entry, shard.task)
        except HoldfastError:
            files["state"][row] = _FAILED
            continue
        for at, image in enumerate(seen):
            files["images"][at, row] = image
        files["state"][row] = _GOOD
    return len(shard.entries)


def _seen(entry: Entry, task: _Task) -> tuple[int, list[Image]]:
    """The class of an image and what the network is shown of it under each choice."""
    sample = entry.load()
    if not isinstance(sample.truth, Label):
        raise DataError(f"{entry.name}: expected one class for the image")
    decoded: dict[tuple[str, str], Image] = {}
    images = []
    for choice in task.choices:
        path = (choice.decode, choice.colour)
        if path not in decoded:
            decoded[path] = lookup("colour", choice.colour)(lookup("decode", choice.decode)(sample.data))
        wanted = lookup("fit", choice.fit)(task.wanted)
        images.append(place(decoded[path], wanted, lookup("resize", choice.resize))[0])
    return sample.truth.index, images


def _opened(home: Path, task: _Task, dataset: Dataset, state: NDArray[np.uint8], key: str) -> Pictures:
    """The pictures that are good, in front; each gap is filled by a good one from the end."""
    good = state == _GOOD
    kept = int(good.sum())
    if not kept:
        reason = _reason(dataset.entries[0], task)
        raise DataError(f"none of the {len(dataset)} images could be read; first {reason}")
    images, labels = (np.load(home / f"{name}.npy", mmap_mode="r+") for name in ("images", "labels"))
    order = np.arange(kept)
    # From behind `kept` into gaps before it: done twice, as after a kill, it does the same.
    order[~good[:kept]] = kept + np.flatnonzero(good[kept:])
    for gap in np.flatnonzero(order != np.arange(kept)):
        images[:, gap] = images[:, order[gap]]
    failed = [_reason(dataset.entries[at], task) for at in np.flatnonzero(~good)]
    names = tuple(dataset.entries[at].name for at in order)
    shown = np.load(home / "images.npy", mmap_mode="r")[:, :kept]
    return Pictures(shown, np.array(labels[order]), task.choices, key, names, tuple(failed))


def _reason(entry: Entry, task: _Task) -> str:
    try:
        _seen(entry, task)
    except HoldfastError as problem:
        text = str(problem)
        return text if text.startswith(entry.name) else f"{entry.name}: {text}"
    return entry.name


def _placed(made: Pictures, places: Sequence[int] | None, classes: int, name: str) -> Pictures:
    """The pictures with the model's class numbers."""
    labels = made.labels if places is None else np.asarray(places, np.int64)[made.labels]
    if labels.min() < 0 or labels.max() >= classes:
        raise DataError(
            f"{name}: expected classes 0 to {classes - 1}, as the model has, "
            f"got {labels.min()} to {labels.max()}"
        )
    return Pictures(made.images, labels, made.choices, made.key, made.names, made.left_out)
