"""Training pictures as several systems would show them: decoded, resized and laid out once, kept on disk."""

from __future__ import annotations

import multiprocessing
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holdfast.core.dataset import Dataset, Entry
from holdfast.core.errors import DataError, HoldfastError, InputError, OutputError
from holdfast.core.model import Card, Input, Model
from holdfast.core.processes import become_worker, starting_workers
from holdfast.train.loop import Say
from holdfast.train.shown import GOOD, Choice, Shard, Task, fill, key_of, seen

Progress: TypeAlias = Callable[[int, int], None]  # images done, images found finished already
CHUNK: Final = 32
RESERVE: Final = 100 << 20  # bytes that stay free on the disk


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
    task = Task(model.card.input, tuple(choices))
    key = key_of(task, dataset.entries)
    home = folder / f"pictures-{key[:16]}"
    _prepare(home, key, task, len(dataset))
    state = np.load(home / "state.npy", mmap_mode="r+")
    waiting = [at for at in range(0, len(dataset), CHUNK) if not (state[at : at + CHUNK] > 0).all()]
    shards = [Shard(home, task, at, dataset.entries[at : at + CHUNK]) for at in waiting]
    finished = len(dataset) - sum(len(shard.entries) for shard in shards)
    progress(finished, finished)
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


def _prepare(home: Path, key: str, task: Task, count: int) -> None:
    """Make the files, empty, unless an earlier run left those of this key."""
    if (home / "state.npy").exists() and (home / "key").exists() and (home / "key").read_text() == key:
        return
    size = task.wanted.size
    shapes: dict[str, tuple[Any, tuple[int, ...]]] = {
        "images": (np.uint8, (len(task.choices), count, size.height, size.width, 3)),
        "labels": (np.int64, (count,)),
    }
    try:
        home.mkdir(parents=True, exist_ok=True)
        # A file that is mapped to memory ends the process if the disk is full.
        needed, free = prod(shapes["images"][1]), shutil.disk_usage(home).free
        if needed + RESERVE > free:
            raise OutputError(
                f"{home}: the pictures need {needed / 1e9:.1f} GB, {free / 1e9:.1f} GB are free; mix fewer "
                "decoders and resizes, take fewer images or another folder"
            )
        for name, (kind, shape) in shapes.items():
            np.lib.format.open_memmap(home / f"{name}.npy", "w+", kind, shape)
        (home / "key").write_text(key)
        part = home / "state.part.npy"
        np.save(part, np.zeros(count, np.uint8))
        part.replace(home / "state.npy")  # last: with it the others are whole
    except OSError as problem:
        raise OutputError(f"{home}: the pictures cannot be kept there: {problem.strerror}") from problem


def _filled(shards: list[Shard], jobs: int) -> Iterator[int]:
    """The number of images of each shard, when it is on disk."""
    if jobs == 1 or len(shards) < 2:
        yield from map(fill, shards)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(jobs, len(shards)), context, become_worker, (os.getpid(),)) as staff:
        try:
            with starting_workers():  # they start while the shards are handed out
                answers = staff.map(fill, shards)
            yield from answers
        except BaseException:
            staff.shutdown(wait=False, cancel_futures=True)
            raise


def _opened(home: Path, task: Task, dataset: Dataset, state: NDArray[np.uint8], key: str) -> Pictures:
    """The pictures that are good, in front; each gap is filled by a good one from the end."""
    good = state == GOOD
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
    return Pictures(
        images=shown,
        labels=np.array(labels[order]),
        choices=task.choices,
        key=key,
        names=names,
        left_out=tuple(failed),
    )


def _reason(entry: Entry, task: Task) -> str:
    try:
        seen(entry, task)
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
    return replace(made, labels=labels)
