"""Shards of a job on one or many processes, in any order, with progress; finished ones are never redone."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from holdfast.core.dataset import Entry
from holdfast.core.errors import HoldfastError, InputError
from holdfast.run.work import Job, start_process, work, work_in_process

SHARD = 25  # images per cell: small enough to lose little, large enough to write few files

Progress: TypeAlias = Callable[[int, int], None]  # images done, images found finished already


class WorkerLost(HoldfastError):
    """A worker process that was killed, mostly for lack of memory."""


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
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=start_process, initargs=(job,))
    try:
        with _deaf_to_interrupts():
            pending = {pool.submit(work_in_process, row): i for i, row in enumerate(rows)}
        for future in as_completed(pending):
            i = pending.pop(future)
            keys[i], worked = future.result()
            progress(len(rows[i]), 0 if worked else len(rows[i]))
    except BrokenProcessPool as problem:
        raise WorkerLost(
            "a worker process ended unexpectedly (no memory? a script without `if __name__ == '__main__'`?); "
            "what was finished is kept: run the same command again, perhaps with a smaller --jobs"
        ) from problem
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    return tuple(keys)


@contextlib.contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Ctrl-C ignored meanwhile, so that processes begun here inherit that: this one alone answers it."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set signals, and only it gets them
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
