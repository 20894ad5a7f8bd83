"""Which images an integer precision is calibrated on: never those it is tested on."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.core.dataset import Dataset, Entry
from holdfast.core.errors import ImageError
from holdfast.core.model import Task
from holdfast.core.pipeline import Pipeline
from holdfast.data.embedded import is_embedded
from holdfast.data.open import open_dataset
from holdfast.stages.deployed import Calibration

IMAGES = 100  # more change the ranges little, fewer make them jump


@dataclass(frozen=True)
class Reserved:
    """The calibration, which test images it costs calibrated variants, and where it came from in words."""

    calibration: Calibration
    without: frozenset[str]
    words: str


def reserve(tested: Dataset, spare: Dataset | None, pipeline: Pipeline, images: int = IMAGES) -> Reserved:
    """Images of `spare` that are not tested on; without `spare` some of the tested, which are then left out.

    Those are spread evenly over the data: lists are mostly sorted by class.
    """
    known = set() if spare is None else {_key(e) for e in tested.entries}
    free = () if spare is None else tuple(e for e in spare.entries if _key(e) not in known)[:images]
    if free and spare is not None:
        words = f"{len(free)} images of {spare.name} that are not tested on"
        return Reserved(Calibration(free, pipeline), frozenset(), words)
    held = spread(tested.entries, min(images, max(1, len(tested) // 4)))
    words = (
        f"{len(held)} of the {len(tested)} images, on which calibrated variants are then not tested "
        "(their Δ is to the clean result on the others)"
    )
    return Reserved(Calibration(held, pipeline), frozenset(e.name for e in held), words)


def spare_of(
    data: str,
    task: Task,
    format: str | None,  # noqa: A002 (the name of the option)
    split: str | None,
    count: int = IMAGES,
    *,
    whole: bool = True,
) -> Dataset | None:
    """Other embedded scenes, or all of the data (`reserve` leaves out what is tested); else None."""
    words = data.split(":")
    if is_embedded(data):
        seed = int(words[1]) if len(words) > 1 else 0
        return open_dataset(f"{words[0]}:{seed + 1}:{count}", task=task)
    return open_dataset(data, task=task, format=format, split=split) if whole else None


def spread(entries: tuple[Entry, ...], count: int) -> tuple[Entry, ...]:
    """So many entries, evenly spread over all."""
    return tuple(entries[(2 * i + 1) * len(entries) // (2 * count)] for i in range(count))


def _key(entry: Entry) -> str:
    try:
        return entry.key()
    except ImageError:
        return f"unreadable: {entry.name}"
