"""Datasets in memory: images and ground truth as Python values instead of files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

import numpy as np

from holdfast.core.dataset import Dataset
from holdfast.core.errors import DataError, InputError
from holdfast.core.fingerprint import of_bytes
from holdfast.core.model import Task
from holdfast.core.types import Boxes, Label, MaskFile, Sample, Truth, plain_name
from holdfast.data.entries import read_image_file
from holdfast.data.patchfile import png_of


@dataclass(frozen=True)
class MemoryEntry:
    """An image, as encoded bytes or as the path of a file, and its ground truth."""

    name: str
    data: bytes | str = field(repr=False)
    truth: Truth = field(repr=False)

    def key(self) -> str:
        """The hash of the bytes and of the ground truth."""
        truth = self.truth
        if isinstance(truth, Boxes):
            columns = (truth.xyxy, truth.classes, truth.crowd, truth.difficult, truth.areas)
            words = "boxes:" + of_bytes(b"".join(column.tobytes() for column in columns))
        else:
            words = f"label:{truth.index}" if isinstance(truth, Label) else "mask:" + of_bytes(truth.data)
        return of_bytes(f"{of_bytes(self._bytes())}|{words}".encode())

    def load(self) -> Sample:
        """The encoded bytes and the ground truth; raise ImageError if the file cannot be read."""
        return Sample(self.name, self._bytes(), self.truth)

    def _bytes(self) -> bytes:
        return self.data if isinstance(self.data, bytes) else read_image_file(self.data)


def dataset_of_samples(samples: Sequence[Sample], task: Task, name: str = "") -> Dataset:
    """The dataset of these samples, which come from datasets of the same classes."""
    classes = {sample.classes for sample in samples}
    if len(classes) != 1:
        raise DataError(f"expected samples of one dataset, got {len(classes)} different lists of classes")
    entries = tuple(MemoryEntry(sample.name, sample.data, sample.truth) for sample in samples)
    return in_memory(name or entries[0].name, task, classes.pop(), entries)


def dataset_of_pairs(
    pairs: Iterable[tuple[Any, Any]], classes: Sequence[str] = (), name: str = "data"
) -> Dataset:
    """The dataset of (image, truth) pairs.

    An image is a path, encoded bytes, an array (h, w, 3) uint8 RGB or a PIL image. The truth is a class (its
    name or index), a mask (h, w) of class ids, or a mapping with `boxes` (n, 4) xyxy in pixels and `labels`.
    Without `classes`, the classes are the names that occur; indices then count the classes of the model.
    """
    checked = []
    for place, pair in enumerate(pairs):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise DataError(f"{name}[{place}]: expected a pair (image, truth), got {type(pair).__name__}")
        checked.append(pair)
    if not checked:
        raise DataError(f"{name}: expected at least one pair (image, truth), got none")
    class_names = tuple(classes) or tuple(dict.fromkeys(n for _, truth in checked for n in _names_in(truth)))
    numbers = {plain_name(name): index for index, name in enumerate(class_names)}
    truths = [_truth(truth, numbers, f"{name}[{place}]") for place, (_, truth) in enumerate(checked)]
    if len({type(truth) for truth in truths}) > 1:
        raise DataError(f"{name}: expected truths of one kind, got boxes, classes or masks mixed")
    kinds: dict[type, Task] = {Boxes: "detect", Label: "classify", MaskFile: "segment"}
    images = [_encoded(image, f"{name}[{place}]") for place, (image, _) in enumerate(checked)]
    names = [str(x) if isinstance(x, str | PathLike) else f"image-{n}" for n, (x, _) in enumerate(checked)]
    if len(set(names)) < len(names):
        names = [f"{name}-{place}" for place, name in enumerate(names)]
    entries = tuple(MemoryEntry(*each) for each in zip(names, images, truths, strict=True))
    return in_memory(name, kinds[type(truths[0])], class_names, entries)


def in_memory(name: str, task: Task, classes: tuple[str, ...], entries: tuple[MemoryEntry, ...]) -> Dataset:
    """The dataset of these entries; its source is a hash of them, since it cannot be reopened."""
    source = {"memory": of_bytes("".join(entry.key() for entry in entries).encode())[:16]}
    return Dataset(name, "memory", task, classes=classes, entries=entries, source=source)


def _names_in(truth: Any) -> list[str]:
    labels = truth.get("labels", ()) if isinstance(truth, Mapping) else (truth,)
    return [label for label in labels if isinstance(label, str)]


def _truth(truth: Any, numbers: Mapping[str, int], where: str) -> Truth:
    if isinstance(truth, Boxes | Label | MaskFile):
        return truth
    if isinstance(truth, Mapping):
        if set(truth) != {"boxes", "labels"}:
            got = ", ".join(map(str, truth))
            raise DataError(f"{where}: expected a truth with boxes and labels, got {got}")
        boxes = np.asarray(truth["boxes"], np.float64).reshape(-1, 4)
        return Boxes(boxes, np.array([_class(label, numbers, where) for label in truth["labels"]], np.int64))
    if isinstance(truth, str | int | np.integer):
        return Label(_class(truth, numbers, where))
    mask = np.asarray(truth)
    if mask.ndim != 2 or mask.dtype.kind not in "iub":
        expected = "boxes with labels, a class or a mask (h, w) of class ids"
        raise DataError(f"{where}: expected {expected}, got {type(truth).__name__}")
    if mask.size and not 0 <= int(mask.min()) <= int(mask.max()) <= 255:
        got = f"{mask.min()} to {mask.max()}"
        raise DataError(f"{where}: expected class ids from 0 to 255 in the mask, got {got}")
    return MaskFile(png_of(mask.astype(np.uint8)))


def _class(label: Any, numbers: Mapping[str, int], where: str) -> int:
    if not isinstance(label, str):
        return int(label)
    if plain_name(label) not in numbers:
        raise DataError(f"{where}: {label!r} is not among the classes {', '.join(numbers)}")
    return numbers[plain_name(label)]


def _encoded(image: Any, where: str) -> bytes | str:
    """The encoded bytes, or the path; pixels become a PNG, which is lossless."""
    if isinstance(image, str | PathLike):
        return str(image)
    if isinstance(image, bytes | bytearray | memoryview):
        return bytes(image)
    pixels = np.asarray(image.convert("RGB") if hasattr(image, "convert") else image)
    if pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.dtype != np.uint8 or not pixels.size:
        expected = "a path, encoded bytes, a PIL image or an array (h, w, 3) uint8 in RGB order"
        got = f"{type(image).__name__} of shape {pixels.shape} and type {pixels.dtype.name}"
        raise InputError(f"{where}: expected {expected}, got {got}")
    return png_of(pixels)
