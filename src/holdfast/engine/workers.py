"""Worker processes: each has a pipe, gets one shard at a time, and can be ended at any moment.

Cells are written by atomic rename, so a worker may be killed in the middle of its work: nothing is lost but
the cell it was at. The pool of `concurrent.futures` is not used, because it can wait for ever after Ctrl-C.
"""

import contextlib
import gc
import importlib
import multiprocessing
import os
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Protocol

from holdfast.core.errors import HoldfastError, MachineError
from holdfast.core.processes import become_worker, defer_interrupts, starting_workers, without_main
from holdfast.core.registry import foreign_modules, load_parts, loaded_files, script_has_parts

PATIENCE = 5.0  # seconds an idle worker has to end by itself


class WorkerTask(Protocol):
    """The work of a process: it processes any shard of items, in any order."""

    def process(self, state: Any, shard: Sequence[Any], threads: int) -> tuple[Any, Any, tuple[int, int]]:
        """The answer, the state to keep for the next shard (None at first), and the progress it is."""
        ...


class WorkerLost(MachineError):
    """A worker process that was killed, mostly for lack of memory."""


@dataclass(frozen=True)
class Worker:
    """A process and our end of its pipe."""

    process: BaseProcess
    pipe: Connection


@dataclass(frozen=True)
class PackedTask:
    """A task on its way to a process: packed, because the user's parts must be loaded before it is opened."""

    modules: tuple[str, ...]
    files: tuple[Path, ...]
    threads: int
    task: bytes

    @classmethod
    def of(cls, task: bytes, threads: int) -> "PackedTask":
        """A pickled task with the user's parts that are loaded now."""
        return cls(foreign_modules(), tuple(loaded_files().values()), threads, task)

    def open(self) -> WorkerTask:
        """Load every part of the user's that the task may name, then the task."""
        for path in self.files:
            load_parts(path)
        for module in self.modules:
            importlib.import_module(module)
        task: WorkerTask = pickle.loads(self.task)  # noqa: S301 - our parent packed it
        return task


@contextlib.contextmanager
def workers(task: WorkerTask, threads: int, count: int) -> Iterator[list[Worker]]:
    """Start `count` processes that know the task; end them when the block is left, however it is left."""
    context = multiprocessing.get_context("spawn")
    packed = PackedTask.of(pickle.dumps(task), threads)
    running: list[Worker] = []
    try:
        needed = b"__main__" in packed.task or script_has_parts()
        with starting_workers(), contextlib.nullcontext() if needed else without_main():
            for _ in range(count):
                ours, theirs = context.Pipe()
                process = context.Process(target=_serve, args=(packed, theirs, os.getpid()), daemon=True)
                process.start()
                theirs.close()  # so that our end tells when the process is gone
                running.append(Worker(process, ours))
        yield running
        for worker in running:
            with contextlib.suppress(OSError):
                worker.pipe.send(None)
        for worker in running:
            worker.process.join(PATIENCE)
    finally:
        with defer_interrupts():  # a second Ctrl-C must not leave half of them behind
            for worker in running:
                worker.process.kill()
                worker.process.join()
                worker.pipe.close()


def answers(
    pool: Sequence[Worker], shards: Sequence[tuple[Any, ...]]
) -> Iterator[tuple[int, Any, tuple[int, int]]]:
    """The place, the answer and the progress of every shard, as they are finished."""
    todo = list(enumerate(shards))[::-1]
    busy: dict[Connection, int] = {}

    def give(pipe: Connection) -> None:
        if todo:
            busy[pipe], shard = todo.pop()
            pipe.send(shard)

    try:
        for worker in pool:
            give(worker.pipe)
        while busy:
            for pipe in wait(list(busy)):
                assert isinstance(pipe, Connection)  # noqa: S101 - of what we gave to wait
                answer = pipe.recv()
                place = busy.pop(pipe)
                if isinstance(answer, BaseException):
                    raise answer
                give(pipe)
                yield place, *answer
    except (EOFError, OSError) as problem:
        raise WorkerLost(
            "a worker process ended unexpectedly (out of memory, or a script without "
            "`if __name__ == '__main__'`?); completed work is saved; run the same command again, "
            "with fewer --jobs if memory is short"
        ) from problem


def _serve(packed: PackedTask, pipe: Connection, parent: int) -> None:
    """Answer shards, one by one, until None comes or the parent is gone; the parent reports errors."""
    become_worker(parent)
    if packed.threads:  # OpenCV reads it on import; its own pool of threads would crowd the other workers
        os.environ.setdefault("OPENCV_FOR_THREADS_NUM", str(packed.threads))
    opened = OpenTask(packed)
    with contextlib.suppress(EOFError, OSError):  # of the pipe: the parent is gone
        while (shard := pipe.recv()) is not None:
            pipe.send(opened.process(shard))


class OpenTask:
    """A task in the process that works on it, with its state; both are opened for the first shard."""

    def __init__(self, packed: PackedTask) -> None:
        self.packed = packed
        self.task: WorkerTask | None = None
        self.state: Any = None

    def process(self, shard: Any) -> Any:
        """The answer to a shard and its progress, or the error it ended with."""
        try:
            self.task, is_new = self.task or self.packed.open(), self.state is None
            answer, self.state, done = self.task.process(self.state, shard, self.packed.threads)
            if is_new:
                gc.freeze()  # what is loaded stays: the collector need not go over it again and again
            return answer, done
        except HoldfastError as problem:
            return problem
        except Exception as problem:  # noqa: BLE001 - it must not be taken for a lost worker
            return RuntimeError(f"{type(problem).__name__} in a worker process: {problem}")
