"""Shards of a job on one or many processes, in any order, with progress; finished ones are never redone."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from holdfast.core.dataset import Entry
from holdfast.core.errors import InputError
from holdfast.run.work import Job, work
from holdfast.run.workers import answers, workers

SHARD = 25  # images per cell: small enough to lose little, large enough to write few files

Progress: TypeAlias = Callable[[int, int], None]  # images done, images found finished already


def shards(entries: Sequence[Entry], size: int = SHARD) -> list[tuple[Entry, ...]]:
    """The entries in order, cut into rows of `size`."""
    return [tuple(entries[i : i + size]) for i in range(0, len(entries), size)]


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


def execute(job: Job, entries: Sequence[Entry], jobs: int, progress: Progress) -> tuple[str, ...]:
    """The keys of all cells in the order of the images, worked on by `jobs` processes (0: one a core)."""
    if jobs < 0:
        raise InputError(f"--jobs: expected 0 (one a core) or more, got {jobs}")
    rows = shards(entries)
    processes = min(jobs or cores(), len(rows))
    why_not = _not_sendable(job) if processes > 1 else ""
    if why_not and jobs:
        raise InputError(f"--jobs {jobs}: other processes cannot do this work: {why_not}; use 1 job")
    if processes <= 1 or why_not:
        return _alone(replace(job, threads=cores()), rows, progress)
    return _together(replace(job, threads=max(1, cores() // processes)), rows, processes, progress)


def _not_sendable(job: Job) -> str:
    """Why new processes cannot get this job; empty if they can."""
    script = getattr(sys.modules["__main__"], "__file__", None)
    if script is not None and not Path(script).exists():
        return f"they cannot read the program again from {Path(script).name}"
    try:
        sent = pickle.dumps(job)
    except (pickle.PicklingError, AttributeError, TypeError) as problem:
        return f"a stage is not a function at the top of a module ({problem})"
    if script is None and b"__main__" in sent:
        return "a stage was defined at the prompt, not in a module"
    return ""


def _alone(job: Job, rows: list[tuple[Entry, ...]], progress: Progress) -> tuple[str, ...]:
    machine, keys = None, []
    for row in rows:
        key, machine, worked = work(job, machine, row)
        keys.append(key)
        progress(len(row), 0 if worked else len(row))
    return tuple(keys)


def _together(job: Job, rows: list[tuple[Entry, ...]], jobs: int, progress: Progress) -> tuple[str, ...]:
    keys: list[str] = [""] * len(rows)
    with workers(job, jobs) as staff:
        for place, key, worked in answers(staff, rows):
            keys[place] = key
            progress(len(rows[place]), 0 if worked else len(rows[place]))
    return tuple(keys)
