"""Shards of a job on one or many processes, in any order, with progress; finished ones are never redone."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from holdfast.core.errors import InputError
from holdfast.run.workers import Work, answers, workers

SHARD = 25  # images per cell: small enough to lose little, large enough to write few files

A = TypeVar("A")
Progress: TypeAlias = Callable[[int, int], None]  # images done, images found finished already


def shards(entries: Sequence[Any], size: int = SHARD) -> list[tuple[Any, ...]]:
    """The entries in order, cut into rows of `size`."""
    return [tuple(entries[i : i + size]) for i in range(0, len(entries), size)]


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


def execute(
    task: Work[A], entries: Sequence[Any], jobs: int, progress: Progress, size: int = SHARD
) -> tuple[A, ...]:
    """The answer to each shard in the order of the images, worked on by `jobs` processes (0: one a core).

    Entries are images mostly; any small things that can be sent to another process will do.
    """
    if jobs < 0:
        raise InputError(f"--jobs: expected 0 (one a core) or more, got {jobs}")
    rows = shards(entries, size)
    processes = min(jobs or cores(), len(rows))
    why_not = _not_sendable(task) if processes > 1 else ""
    if why_not and jobs:
        raise InputError(f"--jobs {jobs}: other processes cannot do this work: {why_not}; use 1 job")
    if processes <= 1 or why_not:
        return _alone(task.on(cores()), rows, progress)
    return _together(task.on(max(1, cores() // processes)), rows, processes, progress)


def _not_sendable(task: Work[A]) -> str:
    """Why new processes cannot get this work; empty if they can."""
    script = getattr(sys.modules["__main__"], "__file__", None)
    if script is not None and not Path(script).exists():
        return f"they cannot read the program again from {Path(script).name}"
    try:
        sent = pickle.dumps(task)
    except (pickle.PicklingError, AttributeError, TypeError) as problem:
        return f"a stage is not a function at the top of a module ({problem})"
    if script is None and b"__main__" in sent:
        return "a stage was defined at the prompt, not in a module"
    return ""


def _alone(task: Work[A], rows: list[tuple[Any, ...]], progress: Progress) -> tuple[A, ...]:
    state, found = None, []
    for row in rows:
        answer, state, tally = task.work(state, row)
        found.append(answer)
        progress(*tally)
    return tuple(found)


def _together(task: Work[A], rows: list[tuple[Any, ...]], jobs: int, progress: Progress) -> tuple[A, ...]:
    found: dict[int, A] = {}
    with workers(task, jobs) as staff:
        for place, answer, tally in answers(staff, rows):
            found[place] = answer
            progress(*tally)
    return tuple(found[place] for place in range(len(rows)))
