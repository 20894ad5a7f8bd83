"""Results: the words and files of the three protocols, and rows of a csv, our own or the organisers'.

`document` is the one of the competition's source document ("<sat|unsat|…> <seconds>"), `2021` the final one
of 2021 (holds, violated, …), `2022` that of all later years (sat, unsat, …, the counterexample below sat).
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from holdfast.core.errors import InputError
from holdfast.verify.vnncomp.instances import csv_rows, number_of

if TYPE_CHECKING:  # numpy takes longer to load than all the rest of what a script of the competition needs
    import numpy as np
    from numpy.typing import NDArray

    from holdfast.core.property import Status

Protocol: TypeAlias = Literal["document", "2021", "2022"]
STATUSES: tuple[Status, ...] = ("holds", "violated", "unknown", "timeout", "error")

_SAT = {"holds": "unsat", "violated": "sat"}
# Prefixes of the words in result files and official result tables; the official scorer treats
# `prepare_instance_error_*` and files without a result as unknown.
_BEGINNINGS: dict[Status, tuple[str, ...]] = {
    "holds": ("unsat", "holds"),
    "violated": ("sat", "violated"),
    "timeout": ("timeout", "run_instance_timeout", "prepare_instance_timeout"),
    "unknown": ("prepare_instance_error", "no_result_in_file", "error_nonmaximal", "unknown"),
    "error": ("error", "run_single_instance_error"),
}
_PAIR = re.compile(r"\(\s*([XY])_(\d+)\s+([^\s()]+)\s*\)")


@dataclass(frozen=True, eq=False)
class Counterexample:
    """The inputs (n,) that violate a property and the outputs (m,) that the tool declares."""

    inputs: NDArray[np.float64]
    outputs: NDArray[np.float64]


def status_of(word: str) -> Status | None:
    """The status for a word of a result file or an official result table; None if it is unknown."""
    text = word.strip().lower()
    if not text:
        return "unknown"
    return next((status for status, words in _BEGINNINGS.items() if text.startswith(words)), None)


def result_text(protocol: Protocol, status: Status, seconds: float, witness: str = "") -> str:
    """The content of a result file; a violation without the text of a counterexample is unknown in 2022."""
    if protocol == "2021":
        return f"{status}\n"
    word = _SAT.get(status, status)
    if protocol == "document":
        return f"{word} {max(seconds, 0.0):.3f}\n"
    if status != "violated":
        return f"{word}\n"
    try:
        _values(witness, "counterexample")
    except InputError:
        return "unknown\n"
    return f"sat\n{_body(witness)}\n"


def counterexample_text(counterexample: Counterexample) -> str:
    """The counterexample in the format of the result files since 2022, with every digit."""
    named = (("X", counterexample.inputs), ("Y", counterexample.outputs))
    pairs = [f"({x}_{i} {value!r})" for x, values in named for i, value in enumerate(values.ravel().tolist())]
    return "(" + "\n".join(pairs) + ")\n"


def read_counterexample(text: str, where: str = "counterexample") -> Counterexample:
    """The counterexample of such a text, with or without the word sat; raise InputError if invalid."""
    import numpy as np

    inputs, outputs = _values(text, where)
    return Counterexample(np.array(inputs, np.float64), np.array(outputs, np.float64))


def _body(text: str) -> str:
    body = text.strip()
    return body[3:].strip() if body[:3].lower() == "sat" else body


def _values(text: str, where: str) -> tuple[list[float], list[float]]:
    """All X and all Y of a counterexample, in the order of their indices."""
    body = _body(text)
    if not (body.startswith("(") and body.endswith(")")):
        raise InputError(f"{where}: expected ((X_0 value) … (Y_0 value) …), got {body[:40]!r}")
    rest = _PAIR.sub(" ", body[1:-1]).strip()
    if rest:
        raise InputError(f"{where}: expected (X_0 value) or (Y_0 value), got {rest[:40]!r}")
    values: dict[str, dict[int, float]] = {"X": {}, "Y": {}}
    for letter, index, number in _PAIR.findall(body[1:-1]):
        if int(index) in values[letter]:
            raise InputError(f"{where}: {letter}_{int(index)} is given twice")
        try:
            values[letter][int(index)] = float(number)
        except ValueError:
            raise InputError(f"{where}: expected a number, got {number[:40]!r}") from None
    for letter, by_index in values.items():
        gap = next((index for index in range(len(by_index)) if index not in by_index), None)
        if gap is not None:
            raise InputError(f"{where}: {letter}_{gap} is missing")
    inputs, outputs = ([by_index[index] for index in sorted(by_index)] for by_index in values.values())
    return inputs, outputs


@dataclass(frozen=True)
class ResultRow:
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


COLUMNS = tuple(field.name for field in fields(ResultRow))
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


def table_text(rows: Sequence[ResultRow]) -> str:
    """The content of our results."""
    return header() + "".join(map(line_of, rows))


def header() -> str:
    """The first line of our results."""
    return _line(COLUMNS)


def line_of(row: ResultRow) -> str:
    """A row as a line of csv, its newline included."""
    return _line([_text(value) for value in vars(row).values()])


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


def read_rows(path: Path) -> list[ResultRow]:
    """The rows of a results csv: ours, or one the organisers published; raise InputError for anything else.

    Without a header the columns are category, onnx, vnnlib, prepare time, result, run time (2021 and later),
    or the same without prepare time. The rows by which the organisers measured a tool's overhead, test_nano
    and test_tiny under the name of another benchmark, are skipped.
    """
    missing = f"{path}: no such results; give the csv of `holdfast vnncomp run`"
    numbered = csv_rows(path, "a csv of results", missing)
    if not numbered:
        raise InputError(f"{path}: expected rows of results, got none")
    first = [cell.lower().replace(" ", "_") for cell in numbered[0][1]]
    names = [_ALIASES.get(name, name) for name in first]
    if {"network", "spec", "result"} <= set(names):  # a header
        return [_row(path, i, cells, names) for i, cells in numbered[1:]]
    rows = [_row(path, i, cells, ()) for i, cells in numbered]
    return [
        row
        for row in rows
        if row.category.split("_")[-1] == "test"
        or Path(row.network).name[:9] not in ("test_nano", "test_tiny")
    ]


def _row(path: Path, number: int, cells: Sequence[str], names: Sequence[str]) -> ResultRow:
    where = f"{path}:{number}"
    if not names:
        if len(cells) < 5:
            form = "category,network,spec,prepare time,result,run time"
            raise InputError(f"{where}: expected {form}, got {len(cells)} fields")
        default_names = ("category", "network", "spec", "result", "seconds")
        names = default_names if len(cells) == 5 else (*default_names[:3], "prepared", *default_names[3:])
    values = dict(zip(names, cells, strict=False))
    status = status_of(values.get("result", ""))
    if status is None:
        words = "holds, violated, sat, unsat or timeout"
        raise InputError(f"{where}: expected a result such as {words}, got {values.get('result')!r}")
    row: dict[str, Any] = {name: values.get(name, "") for name in COLUMNS}
    row |= {name: number_of(row[name]) for name in ("limit", "seconds", "cpu_seconds", "margin")}
    if row["seconds"] is None and status in ("holds", "violated"):
        raise InputError(f"{where}: expected the seconds of the run, got {values.get('seconds')!r}")
    return ResultRow(**{**row, "result": status, "seconds": row["seconds"] or 0.0})
