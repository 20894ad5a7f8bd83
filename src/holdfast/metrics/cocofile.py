"""COCO files: truth and predictions as tables, checked as a whole, every fault named.

Ids may be any integers, 0 included: they become indices in rising order and are never used as flags.
(pycocotools marks a match by the id of the annotation, so that there an annotation of id 0 is never found.)
Each column is converted and checked as a whole; only if a check fails are the values checked one by one.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from holdfast.core.errors import DataError
from holdfast.core.types import Bools, Floats, Ints
from holdfast.metrics.boxes import DetectionTable, TruthTable


@dataclass(frozen=True, eq=False)
class TruthFile:
    """A truth file: the table, and the ids and names its indices stand for, in rising order of id."""

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
    with collector_paused():
        content = _read_json(path)
        if not isinstance(content, dict):
            hint = " (is this the predictions file?)" if isinstance(content, list) else ""
            raise DataError(
                f"{path}: expected an object with images, categories and annotations, "
                f"got {_kind(content)}{hint}"
            )
        problems = Problems(path)
        images, image_ids = _identified(content, "images", problems)
        categories, category_ids = _identified(content, "categories", problems)
        table = _truth_table(content, image_ids, category_ids, problems)
        problems.raise_if_any()
        if table is None:  # unreachable: every None has noted a problem
            raise DataError(f"{path}: annotations could not be read")
        image_order, category_order = np.argsort(image_ids), np.argsort(category_ids)
        return TruthFile(
            path=path,
            table=table,
            image_ids=image_ids[image_order],
            category_ids=category_ids[category_order],
            image_names=tuple(str(images[i].get("file_name", images[i]["id"])) for i in image_order.tolist()),
            class_names=tuple(str(categories[i].get("name", categories[i]["id"])) for i in category_order),
        )


def read_predictions(path: str | Path, truth: TruthFile) -> DetectionTable:
    """The detections of a COCO result file, a list of {image_id, category_id, bbox, score}."""
    path = Path(path)
    with collector_paused():
        content = _read_json(path)
        if not isinstance(content, list):
            hint = " (is this the truth file?)" if isinstance(content, dict) and "images" in content else ""
            raise DataError(
                f"{path}: expected a list of objects with image_id, category_id, bbox and score, "
                f"got {_kind(content)}{hint}"
            )
        problems = Problems(path)
        records = objects(content, "", problems)
        image = _indices(records, "image_id", "", truth.image_ids, "images", problems)
        category = _indices(records, "category_id", "", truth.category_ids, "categories", problems)
        xywh = boxes(records, "", problems)
        score = numbers(records, "score", "", problems)
        problems.raise_if_any()
        if image is None or category is None or xywh is None or score is None:
            raise DataError(f"{path}: predictions could not be read")
        return DetectionTable(image, category, xywh, score)


def _truth_table(
    content: dict[str, Any], image_ids: Ints, category_ids: Ints, problems: Problems
) -> TruthTable | None:
    where = "annotations"
    records = records_of(content, where, problems)
    image = _indices(records, "image_id", where, np.sort(image_ids), "images", problems)
    category = _indices(records, "category_id", where, np.sort(category_ids), "categories", problems)
    xywh = boxes(records, where, problems)
    zero = np.zeros(len(records))
    area = numbers(records, "area", where, problems, zero if xywh is None else xywh[:, 2] * xywh[:, 3])
    crowd = _flags(records, "iscrowd", where, problems)
    difficult = _flags(records, "difficult", where, problems)
    if any("id" in record for record in records):
        ids = integers(records, "id", where, problems)
        if ids is not None:
            _unique(ids, where, problems)
    if image is None or category is None or xywh is None or area is None:
        return None
    return TruthTable(image, category, xywh, area, crowd, difficult)


def _identified(content: dict[str, Any], key: str, problems: Problems) -> tuple[list[dict[str, Any]], Ints]:
    """The records under a key and their ids, which must be unique."""
    records = records_of(content, key, problems)
    ids = integers(records, "id", key, problems)
    if ids is None:
        return [], np.zeros(0, dtype=np.int64)
    _unique(ids, key, problems)
    return records, ids


def _unique(ids: Ints, where: str, problems: Problems) -> None:
    rising = np.sort(ids)
    if bool((rising[1:] > rising[:-1]).all()):  # np.unique takes 30 ms to import what it needs
        return
    _, first = np.unique(ids, return_index=True)
    for index in np.setdiff1d(np.arange(len(ids)), first).tolist():
        problems.add(f"{where}[{index}].id", "an id of its own", int(ids[index]))


def _indices(
    records: list[dict[str, Any]], key: str, where: str, known: Ints, kind: str, problems: Problems
) -> Ints | None:
    """The places of the ids of a column among the known ones, which are in rising order."""
    ids = integers(records, key, where, problems)
    if ids is None:
        return None
    place = np.searchsorted(known, ids)
    place[place == len(known)] = 0
    unknown = known[place] != ids if len(known) else np.ones(len(ids), dtype=bool)
    for index in np.flatnonzero(unknown).tolist():
        problems.add(f"{where}[{index}].{key}", f"an id of the truth's {kind}", int(ids[index]))
    return place


def _flags(records: list[dict[str, Any]], key: str, where: str, problems: Problems) -> Bools:
    """The column of yes or no `key`, no where the key is absent."""
    values = [record.get(key, 0) for record in records]
    if not set(map(type, values)) <= {int, bool}:
        for index, value in enumerate(values):
            if type(value) not in (int, bool):
                problems.add(f"{where}[{index}].{key}", "0 or 1", value)
        return np.zeros(len(records), dtype=bool)
    return np.array(values, dtype=bool)


def _kind(value: object) -> str:
    if isinstance(value, dict):
        return "an object"
    return "a list" if isinstance(value, list) else repr(value)[:80]


SHOWN_PROBLEMS = 20
FARTHEST = 1e9  # pixels; the square of more could not be told from infinity


@dataclass
class Problems:
    """The faults of one file: the first twenty in words, and how many there are."""

    path: Path
    shown: list[str] = field(default_factory=list)
    count: int = 0

    def add(self, where: str, expected: str, got: object) -> None:
        """Note one fault: at `where`, what was expected and what was got."""
        self.count += 1
        if len(self.shown) < SHOWN_PROBLEMS:
            text = repr(got)
            self.shown.append(
                f"{where}: expected {expected}, got {text if len(text) <= 80 else text[:77] + '...'}"
            )

    def raise_if_any(self) -> None:
        """Raise one DataError that names every fault, if there is any."""
        if self.count == 1:
            raise DataError(f"{self.path}: {self.shown[0]}")
        if self.count:
            rest = f", the first {len(self.shown)}" if self.count > len(self.shown) else ""
            raise DataError("\n  ".join([f"{self.path}: {self.count} problems{rest}:", *self.shown]))


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause Python's cycle collector for the block.

    A parsed file is hundreds of thousands of new containers and no cycle; walking them again and again
    doubles the time of reading.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _read_json(path: Path) -> Any:
    """The parsed content of a file; raise DataError with line and column if it is no JSON."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    if not data or data.isspace():
        raise DataError(f"{path}: expected JSON, got an empty file")
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        return _lenient(path, data, error)


def _lenient(path: Path, data: bytes, first: orjson.JSONDecodeError) -> Any:
    """The file parsed with NaN and Infinity allowed, so that the checks can say which record holds them."""
    import json

    try:
        return json.loads(data)
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}: expected UTF-8 text, got byte {data[error.start]:#x} at {error.start}"
        ) from first
    except json.JSONDecodeError as error:
        raise DataError(
            f"{path}: not JSON at line {error.lineno} column {error.colno}: {error.msg}"
        ) from first
    except (RecursionError, ValueError) as error:  # nested too deeply, or an integer of thousands of digits
        raise DataError(f"{path}: cannot be read: {error}") from first


def records_of(parent: Any, key: str, problems: Problems) -> list[dict[str, Any]]:
    """The list of objects under a key; faults are noted and give an empty list."""
    if key not in parent:
        problems.add(key, "a list", "nothing (the key is missing)")
        return []
    return objects(parent[key], key, problems)


def objects(records: Any, where: str, problems: Problems) -> list[dict[str, Any]]:
    """The value, if it is a list of objects; faults are noted and give an empty list."""
    if not isinstance(records, list):
        problems.add(where or "the file", "a list", records)
        return []
    if set(map(type, records)) <= {dict}:
        return records
    for index, record in enumerate(records):
        if not isinstance(record, dict):
            problems.add(f"{where}[{index}]", "an object", record)
    return []


def integers(records: list[dict[str, Any]], key: str, where: str, problems: Problems) -> Ints | None:
    """The integer column `key`, (n,), or None after noting what is wrong."""
    values = [record.get(key, _MISSING) for record in records]
    if set(map(type, values)) <= {int}:
        with suppress(OverflowError):
            return np.fromiter(values, np.int64, len(values))
    _note(values, _is_integer, f"{where}[{{}}].{key}", "an integer", problems)
    return None


def numbers(
    records: list[dict[str, Any]], key: str, where: str, problems: Problems, default: Floats | None = None
) -> Floats | None:
    """The column of finite numbers `key`, (n,), or None after noting what is wrong.

    With a default, records without the key take theirs from it.
    """
    values = [record.get(key, _MISSING) for record in records]
    if default is not None and _MISSING in values:
        values = [b if a is _MISSING else a for a, b in zip(values, default.tolist(), strict=True)]
    column = _floats(values)
    if column is not None and np.isfinite(column).all():
        return column
    _note(values, _is_number, f"{where}[{{}}].{key}", "a finite number", problems)
    return None


def boxes(records: list[dict[str, Any]], where: str, problems: Problems) -> Floats | None:
    """The column `bbox` as xywh, (n, 4), or None after noting what is wrong."""
    values = [record.get("bbox", _MISSING) for record in records]
    if set(map(type, values)) <= {list} and set(map(len, values)) <= {4}:
        column = _floats(list(chain.from_iterable(values)))
        if column is not None and (np.abs(column) <= FARTHEST).all():
            xywh = column.reshape(-1, 4)
            if (xywh[:, 2:] >= 0).all():
                return xywh
    expected = "4 finite numbers x, y, w, h (at most 1e9) with w ≥ 0 and h ≥ 0"
    _note(values, _is_box, f"{where}[{{}}].bbox", expected, problems)
    return None


class _Missing:
    def __repr__(self) -> str:
        return "nothing (the key is missing)"


_MISSING = _Missing()


def _floats(values: list[Any]) -> Floats | None:
    """The values as floats, (n,); None if one is no number or too large."""
    if set(map(type, values)) <= {int, float}:
        with suppress(OverflowError):
            return np.fromiter(values, np.float64, len(values))
    return None


def _note(
    values: list[Any], valid: Callable[[Any], bool], place: str, expected: str, problems: Problems
) -> None:
    """Note every value that is not valid; `place` has braces where its index goes."""
    for index, value in enumerate(values):
        if not valid(value):
            problems.add(place.format(index), expected, value)


def _is_integer(value: Any) -> bool:
    return type(value) is int and -(2**63) <= value < 2**63


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= sys.float_info.max


def _is_box(value: Any) -> bool:
    if not isinstance(value, list) or len(value) != 4:
        return False
    return all(_is_number(v) and abs(v) <= FARTHEST for v in value) and not any(v < 0 for v in value[2:])
