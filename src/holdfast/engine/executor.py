"""Executors: the shards of a task on this process or on many, with progress; finished shards in order."""

from __future__ import annotations

import contextlib
import itertools
import math
import multiprocessing
import os
import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from holdfast.core.errors import BudgetSpent, InputError
from holdfast.core.text import printable, terminal
from holdfast.engine.execution import current
from holdfast.engine.workers import Worker, WorkerLost, WorkerTask, answers, workers

Progress: TypeAlias = Callable[[int, int], None]  # units done, units of them that were finished before
Shards: TypeAlias = Sequence[tuple[Any, ...]]


def silent(done: int, cached: int) -> None:
    """No-op progress callback."""


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


class Executor(Protocol):
    """Something that processes the shards of a task. Every executor gives the same answers."""

    def run(self, task: WorkerTask, shards: Shards, progress: Progress, until: float) -> list[Any]:
        """The answers to the leading shards that were finished by `until` (of `time.monotonic`)."""
        ...


def choose_executor(jobs: int, shards: int) -> Executor:
    """The executor of the running command, for a number of processes (0: one per core)."""
    if jobs < 0:
        raise InputError(f"--jobs: expected 0 (one per core) or more, got {jobs}")
    if current().on:
        from holdfast.engine.ray_actors import RayActors

        return RayActors(jobs)
    processes = min(jobs or cores(), shards)
    if multiprocessing.current_process().daemon:  # a worker of someone else's pool, which may start none
        processes = 1
    return InProcess() if processes <= 1 else Processes(processes, required=jobs > 0)


@dataclass(frozen=True)
class InProcess:
    """Process all shards in this process."""

    def run(self, task: WorkerTask, shards: Shards, progress: Progress, until: float) -> list[Any]:
        """The answers to the leading shards that were finished by `until` (of `time.monotonic`).

        Raise BudgetSpent if there are shards and none was finished.
        """
        state, finished = None, []
        for shard in shards:
            if time.monotonic() >= until:
                break
            try:
                answer, state, done = task.process(state, shard, cores())
            except BudgetSpent:  # in the middle of the shard
                break
            finished.append(answer)
            progress(*done)
        return _some(finished, shards)


@dataclass(frozen=True)
class Processes:
    """Process the shards in worker processes.

    Work that cannot be sent to other processes is done in this one, unless the processes are `required`.
    """

    count: int
    required: bool = False

    def run(self, task: WorkerTask, shards: Shards, progress: Progress, until: float) -> list[Any]:
        """The answers to the leading shards that were finished in time."""
        reason = _not_sendable(task)
        if reason and self.required:
            raise InputError(
                f"--jobs {self.count}: worker processes cannot run this work: {reason}; use --jobs 1"
            )
        if reason:
            return InProcess().run(task, shards, progress, until)
        finished: dict[int, Any] = {}
        threads = max(1, cores() // self.count)
        with workers(task, threads, self.count) as pool, _killed_at(until, pool) as killed:
            try:
                for place, answer, done in answers(pool, shards):
                    finished[place] = answer
                    progress(*done)
            except BudgetSpent:
                pass
            except WorkerLost:
                if not killed.is_set():
                    raise
        return leading_answers(finished, shards)


def leading_answers(finished: Mapping[int, Any], shards: Shards) -> list[Any]:
    """The answers to the leading shards, up to the first one that has none."""
    leading = itertools.takewhile(finished.__contains__, range(len(shards)))
    return _some([finished[place] for place in leading], shards)


def _some(answers: list[Any], shards: Shards) -> list[Any]:
    if shards and not answers:
        raise BudgetSpent("the time budget was reached before the first image was finished")
    return answers


def _not_sendable(task: WorkerTask) -> str:
    """Why new processes cannot get this task; empty if they can."""
    script = getattr(sys.modules["__main__"], "__file__", None)
    if script is not None and not Path(script).exists():
        return f"they cannot import the script {Path(script).name} again"
    try:
        sent = pickle.dumps(task)
    except (pickle.PicklingError, AttributeError, TypeError) as problem:
        return f"a stage is not a module-level function ({problem})"
    if script is None and b"__main__" in sent:
        return "a stage was defined interactively, not in a module"
    return ""


@contextlib.contextmanager
def _killed_at(until: float, pool: Sequence[Worker]) -> Iterator[threading.Event]:
    """Kill the processes at that moment, unless the block is left before; the event says whether they were.

    Cells are written whole or not at all, so a process may be killed anywhere.
    """
    killed = threading.Event()
    if until == math.inf:
        yield killed
        return

    def kill() -> None:
        killed.set()
        for worker in pool:
            worker.process.kill()

    timer = threading.Timer(max(0.0, until - time.monotonic()), kill)
    timer.daemon = True
    timer.start()
    try:
        yield killed
    finally:
        timer.cancel()


EVERY_SECONDS = 10.0
SILENT_SECONDS = 30.0  # after which a line says that it still works


@contextmanager
def progress(what: str, total: int, unit: str = "images") -> Iterator[Callable[[int, int], None]]:
    """A function to call with (images done, images found cached)."""
    if sys.stderr.isatty():
        with _bar(what, total, unit) as step:
            yield step
    else:
        lines = _Lines(what, total, unit)
        with lines.beating():
            yield lines.step


@contextmanager
def _bar(what: str, total: int, unit: str) -> Iterator[Callable[[int, int], None]]:
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    text, left = TextColumn("{task.description}"), TextColumn(f"{unit}, time left")
    columns = (text, BarColumn(), MofNCompleteColumn(), left, TimeRemainingColumn())
    console = Console(file=terminal(sys.stderr))
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(escape(printable(what)), total=total)
        yield lambda done, reused: bar.update(task, advance=done)


class _Lines:
    """Plain lines: how far it is, at most every so often; and that it still works, after a long silence."""

    def __init__(self, what: str, total: int, unit: str) -> None:
        self.what, self.total, self.unit = what, total, unit
        self.began = self.last = time.monotonic()
        self.done = self.computed = 0
        self.speaking = threading.Lock()

    def step(self, done: int, reused: int) -> None:
        """Count units that are done, and those of them that were finished before."""
        with self.speaking:
            self.done += done
            self.computed += done - reused
            now = time.monotonic()
            if now - self.last < EVERY_SECONDS and self.done < self.total:
                return
            rate = self.computed / max(now - self.began, 1e-9)
            speed = f", {rate:.1f} {self.unit}/s" if self.computed else ""
            left = self.total - self.done
            ahead = f", {left / rate:.0f} s left" if self.computed and left > 0 else ""
            before = self.done - self.computed
            cached = f" ({before} {'was' if before == 1 else 'were'} cached)" if before else ""
            self._say(f"{speed}{ahead}{cached}")

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Write a line inside the context whenever nothing was printed for SILENT_SECONDS."""
        over = threading.Event()

        def beat() -> None:
            while not over.wait(max(0.01, self.last + SILENT_SECONDS - time.monotonic())):
                with self.speaking:
                    if time.monotonic() - self.last >= SILENT_SECONDS and not over.is_set():
                        self._say(f", at work for {time.monotonic() - self.began:.0f} s")

        threading.Thread(target=beat, daemon=True).start()
        try:
            yield
        finally:
            over.set()

    def _say(self, more: str) -> None:
        self.last = time.monotonic()
        sys.stderr.write(f"{self.what}: {self.done}/{self.total} {self.unit}{more}\n")
        sys.stderr.flush()
