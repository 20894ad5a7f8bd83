"""What the network is shown of an image under each choice; without torch, for worker processes load this."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

import numpy as np

from holdfast.core import fingerprint
from holdfast.core.dataset import Entry
from holdfast.core.errors import DataError, HoldfastError
from holdfast.core.frame import place
from holdfast.core.model import Input
from holdfast.core.registry import lookup
from holdfast.core.sources import code_of
from holdfast.core.types import Image, Label

GOOD, FAILED = 1, 2  # marks of an image in `state`; 0: not yet done
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


@dataclass(frozen=True)
class Task:
    """How the network is fed, and the choices that its pictures are made for."""

    wanted: Input
    choices: tuple[Choice, ...]


@dataclass(frozen=True)
class Shard:
    """Images to be done, the first of which is number `start`, and where they go."""

    home: Path
    task: Task
    start: int
    entries: tuple[Entry, ...]


def key_of(task: Task, entries: Sequence[Entry]) -> str:
    """A hash of all that decides the pixels: entries, choices, code, libraries, the input."""
    stages = [
        [lookup(kind, getattr(choice, kind)) for kind in ("decode", "colour", "resize", "fit")]
        for choice in task.choices
    ]
    versions = {}
    for name in _LIBRARIES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    content = [entry.key() for entry in entries]
    return fingerprint.of([task.wanted, task.choices, stages, versions, code_of("train"), content])


def fill(shard: Shard) -> int:
    """How many images were done; those that cannot be read are marked."""
    files = {n: np.load(shard.home / f"{n}.npy", mmap_mode="r+") for n in ("images", "labels", "state")}
    for row, entry in enumerate(shard.entries, shard.start):
        try:
            files["labels"][row], images = seen(entry, shard.task)
        except HoldfastError:
            files["state"][row] = FAILED
            continue
        for at, image in enumerate(images):
            files["images"][at, row] = image
        files["state"][row] = GOOD
    return len(shard.entries)


def seen(entry: Entry, task: Task) -> tuple[int, list[Image]]:
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
