"""A look at every image of a data set: header by header, in threads; optionally decoding the pixels."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from io import BytesIO

import numpy as np

from holdfast.core.dataset import Dataset, Entry, Problem
from holdfast.core.errors import ImageError
from holdfast.core.types import Boxes, Ints, Label, MaskFile
from holdfast.data import problems as kinds
from holdfast.data.boxes import check_inside
from holdfast.data.entries import (
    FileEntry,
    PixelBoxes,
    StoredLabel,
    StoredMask,
    UnitBoxes,
    read_image_file,
)
from holdfast.data.images import Sniffed, has_end_mark, is_cut_off, misnamed, sniff, sniff_head

_HEAD_BYTES, _TAIL_BYTES = 32 << 10, 4 << 10


@dataclass(frozen=True)
class Look:
    """What one entry turned out to be; `sniffed` and `truth` are None if it cannot be read."""

    sniffed: Sniffed | None
    truth: Boxes | Label | None
    pixels: Ints | None = None  # pixels by class id, if masks were decoded
    problems: tuple[Problem, ...] = field(default=())


def survey(dataset: Dataset, *, decode: bool = False, threads: int = 8) -> Iterator[Look]:
    """A look at each entry, in order. Header only, unless `decode` asks for the pixels too."""
    size = max(1, min(256, len(dataset) // (4 * threads)))
    blocks = [dataset.entries[start : start + size] for start in range(0, len(dataset), size)]
    with ThreadPoolExecutor(threads) as pool:  # reading waits for the disk; decoding releases the lock
        for looks in pool.map(lambda block: [look_at(entry, dataset, decode) for entry in block], blocks):
            yield from looks


def look_at(entry: Entry, dataset: Dataset, decode: bool) -> Look:
    """What one entry turns out to be."""
    try:
        if isinstance(entry, FileEntry):
            return _look_at_file(entry, dataset, decode)
        sample = entry.load()
        truth = None if isinstance(sample.truth, MaskFile) else sample.truth
        pixels = _count_ids(sample.truth.data, entry.name) if isinstance(sample.truth, MaskFile) else None
        return Look(sniff(sample.data, sample.name), truth, pixels)
    except ImageError as problem:
        empty = "(0 bytes)" in str(problem)
        kind = kinds.EMPTY_FILE if empty else kinds.UNREADABLE_IMAGE
        return Look(None, None, None, (Problem(kind, entry.name, _without(str(problem), entry)),))


def _look_at_file(entry: FileEntry, dataset: Dataset, decode: bool) -> Look:
    sniffed, cut_off = _sniff_file(entry.path, entry.name)
    problems = [
        Problem(kinds.ODD_IMAGE, entry.name, note)
        for note in (*misnamed(sniffed, entry.path), *sniffed.notes)
    ]
    if cut_off:
        said = f"the {sniffed.format} file lacks its end mark: probably cut off"
        problems.append(Problem(kinds.TRUNCATED_IMAGE, entry.name, said))
    elif decode and (said := _undecodable(read_image_file(entry.path), sniffed)):
        problems.append(Problem(kinds.UNREADABLE_IMAGE, entry.name, said))
    if entry.size is not None and entry.size != sniffed.size:
        said = "the annotations say {}×{}, the image is {}×{}".format(*entry.size, *sniffed.size)
        problems.append(Problem(kinds.SIZE_DIFFERS, entry.name, said))
    truth: Boxes | Label | None = None
    pixels = None
    if isinstance(entry.truth, PixelBoxes | UnitBoxes):
        truth = entry.truth.scaled(sniffed.size)
        if isinstance(entry.truth, PixelBoxes) and entry.size != sniffed.size:
            for number, box in enumerate(truth.xyxy.tolist(), 1):  # else the reader has looked already
                check_inside(box, sniffed.size, f"{entry.name}: box {number}", problems)
    elif isinstance(entry.truth, StoredLabel):
        truth = Label(entry.truth.index)
    else:
        pixels = _look_at_mask(entry.truth, entry.name, sniffed, dataset, decode, problems)
    return Look(sniffed, truth, pixels, tuple(problems))


def _sniff_file(path: str, name: str) -> tuple[Sniffed, bool]:
    """What a file's header says, and whether the file is cut off; reads its first and last kilobytes."""
    try:
        with open(path, "rb") as stream:  # noqa: PTH123 (paths are kept as text)
            head = stream.read(_HEAD_BYTES)
            found = sniff_head(head, name) if head else None
            if found is not None:
                size = os.fstat(stream.fileno()).st_size
                stream.seek(max(0, size - _TAIL_BYTES))
                if has_end_mark(found.format, stream.read(_TAIL_BYTES)):
                    return found, False
    except FileNotFoundError:
        raise ImageError(f"{name}: no such image file") from None
    except OSError as problem:
        raise ImageError(f"{name}: cannot be read: {problem.strerror or problem}") from problem
    data = read_image_file(path)
    return sniff(data, name), is_cut_off(data)


def _look_at_mask(
    mask: StoredMask, name: str, image: Sniffed, dataset: Dataset, decode: bool, problems: list[Problem]
) -> Ints | None:
    found, _ = _sniff_file(mask.path, mask.path)
    if found.mode not in ("L", "P", "1", "I", "I;16"):
        said = f"the mask {mask.path} has colours ({found.mode}); expected one channel of class ids"
        problems.append(Problem(kinds.UNREADABLE_LABEL, name, said))
        return None
    if found.size != image.size:
        said = "the mask is {}×{}, the image {}×{}".format(*found.size, *image.size)
        problems.append(Problem(kinds.SIZE_DIFFERS, name, said))
    if not decode:
        return None
    counts = _count_ids(read_image_file(mask.path), mask.path)
    known = len(dataset.classes)
    strange = [int(key) for key in np.flatnonzero(counts) if key >= known and key != dataset.ignore_index]
    if known and strange:
        said = f"the mask has the values {strange[:8]}, which are no classes (of {known})"
        problems.append(Problem(kinds.UNKNOWN_CLASS, name, said))
    return counts


def _count_ids(data: bytes, name: str) -> Ints:
    """How many pixels of a mask have each value."""
    from PIL import Image as Pillow

    sniff(data, name)  # refuses what is no image or far too large
    try:
        with Pillow.open(BytesIO(data)) as picture:
            values = np.asarray(picture).astype(np.int64)
    except (OSError, ValueError, SyntaxError) as problem:
        raise ImageError(f"{name}: the mask cannot be decoded: {problem}") from None
    return np.bincount(values.ravel(), minlength=1)


def _undecodable(data: bytes, sniffed: Sniffed) -> str:
    """Why an image cannot be decoded, empty if it can."""
    from PIL import Image as Pillow

    Pillow.init()
    try:
        with Pillow.OPEN[sniffed.format][0](BytesIO(data), "") as picture:
            picture.load()
    except (OSError, ValueError, SyntaxError, EOFError) as problem:
        return f"cannot be decoded: {problem}"
    return ""


def _without(text: str, entry: Entry) -> str:
    for prefix in (entry.name, getattr(entry, "path", entry.name)):
        text = text.removeprefix(f"{prefix}: ")
    return text
