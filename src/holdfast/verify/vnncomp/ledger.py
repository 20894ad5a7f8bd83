"""The results on disk while a run is under way: resumed, appended to, tidied, written by one run only."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import orjson

from holdfast.core.errors import InputError, OutputError
from holdfast.engine.store import to_json, write_atomic
from holdfast.verify.vnncomp.attempt import WORK
from holdfast.verify.vnncomp.instances import Instance
from holdfast.verify.vnncomp.results import Row, header, line_of, read_rows

FOLDERS = "folders.json"  # beside the counterexamples: where their benchmarks lie


def witness_folder(out: Path) -> Path:
    """Where the counterexamples of results lie: beside them."""
    return out.with_name(out.name + ".witnesses")


def remembered(out: Path) -> dict[str, Path]:
    """Where the benchmarks of our results lay when they were run, by category; nothing of other results."""
    try:
        content = orjson.loads((witness_folder(out) / FOLDERS).read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return {}
    return {str(k): Path(str(v)) for k, v in content.items()} if isinstance(content, dict) else {}


def remember(out: Path, folders: Mapping[str, Path]) -> None:
    """Nothing; where the benchmarks of these results lie is on disk, beside their counterexamples."""
    known = {**remembered(out), **folders}
    content = to_json({category: str(folder) for category, folder in known.items()}, indent=True)
    write_atomic(witness_folder(out) / FOLDERS, content, durable=False)


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """A block in which no other run writes the same results; what a killed one left lying is removed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
    except OSError as problem:
        raise OutputError(f"{folder}: cannot write there: {problem.strerror}; choose another --out") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise OutputError(
            f"{folder}: another run is writing these results; wait or choose another --out"
        ) from None
    try:
        for left in folder.glob(f"{WORK}*"):
            shutil.rmtree(left, ignore_errors=True)
        yield
    finally:
        os.close(handle)


def resume(out: Path, instances: Sequence[Instance], keys: Sequence[str]) -> dict[str, Row]:
    """The finished rows by key; rows of the same instances that were run otherwise are dropped from disk."""
    whole = out.read_bytes() if out.exists() else b""
    first = header().encode()
    if first.startswith(whole):
        write_atomic(out, first)
        return {}
    if not whole.startswith(first):
        raise InputError(f"{out}: expected results of an earlier run, or no file; choose another --out")
    cut = whole[: whole.rfind(b"\n") + 1]  # a line that a power cut tore in two is no line
    if cut != whole:
        write_atomic(out, cut)
    rows = read_rows(out)
    ours = {(i.category, i.network, i.spec) for i in instances}
    kept = [r for r in rows if r.key in set(keys) or (r.category, r.network, r.spec) not in ours]
    if len(kept) < len(rows):
        _write(out, kept)
    return {row.key: row for row in kept if row.key in set(keys)}


def _write(out: Path, rows: Sequence[Row]) -> None:
    write_atomic(out, (header() + "".join(map(line_of, rows))).encode())


def append(out: Path, row: Row) -> None:
    """Nothing; the row is on disk, appended in one write."""
    try:
        handle = os.open(out, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(handle, line_of(row).encode())
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as problem:
        raise OutputError(
            f"{out}: could not be written: {problem.strerror}; then run the same command again: "
            "what was finished is kept"
        ) from problem


def tidy(out: Path, ordered: Sequence[Row]) -> None:
    """Nothing; the rows of this plan stand in its order, those of other plans before them."""
    ours = {row.key for row in ordered}
    rows = [row for row in read_rows(out) if row.key not in ours] + list(ordered)
    if out.read_bytes() != (header() + "".join(map(line_of, rows))).encode():
        _write(out, rows)
