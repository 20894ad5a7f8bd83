"""Records: columns out of a list of JSON objects, with every fault found and named.

The columns are taken whole and checked whole; only when a check fails are the records looked at one by one.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from holdfast.core.errors import DataError
from holdfast.core.types import Floats, Ints

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
        """Nothing, or one `DataError` with all that is wrong."""
        if self.count == 1:
            raise DataError(f"{self.path}: {self.shown[0]}")
        if self.count:
            rest = f", the first {len(self.shown)}" if self.count > len(self.shown) else ""
            raise DataError("\n  ".join([f"{self.path}: {self.count} problems{rest}:", *self.shown]))


@contextmanager
def collector_paused() -> Iterator[None]:
    """A block in which Python's cycle collector rests.

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


def read_bytes(path: Path) -> bytes:
    """The content of a file that is not empty."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    if not data or data.isspace():
        raise DataError(f"{path}: expected JSON, got an empty file")
    return data


def parse_json(path: Path, data: bytes) -> Any:
    """The parsed content, or a `DataError` with line and column."""
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
    values = _values(records, key, where, problems, "an integer", _is_integer, {int})
    return None if values is None else np.array(values, dtype=np.int64)


def numbers(
    records: list[dict[str, Any]], key: str, where: str, problems: Problems, default: Floats | None = None
) -> Floats | None:
    """The column of finite numbers `key`, (n,), or None after noting what is wrong.

    With a default, records without the key take theirs from it.
    """
    if default is not None and any(key not in record for record in records):
        records = [
            {key: record.get(key, other)} for record, other in zip(records, default.tolist(), strict=True)
        ]
    values = _values(records, key, where, problems, "a finite number", _is_number, {int, float})
    if values is None:
        return None
    column = np.array(values, dtype=np.float64)
    if not np.isfinite(column).all():
        for index in np.flatnonzero(~np.isfinite(column)).tolist():
            problems.add(f"{where}[{index}].{key}", "a finite number", values[index])
        return None
    return column


def boxes(records: list[dict[str, Any]], where: str, problems: Problems) -> Floats | None:
    """The column `bbox` as xywh, (n, 4), or None after noting what is wrong."""
    expected = "4 finite numbers x, y, w, h (at most 1e9) with w ≥ 0 and h ≥ 0"
    try:
        values = list(map(itemgetter("bbox"), records))
        well_formed = set(map(type, values)) <= {list} and set(map(len, values)) <= {4}
    except KeyError:
        well_formed = False
    if well_formed:
        flat = list(chain.from_iterable(values))
        if set(map(type, flat)) <= {int, float}:
            column = np.array(flat, dtype=np.float64).reshape(-1, 4)
            wrong = ~(np.abs(column) <= FARTHEST).all(axis=1) | (column[:, 2:] < 0).any(axis=1)
            for index in np.flatnonzero(wrong).tolist():
                problems.add(f"{where}[{index}].bbox", expected, values[index])
            return None if wrong.any() else column
    for index, record in enumerate(records):
        box = record.get("bbox", _MISSING)
        if not (isinstance(box, list) and len(box) == 4 and all(map(_is_number, box)) and min(box[2:]) >= 0):
            problems.add(f"{where}[{index}].bbox", expected, box)
    return None


class _Missing:
    def __repr__(self) -> str:
        return "nothing (the key is missing)"


_MISSING = _Missing()


def _is_integer(value: object) -> bool:
    return type(value) is int and -(2**63) <= value < 2**63


def _in_range(values: list[Any], kinds: set[type]) -> bool:
    return float in kinds or not values or (min(values) >= -(2**63) and max(values) < 2**63)


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and abs(value) < float("inf")  # type: ignore[arg-type]


def _values(
    records: list[dict[str, Any]],
    key: str,
    where: str,
    problems: Problems,
    expected: str,
    valid: Callable[[object], bool],
    kinds: set[type],
) -> Sequence[Any] | None:
    """The values of one key, or None after noting every record whose value is not valid."""
    try:
        values = list(map(itemgetter(key), records))
    except KeyError:
        values = []
    if len(values) == len(records) and set(map(type, values)) <= kinds and _in_range(values, kinds):
        return values
    for index, record in enumerate(records):
        value = record.get(key, _MISSING)
        if not valid(value):
            problems.add(f"{where}[{index}].{key}", expected, value)
    return None
