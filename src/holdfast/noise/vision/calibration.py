"""Which images an integer precision is calibrated on: never those it is tested on."""

from __future__ import annotations

import functools
import os
from collections import defaultdict
from collections.abc import Hashable, Sequence

from holdfast.core.dataset import Dataset, Entry
from holdfast.core.errors import InputError
from holdfast.core.fingerprint import of_bytes
from holdfast.core.model import Task
from holdfast.data.embedded import FarEntry, SignsEntry, is_embedded
from holdfast.data.entries import FileEntry, read_image_file
from holdfast.data.open import open_dataset
from holdfast.noise.suite import CALIBRATION_ITEMS, Reserved, hold_back, spread


def reserve(tested: Dataset, spare: Dataset | None, images: int = CALIBRATION_ITEMS) -> Reserved[Entry]:
    """Images of `spare` that are not tested on; else some of the tested, which are then skipped."""
    free = () if spare is None else unseen(spare.entries, tested.entries)
    if free and spare is not None:
        taken = spread(free, min(images, len(free)))
        verb = "is" if len(taken) == 1 else "are"
        return Reserved(taken, f"{_counted(len(taken))} of {spare.name} that {verb} not tested on")
    none = "" if spare is None else f" ({spare.name} holds no others)"
    held = hold_back(tested.entries, images)
    others = {entry.name for entry in unseen(tested.entries, held)}  # a copy of one held back was seen, too
    if not others:
        lack = f"{_counted(len(tested))}{none}: none is left to test on; give --calibration DATA"
        return Reserved((), f"no image: {lack}", lack=lack)
    words = (
        f"{len(held)} of the {len(tested)} images{none}, on which calibrated variants are then not tested "
        "(their Δ is to the clean result on the others)"
    )
    return Reserved(held, words, frozenset(e.name for e in tested.entries if e.name not in others))


def unseen(spare: Sequence[Entry], tested: Sequence[Entry]) -> tuple[Entry, ...]:
    """The images of `spare` that are none of the tested, by their bytes: names and truth do not matter.

    Those that cannot be read are left out. Files are read only where two have equally many bytes.
    """
    origins = {_origin(entry) for entry in tested}
    others = tuple(entry for entry in spare if _origin(entry) not in origins)
    if all(isinstance(entry, SignsEntry | FarEntry) for entry in (*others, *tested)):
        return others  # another seed or index is another scene: nothing need be drawn
    alike: dict[int, list[Entry]] = defaultdict(list)
    for entry in tested:
        alike[_size(entry)].append(entry)
    known = functools.cache(lambda size: {_hash(entry) for entry in alike[size]})

    def new(entry: Entry) -> bool:
        size = _size(entry)
        return size > 0 and (size not in alike or _hash(entry) not in known(size))

    return tuple(filter(new, others))


def spare_of(
    data: str,
    task: Task,
    format: str | None,  # noqa: A002 (the name of the option)
    split: str | None,
    count: int = CALIBRATION_ITEMS,
    *,
    whole: bool = True,
) -> Dataset | None:
    """Other embedded scenes, or all of the data (`reserve` leaves out what is tested); else None."""
    words = data.split(":")
    if is_embedded(data):
        seed = int(words[1]) if len(words) > 1 else 0
        return open_dataset(f"{words[0]}:{seed + 1}:{count}", task=task)
    return open_dataset(data, task=task, format=format, split=split) if whole else None


def _origin(entry: Entry) -> Hashable:
    """What an image is read or drawn from: equal for two entries of one image, known without loading it."""
    if isinstance(entry, FileEntry):
        return entry.path
    if isinstance(entry, SignsEntry | FarEntry):
        return type(entry), entry.seed, entry.index
    return id(entry)


def _size(entry: Entry) -> int:
    """How many bytes the encoded image has; 0 if it cannot be read."""
    if not isinstance(entry, FileEntry):
        return len(_data(entry))
    try:
        return os.stat(entry.path).st_size  # noqa: PTH116 (entries keep paths as text)
    except OSError:
        return 0


def _hash(entry: Entry) -> str:
    return of_bytes(_data(entry))


def _data(entry: Entry) -> bytes:
    """The encoded image; empty if it cannot be read."""
    try:
        return read_image_file(entry.path) if isinstance(entry, FileEntry) else entry.load().data
    except InputError:
        return b""


def _counted(images: int) -> str:
    return "1 image" if images == 1 else f"{images} images"
