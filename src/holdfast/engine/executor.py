"""Shards of a job on one or many processes, in any order, with progress; finished ones are never redone."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from holdfast.core.errors import BudgetSpent, InputError
from holdfast.engine.workers import Work, Worker, WorkerLost, answers, workers

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
    task: Work[A], entries: Sequence[Any], jobs: int, progress: Progress, size: int = SHARD,
    until: float = math.inf,
) -> tuple[A, ...]:  # fmt: skip
    """The answer to each shard in the order of the images, worked on by `jobs` processes (0: one a core).

    Entries are images mostly; any small things that can be sent to another process will do. At `until` (of
    `time.monotonic`) the work stops: the answers are those of the leading shards that were finished by then,
    or BudgetSpent if there are none. Other processes are ended in the middle of a shard.
    """
    if jobs < 0:
        raise InputError(f"--jobs: expected 0 (one a core) or more, got {jobs}")
    rows = shards(entries, size)
    processes = min(jobs or cores(), len(rows))
    why_not = _not_sendable(task) if processes > 1 else ""
    if why_not and jobs:
        raise InputError(f"--jobs {jobs}: other processes cannot do this work: {why_not}; use 1 job")
    if processes <= 1 or why_not:
        found = _alone(task.on(cores()), rows, progress, until)
    else:
        found = _together(task.on(max(1, cores() // processes)), rows, processes, progress, until)
    if rows and not found:
        raise BudgetSpent("the time was over before the first image was finished")
    return found


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


def _alone(
    task: Work[A], rows: list[tuple[Any, ...]], progress: Progress, until: float
) -> tuple[A, ...]:  # fmt: skip
    state, found = None, []
    for row in rows:
        if time.monotonic() >= until:
            break
        try:
            answer, state, tally = task.work(state, row)
        except BudgetSpent:  # in the middle of the row
            break
        found.append(answer)
        progress(*tally)
    return tuple(found)


def _together(
    task: Work[A], rows: list[tuple[Any, ...]], jobs: int, progress: Progress, until: float
) -> tuple[A, ...]:  # fmt: skip
    found: dict[int, A] = {}
    with workers(task, jobs) as staff, _ended_at(until, staff) as ended:
        try:
            for place, answer, tally in answers(staff, rows):
                found[place] = answer
                progress(*tally)
        except BudgetSpent:
            pass
        except WorkerLost:
            if not ended.is_set():
                raise
    finished = itertools.takewhile(found.__contains__, range(len(rows)))
    return tuple(found[place] for place in finished)


@contextlib.contextmanager
def _ended_at(until: float, staff: Sequence[Worker]) -> Iterator[threading.Event]:
    """End the processes at that moment, unless the block is left before; the event says whether they were.

    Cells are written whole or not at all, so a process may be ended anywhere.
    """
    ended = threading.Event()
    if until == math.inf:
        yield ended
        return

    def end() -> None:
        ended.set()
        for worker in staff:
            worker.process.kill()

    timer = threading.Timer(max(0.0, until - time.monotonic()), end)
    timer.daemon = True
    timer.start()
    try:
        yield ended
    finally:
        timer.cancel()
