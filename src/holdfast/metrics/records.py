"""Columns of a list of JSON objects, with every fault named.

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
        """Raise one DataError that names every fault, if there is any."""
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
