"""Results as rows of a csv: our own, and the tables the organisers publish of other tools."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from holdfast.core.errors import InputError
from holdfast.core.property import Status
from holdfast.verify.vnncomp.protocol import status_of


@dataclass(frozen=True)
class Row:
    """The result of one instance; `witness` is a path from the csv's folder, `key` says what was run."""

    category: str
    network: str
    spec: str
    limit: float | None
    result: Status
    seconds: float
    cpu_seconds: float | None = None
    engine: str = ""
    margin: float | None = None
    witness: str = ""
    note: str = ""
    key: str = ""


COLUMNS = tuple(field.name for field in fields(Row))
# Names of the columns in tables other than ours.
_ALIASES = {
    "benchmark": "category",
    "onnx": "network",
    "vnnlib": "spec",
    "property": "spec",
    "timeout": "limit",
    "status": "result",
    "run_time": "seconds",
    "runtime": "seconds",
    "time": "seconds",
}


def header() -> str:
    """The first line of our results."""
    return _line(COLUMNS)


def line_of(row: Row) -> str:
    """A row as a line of csv, its newline included."""
    return _line([_text(getattr(row, name)) for name in COLUMNS])


def _line(cells: Sequence[str]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(cells)
    return out.getvalue()


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}" if abs(value) < 1e-2 else f"{value:.4f}".rstrip("0").rstrip(".")
    return str(value).replace("\n", " ").replace("\r", " ")


def read_rows(path: Path) -> list[Row]:
    """The rows of a results csv: ours, or one the organisers published; InputError says what else it is.

    Without a header the columns are category, onnx, vnnlib, prepare time, result, run time (2021 and later),
    or the same without prepare time. The rows by which the organisers measured a tool's overhead, test_nano
    and test_tiny under the name of another benchmark, are left out.
    """
    try:
        lines = list(csv.reader(io.StringIO(path.read_text("utf-8-sig"))))
    except FileNotFoundError:
        raise InputError(f"{path}: no such results; give the csv of `holdfast vnncomp run`") from None
    except (OSError, UnicodeDecodeError, csv.Error) as problem:
        raise InputError(f"{path}: expected a csv of results, got: {problem}") from None
    numbered = [(i, [c.strip() for c in cells]) for i, cells in enumerate(lines, 1) if any(cells)]
    if not numbered:
        raise InputError(f"{path}: expected rows of results, got none")
    names = _names(numbered[0][1])
    if names:
        return [_row(path, i, cells, names) for i, cells in numbered[1:]]
    rows = [_row(path, i, cells, names) for i, cells in numbered]
    return [row for row in rows if not _measures_overhead(row)]


def _names(first: Sequence[str]) -> list[str]:
    """The columns a header names, in our words; empty if the line is no header."""
    names = [_ALIASES.get(c.lower().replace(" ", "_"), c.lower().replace(" ", "_")) for c in first]
    return names if {"network", "spec", "result"} <= set(names) else []


def _row(path: Path, number: int, cells: Sequence[str], names: Sequence[str]) -> Row:
    where = f"{path}:{number}"
    if not names:
        if len(cells) < 5:
            raise InputError(
                f"{where}: expected category,network,spec,prepare time,result,run time, "
                f"got {len(cells)} fields"
            )
        shown = ("category", "network", "spec", "result", "seconds")
        names = shown if len(cells) == 5 else (*shown[:3], "prepared", *shown[3:])
    values = dict(zip(names, cells, strict=False))
    status = status_of(values.get("result", ""))
    if status is None:
        raise InputError(
            f"{where}: expected a result such as holds, violated, sat, unsat or timeout, "
            f"got {values.get('result')!r}"
        )
    seconds = _number(values.get("seconds", ""))
    if seconds is None and status in ("holds", "violated"):
        raise InputError(f"{where}: expected the seconds of the run, got {values.get('seconds')!r}")
    return Row(
        category=values.get("category", ""),
        network=values["network"],
        spec=values["spec"],
        limit=_number(values.get("limit", "")),
        result=status,
        seconds=seconds or 0.0,
        cpu_seconds=_number(values.get("cpu_seconds", "")),
        engine=values.get("engine", ""),
        margin=_number(values.get("margin", "")),
        witness=values.get("witness", ""),
        note=values.get("note", ""),
        key=values.get("key", ""),
    )


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _measures_overhead(row: Row) -> bool:
    name = Path(row.network).name
    return name.startswith(("test_nano", "test_tiny")) and row.category.split("_")[-1] != "test"
