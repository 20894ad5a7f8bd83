"""Images to train on and images to test on, with none in both."""

from __future__ import annotations

import dataclasses

from holdfast.core.dataset import Dataset, Entry
from holdfast.core.errors import DataError
from holdfast.noise.vision.calibration import spread


def held_out(data: Dataset, every: int) -> tuple[Dataset, Dataset]:
    """The data set without every `every`-th image, and those images: spread evenly, as lists are sorted."""
    held = tuple(entry for at, entry in enumerate(data.entries) if at % every == every - 1)
    rest = tuple(entry for at, entry in enumerate(data.entries) if at % every != every - 1)
    if not held:
        raise DataError(
            f"{data.name}: expected at least {every} images to train and test on, got {len(data)}"
        )
    return _with(data, rest, "train"), _with(data, held, "test")


def some(data: Dataset, count: int | None) -> Dataset:
    """At most so many of the images, evenly spread: a folder is sorted by class."""
    if count is None or count >= len(data):
        return data
    return dataclasses.replace(data, entries=spread(data.entries, count))


def apart(data: Dataset, tested: Dataset) -> tuple[Dataset, Dataset]:
    """Both as they are; DataError if an image is in both."""
    known = {entry.key(): entry.name for entry in data.entries}
    twice = [entry.name for entry in tested.entries if entry.key() in known]
    if twice:
        raise DataError(
            f"{len(twice)} images of {tested.name} are in {data.name} too, first {twice[0]}; "
            "test on images that are not trained on"
        )
    return data, tested


def _with(data: Dataset, entries: tuple[Entry, ...], part: str) -> Dataset:
    return dataclasses.replace(data, entries=entries, name=f"{data.name} ({part})")
