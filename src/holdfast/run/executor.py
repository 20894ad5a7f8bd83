"""Shards of a job on one or many processes, in any order, with progress; finished ones are never redone."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from typing import TypeAlias

from holdfast.core.dataset import Entry
from holdfast.core.errors import HoldfastError, InputError
from holdfast.run.work import Job, start_process, work, work_in_process

SHARD = 25  # images per cell: small enough to lose little, large enough to write few files

Progress: TypeAlias = Callable[[int, int], None]  # images done, images found finished already


class WorkerLost(HoldfastError):
    """A worker process that was killed, mostly for lack of memory."""


@dataclass(frozen=True)
class Executed:
    """The keys of all cells in the order of the images, and how many images were found finished."""

    keys: tuple[str, ...]
    reused_images: int


def shards(entries: Sequence[Entry], size: int = SHARD) -> list[tuple[Entry, ...]]:
    """The entries in order, cut into rows of `size`."""
    return [tuple(entries[i : i + size]) for i in range(0, len(entries), size)]


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


def execute(job: Job, entries: Sequence[Entry], jobs: int, progress: Progress) -> Executed:
    """All cells of the job, worked on by `jobs` processes (0: one a core)."""
    if jobs < 0:
        raise InputError(f"--jobs: expected 0 (one a core) or more, got {jobs}")
    rows = shards(entries)
    jobs = min(jobs or cores(), len(rows))
    if jobs <= 1:
        return _alone(replace(job, threads=cores()), rows, progress)
    return _together(replace(job, threads=max(1, cores() // jobs)), rows, jobs, progress)


def _alone(job: Job, rows: list[tuple[Entry, ...]], progress: Progress) -> Executed:
    machine, keys, reused = None, [], 0
    for row in rows:
        key, machine, worked = work(job, machine, row)
        keys.append(key)
        reused += 0 if worked else len(row)
        progress(len(row), 0 if worked else len(row))
    return Executed(tuple(keys), reused)


def _together(job: Job, rows: list[tuple[Entry, ...]], jobs: int, progress: Progress) -> Executed:
    keys: list[str] = [""] * len(rows)
    reused = 0
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=start_process, initargs=(job,))
    try:
        pending = {pool.submit(work_in_process, row): i for i, row in enumerate(rows)}
        for future in as_completed(pending):
            i = pending.pop(future)
            keys[i], worked = future.result()
            reused += 0 if worked else len(rows[i])
            progress(len(rows[i]), 0 if worked else len(rows[i]))
    except BrokenProcessPool as problem:
        raise WorkerLost(
            "a worker process ended unexpectedly (out of memory?); what was finished is kept: run the same "
            "command again, perhaps with a smaller --jobs"
        ) from problem
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    return Executed(tuple(keys), reused)
