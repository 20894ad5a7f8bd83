"""COCO files: truth and predictions as tables; all faults of a file are reported together.

Ids may be any integers, including 0: they become indices in ascending order and are never used as flags.
(pycocotools marks a match by the id of the annotation, so that there an annotation of id 0 is never found.)
Each column is converted and checked as a whole; only if a check fails are the values checked one by one.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import orjson
from numpy.typing import NDArray

from holdfast.core.errors import DataError
from holdfast.core.limits import read_file
from holdfast.core.types import Bools, Floats, Ints
from holdfast.metrics.boxes import DetectionTable, TruthTable

T = TypeVar("T", bound=np.generic)
_LISTS = ("images", "categories", "annotations")
SHOWN_PROBLEMS = 20
FARTHEST = 1e9  # pixels; the square of larger values could overflow


@dataclass(frozen=True, eq=False)
class TruthFile:
    """A truth file: the table, and the ids and names of its indices, in ascending order of id."""

    path: Path
    table: TruthTable
    image_ids: Ints
    category_ids: Ints
    image_names: tuple[str, ...]
    class_names: tuple[str, ...]

    @property
    def images(self) -> int:
        """How many images there are, those without boxes included."""
        return len(self.image_ids)

    @property
    def classes(self) -> int:
        """How many classes there are, those without boxes included."""
        return len(self.category_ids)


def read_truth(path: str | Path) -> TruthFile:
    """The truth of a COCO JSON file with `images`, `categories` and `annotations`."""
    path = Path(path)
    with _collector_paused():
        content = _read_json(path)
        if not isinstance(content, dict):
            hint = " (is this the predictions file?)" if isinstance(content, list) else ""
            expected = "an object with images, categories and annotations"
            raise DataError(f"{path}: expected {expected}, got {_kind(content)}{hint}")
        problems = _Problems(path)
        lists = {key: content.get(key, "nothing (the key is missing)") for key in _LISTS}
        images = _Records.of(lists["images"], "images", problems)
        image_ids = images.unique("id")
        categories = _Records.of(lists["categories"], "categories", problems)
        category_ids = categories.unique("id")
        annotations = _Records.of(lists["annotations"], "annotations", problems)
        image = annotations.indices("image_id", np.sort(image_ids), "images")
        category = annotations.indices("category_id", np.sort(category_ids), "categories")
        xywh, n = annotations.boxes(), len(annotations.items)
        area = annotations.numbers("area", xywh[:, 2] * xywh[:, 3] if len(xywh) == n else np.zeros(n))
        crowd, difficult = annotations.flags("iscrowd"), annotations.flags("difficult")
        if any("id" in record for record in annotations.items):
            annotations.unique("id")
        problems.raise_if_any()
        image_order, category_order = np.argsort(image_ids), np.argsort(category_ids)
        return TruthFile(
            path=path,
            table=TruthTable(image, category, xywh, area, crowd, difficult=difficult),
            image_ids=image_ids[image_order],
            category_ids=category_ids[category_order],
            image_names=images.names("file_name", image_order),
            class_names=categories.names("name", category_order),
        )


def read_predictions(path: str | Path, truth: TruthFile) -> DetectionTable:
    """The detections of a COCO result file, a list of {image_id, category_id, bbox, score}."""
    path = Path(path)
    with _collector_paused():
        content = _read_json(path)
        if not isinstance(content, list):
            hint = " (is this the truth file?)" if isinstance(content, dict) and "images" in content else ""
            expected = "a list of objects with image_id, category_id, bbox and score"
            raise DataError(f"{path}: expected {expected}, got {_kind(content)}{hint}")
        problems = _Problems(path)
        records = _Records.of(content, "", problems)
        image = records.indices("image_id", truth.image_ids, "images")
        category = records.indices("category_id", truth.category_ids, "categories")
        table = DetectionTable(image, category, records.boxes(), records.numbers("score"))
        problems.raise_if_any()
        return table


def _kind(value: object) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    return repr(value)[:80]


@dataclass
class _Problems:
    """The faults of one file: the first twenty in words, and how many there are."""

    path: Path
    messages: list[str] = field(default_factory=list)
    count: int = 0

    def add(self, where: str, expected: str, got: object) -> None:
        """Add one fault: its location, the expected value and the actual one."""
        self.count += 1
        if len(self.messages) < SHOWN_PROBLEMS:
            text = repr(got) if len(repr(got)) <= 80 else f"{repr(got)[:77]}..."
            self.messages.append(f"{where}: expected {expected}, got {text}")

    def raise_if_any(self) -> None:
        """Raise one DataError that names every fault, if there is any."""
        if self.count == 1:
            raise DataError(f"{self.path}: {self.messages[0]}")
        if self.count:
            rest = f", the first {len(self.messages)}" if self.count > len(self.messages) else ""
            raise DataError("\n  ".join([f"{self.path}: {self.count} problems{rest}:", *self.messages]))


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Pause the cycle collector: its traversals of a parsed file, which has no cycle, double the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _read_json(path: Path) -> Any:
    data = read_file(path, "label-mb", DataError)
    if not data or data.isspace():
        raise DataError(f"{path}: expected JSON, got an empty file")
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        pass  # NaN and Infinity are allowed below, so that the checks can say which record holds them
    try:
        return json.loads(data)
    except UnicodeDecodeError as error:
        got = f"byte {data[error.start]:#x} at {error.start}"
        raise DataError(f"{path}: expected UTF-8 text, got {got}") from error
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        raise DataError(f"{path}: not JSON at {where}: {error.msg}") from error
    except (RecursionError, ValueError) as error:  # nested too deeply, or an integer of thousands of digits
        raise DataError(f"{path}: cannot be read: {error}") from error


class _Missing:
    def __repr__(self) -> str:
        return "nothing (the key is missing)"


_MISSING = _Missing()


@dataclass(frozen=True)
class _Records:
    """A list of objects, read column by column; a column with faults is empty after they are added."""

    items: list[dict[str, Any]]
    where: str  # the key of the list, empty if the file is the list
    problems: _Problems

    @staticmethod
    def of(items: Any, where: str, problems: _Problems) -> _Records:
        """The value, if it is a list of objects."""
        if not isinstance(items, list):
            problems.add(where or "the file", "a list", items)
            return _Records([], where, problems)
        odd = [] if set(map(type, items)) <= {dict} else items
        for index, item in enumerate(odd):
            if not isinstance(item, dict):
                problems.add(f"{where}[{index}]", "an object", item)
        return _Records([] if odd else items, where, problems)

    def names(self, key: str, order: Ints) -> tuple[str, ...]:
        """The names under a key in this order of records; the id where there is none."""
        return tuple(str(self.items[i].get(key, self.items[i]["id"])) for i in order.tolist())

    def integers(self, key: str) -> Ints:
        """The integer column, (n,)."""
        values = self._column(key)
        column = _converted(values, {int}, np.int64)
        if column is not None:
            return column
        self._note(key, values, lambda v: type(v) is int and -(2**63) <= v < 2**63, "an integer")
        return np.zeros(0, dtype=np.int64)

    def unique(self, key: str) -> Ints:
        """The integer column, (n,), whose values must differ."""
        ids = self.integers(key)
        rising = np.sort(ids)
        if not (rising[1:] > rising[:-1]).all():  # np.unique takes 30 ms to import what it needs
            _, first = np.unique(ids, return_index=True)
            for index in np.setdiff1d(np.arange(len(ids)), first).tolist():
                self.problems.add(f"{self.where}[{index}].{key}", "an id of its own", int(ids[index]))
        return ids

    def indices(self, key: str, known: Ints, kind: str) -> Ints:
        """The indices of a column's ids among the known ones, which are in ascending order, (n,)."""
        ids = self.integers(key)
        place = np.searchsorted(known, ids)
        place[place == len(known)] = 0
        unknown = known[place] != ids if len(known) else np.ones(len(ids), dtype=bool)
        for index in np.flatnonzero(unknown).tolist():
            where = f"{self.where}[{index}].{key}"
            self.problems.add(where, f"an id of the truth's {kind}", int(ids[index]))
        return place

    def numbers(self, key: str, default: Floats | None = None) -> Floats:
        """The column of finite numbers, (n,); with a default, records without the key take theirs from it."""
        values = self._column(key)
        if default is not None and _MISSING in values:
            values = [b if a is _MISSING else a for a, b in zip(values, default.tolist(), strict=True)]
        column = _converted(values, {int, float}, np.float64)
        if column is not None and np.isfinite(column).all():
            return column
        self._note(key, values, _is_number, "a finite number")
        return np.zeros(0)

    def boxes(self) -> Floats:
        """The column `bbox` as xywh, (n, 4)."""
        values = self._column("bbox")
        if set(map(type, values)) <= {list} and set(map(len, values)) <= {4}:
            column = _converted(list(chain.from_iterable(values)), {int, float}, np.float64)
            if column is not None and (np.abs(column) <= FARTHEST).all():
                xywh = column.reshape(-1, 4)
                if (xywh[:, 2:] >= 0).all():
                    return xywh
        expected = "4 finite numbers x, y, w, h (at most 1e9) with w ≥ 0 and h ≥ 0"
        self._note("bbox", values, _is_box, expected)
        return np.zeros((0, 4))

    def flags(self, key: str) -> Bools:
        """The boolean column, (n,), False where the key is absent."""
        values = [record.get(key, 0) for record in self.items]
        if set(map(type, values)) <= {int, bool}:
            return np.array(values, dtype=bool)
        self._note(key, values, lambda value: type(value) in (int, bool), "0 or 1")
        return np.zeros(0, dtype=bool)

    def _column(self, key: str) -> list[Any]:
        try:
            return list(map(itemgetter(key), self.items))  # three times as fast as one lookup per record
        except KeyError:
            return [record.get(key, _MISSING) for record in self.items]

    def _note(self, key: str, values: list[Any], valid: Callable[[Any], bool], expected: str) -> None:
        for index, value in enumerate(values):
            if not valid(value):
                self.problems.add(f"{self.where}[{index}].{key}", expected, value)


def _converted(values: list[Any], types: set[type], dtype: type[T]) -> NDArray[T] | None:
    """The values as an array (n,); None if one is of another type or too large."""
    if set(map(type, values)) <= types:
        with suppress(OverflowError):
            return np.fromiter(values, dtype, len(values))
    return None


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= sys.float_info.max


def _is_box(value: Any) -> bool:
    numbers = isinstance(value, list) and all(_is_number(v) and abs(v) <= FARTHEST for v in value)
    return numbers and len(value) == 4 and value[2] >= 0 and value[3] >= 0
