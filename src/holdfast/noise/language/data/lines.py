"""The lines of a text file, packed or not, and the JSON objects in them, each with its line number."""

from __future__ import annotations

import bz2
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.core.errors import DataError
from holdfast.data.files import read_label_bytes

MAX_TEXT_BYTES = 512 << 20  # the largest of the sets, HellaSwag's training part, is 50 MB


@dataclass(frozen=True)
class Record:
    """One JSON object of a file, with the line it stands in."""

    path: Path
    line: int
    values: dict[str, Any]

    @property
    def where(self) -> str:
        """The place as file:line, for messages."""
        return f"{self.path}:{self.line}"

    @property
    def name(self) -> str:
        """The place as a short name."""
        return f"{self.path.name}:{self.line}"

    def text(self, field: str) -> str:
        """A field that must be a text with something in it."""
        value = self.field(field)
        if not isinstance(value, str) or not value.strip():
            raise DataError(f"{self.where}: {field!r}: expected a text, got {shown(value)}")
        return value

    def texts(self, field: str) -> list[str]:
        """A field that must be a list of texts."""
        value = self.field(field)
        if not isinstance(value, list) or not all(isinstance(v, str) and v.strip() for v in value):
            raise DataError(f"{self.where}: {field!r}: expected a list of texts, got {shown(value)}")
        return value

    def field(self, field: str) -> Any:
        """A field that must be there."""
        if field not in self.values:
            there = ", ".join(self.values) or "none"
            raise DataError(f"{self.where}: the field {field!r} is missing; fields there: {there}")
        return self.values[field]


def shown(value: object) -> str:
    """A value as a short piece of a message."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


def unpacked(path: Path) -> bytes:
    """The bytes of a text file, unpacked if it is bzip2; DataError beyond 512 MB."""
    limit = MAX_TEXT_BYTES
    data = read_label_bytes(path, limit)
    if not data.startswith(b"BZh"):
        return data
    try:
        with bz2.open(path) as stream:  # reads piece by piece: a small file cannot fill the memory
            data = stream.read(limit + 1)
    except (OSError, EOFError) as problem:
        raise DataError(f"{path}: not a whole bzip2 file: {problem}; download it again") from problem
    if len(data) > limit:
        raise DataError(f"{path}: unpacks to more than {limit >> 20} MB; question sets up to that are read")
    return data


def lines_of(path: Path, data: bytes) -> list[str]:
    """The lines of UTF-8 text, without their ends; the last one may end without a line break.

    Only a line feed ends a line: a text may hold other characters that Unicode calls line breaks.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = data.count(b"\n", 0, problem.start) + 1
        raise DataError(
            f"{path}:{line}: expected text in UTF-8, got byte {data[problem.start]:#04x}; save it as UTF-8"
        ) from None
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return lines[:-1] if lines[-1] == "" else lines


def records_of(path: Path, lines: Sequence[str]) -> Iterator[Record]:
    """The JSON objects, one a line; blank lines are passed over."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            values = json.loads(line)
        except (ValueError, RecursionError) as problem:
            said = getattr(problem, "msg", problem)
            raise DataError(f"{path}:{number}: not valid JSON: {said}; expected one object a line") from None
        if not isinstance(values, dict):
            raise DataError(f"{path}:{number}: expected a JSON object with fields, got {shown(values)}")
        yield Record(path, number, values)
