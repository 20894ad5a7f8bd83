"""Resumable benchmark runs: every finished instance is on disk before the next is reported.

A row's key is a hash of the files, the limit, the command, the version and the source code. Rerunning the
same command after a kill runs only missing and changed instances.
"""

import contextlib
import fcntl
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from holdfast._version import __version__
from holdfast.core.errors import InputError, OutputError
from holdfast.core.fingerprint import of, of_file
from holdfast.core.model import Network
from holdfast.core.sources import code_of
from holdfast.engine.cells import ItemWork, Setup
from holdfast.engine.cells import run as compute_cells
from holdfast.engine.execution import HERE, cell_store, current
from holdfast.engine.executor import progress
from holdfast.engine.store import to_json, write_atomic
from holdfast.verify.vnncomp import instance
from holdfast.verify.vnncomp.instances import Instance, stem_of
from holdfast.verify.vnncomp.results import ResultRow, header, line_of, read_rows, table_text

FOLDERS = "folders.json"  # next to the counterexamples: the folders of their benchmarks


def witness_folder(out: Path) -> Path:
    """The folder of the counterexamples of a result file, next to it."""
    return out.with_name(out.name + ".witnesses")


def remembered(out: Path) -> dict[str, Path]:
    """The benchmark folders of our results at the time of the run, by category; empty for other results."""
    folders = instance.read_mapping(witness_folder(out) / FOLDERS)
    return {name: Path(str(place)) for name, place in folders.items()}


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Lock the results against other runs and remove the leftovers of a killed run."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
    except OSError as problem:
        raise OutputError(f"{folder}: cannot write: {problem.strerror}; choose another --out") from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = "another process is writing these results; wait, or choose another --out"
            raise OutputError(f"{folder}: {message}") from None
        for leftover in folder.glob(f"{instance.WORK}*"):
            shutil.rmtree(leftover, ignore_errors=True)
        yield
    finally:
        os.close(handle)


def resume(out: Path, instances: Sequence[Instance], keys: Sequence[str]) -> dict[str, ResultRow]:
    """The finished rows by key; drop outdated rows of the same instances from disk."""
    content = out.read_bytes() if out.exists() else b""
    first = header().encode()
    if first.startswith(content):
        write_atomic(out, first)
        return {}
    if not content.startswith(first):
        raise InputError(f"{out}: expected results of an earlier run, or no file; choose another --out")
    complete = content[: content.rfind(b"\n") + 1]  # drop an incomplete last line, as after a power cut
    if complete != content:
        write_atomic(out, complete)
    rows = read_rows(out)
    ours = {(i.category, i.network, i.spec) for i in instances}
    current = [row for row in rows if row.key in keys or (row.category, row.network, row.spec) not in ours]
    if len(current) < len(rows):
        write_atomic(out, table_text(current).encode())
    return {row.key: row for row in current if row.key in keys}


def append(out: Path, row: ResultRow) -> None:
    """Append the row in one write and force it to the disk."""
    try:
        with os.fdopen(os.open(out, os.O_WRONLY | os.O_APPEND), "wb", buffering=0) as stream:
            stream.write(line_of(row).encode())
            os.fsync(stream.fileno())
    except OSError as problem:
        what_now = "run the same command again to continue; completed work is saved"
        raise OutputError(f"{out}: could not be written: {problem.strerror}; {what_now}") from problem


@dataclass(frozen=True)
class BenchmarkPlan:
    """The instances to run, the result file, and the command (default: the verifier)."""

    instances: tuple[Instance, ...]
    out: Path
    jobs: int = 1
    command: tuple[str, ...] = field(default_factory=lambda: tuple(instance.verify_command()))


@dataclass(frozen=True)
class InstanceProgress:
    """One finished instance, the numbers of finished and cached ones, and the estimated seconds left."""

    row: ResultRow
    done: int
    total: int
    reused: int
    left: float


def run(plan: BenchmarkPlan, tell: Callable[[InstanceProgress], None] = lambda step: None) -> list[ResultRow]:
    """Run the unfinished instances of the plan; return the rows of all instances in its order."""
    if not plan.instances:
        raise InputError("expected at least one instance to run, got none")
    if plan.jobs < 1:
        raise InputError(f"--jobs: expected at least 1, got {plan.jobs}")
    keys = _keys(plan)
    witnesses = witness_folder(plan.out)
    with alone(witnesses):
        folders = remembered(plan.out) | {i.category: i.folder for i in plan.instances}
        names = {category: str(folder) for category, folder in folders.items()}
        write_atomic(witnesses / FOLDERS, to_json(names, indent=True), durable=False)
        finished = resume(plan.out, plan.instances, keys)
        rows = {place: finished[key] for place, key in enumerate(keys) if key in finished}
        todo, reused = [place for place in range(len(keys)) if place not in rows], len(rows)
        with contextlib.closing(_worked(plan, keys, todo)) as work:
            for place, row in work:
                append(plan.out, row)
                rows[place] = row
                done = [rows[p] for p in todo if p in rows]
                # Estimate: the others use the same share of their limits as the finished ones.
                allowed = sum(row.limit or 0.0 for row in done)
                share = min(1.0, sum(row.seconds for row in done) / allowed) if allowed else 0.0
                remaining = share * sum(plan.instances[p].limit for p in todo if p not in rows) / plan.jobs
                tell(InstanceProgress(row, len(rows), len(keys), reused, remaining))
        ordered = [rows[place] for place in range(len(keys))]
        others = [row for row in read_rows(plan.out) if row.key not in keys]
        content = table_text([*others, *ordered]).encode()  # rows of other plans come first
        if plan.out.read_bytes() != content:
            write_atomic(plan.out, content)
        return ordered


def shares(jobs: int) -> list[tuple[int, ...]]:
    """The cores of each parallel job; () means all, for one job or where cores cannot be listed."""
    if jobs == 1 or not hasattr(os, "sched_getaffinity"):
        return [()] * jobs
    cores = sorted(os.sched_getaffinity(0))
    if jobs > len(cores):
        raise InputError(f"--jobs: expected at most one per core ({len(cores)}), got {jobs}")
    return [tuple(cores[i::jobs]) for i in range(jobs)]


def _keys(plan: BenchmarkPlan) -> list[str]:
    """The key of each instance's result; duplicate lines of a csv get distinct keys."""
    digest = cache(of_file)
    keys: list[str] = []
    counts: Counter[str] = Counter()
    for one in plan.instances:
        names = [one.category, one.network, one.spec]
        files = [digest(one.network_path), digest(one.spec_path)]
        how = [one.limit, list(plan.command[1:]), plan.jobs, __version__, code_of("verify")]
        key = of([*names, *files, *how])[:16]
        counts[key] += 1
        keys.append(key if counts[key] == 1 else of([key, counts[key]])[:16])
    return keys


def _worked(
    plan: BenchmarkPlan, keys: Sequence[str], todo: Sequence[int]
) -> Generator[tuple[int, ResultRow], None, None]:
    """Run the instances; yield the index and the row of each as it finishes."""
    folder = witness_folder(plan.out)
    if current() != HERE:
        yield from _on_engine(plan, keys, todo)
        return
    free = shares(plan.jobs)
    waiting = list(todo)[::-1]
    running: dict[instance.InstanceProcess, int] = {}
    try:
        while waiting or running:
            while waiting and free:
                place = waiting.pop()
                running[instance.begin(plan.command, plan.instances[place], free.pop(), folder)] = place
            for one, attempt in instance.wait(list(running)):
                place = running.pop(one)
                free.append(one.cores)
                yield place, _row(plan.instances[place], attempt, keys[place], folder)
    finally:
        instance.abandon(list(running))


@dataclass(frozen=True)
class InstanceWork(ItemWork[tuple[Instance, str], int]):
    """Instances as cells, for --store, --part and --on. The files are sent to other machines by content."""

    command: tuple[str, ...]
    files: Mapping[Path, Network]  # of networks and specifications

    def setups(self) -> Sequence[Setup]:
        """The command."""
        return [Setup("verify", ["vnncomp", list(self.command[1:])])]

    def contents(self, item: tuple[Instance, str]) -> Sequence[Any]:
        """The key of the row."""
        return [item[1]]

    def cost(self, item: tuple[Instance, str]) -> float:
        """The time limit."""
        return item[0].limit

    def open(self, threads: int) -> int:
        """The number of threads of each verifier; 0: all cores."""
        return threads

    def compute_item(self, state: int, item: tuple[Instance, str]) -> Any:
        """Run the instance in a process of its own."""
        one, _ = item
        network, spec = self.files[one.network_path].path, self.files[one.spec_path].path
        here = replace(one, network_path=network, spec_path=spec)
        process = instance.begin(self.command, here, jobs=state)
        try:
            ((_, attempt),) = instance.wait([process])
        except BaseException:
            instance.abandon([process])
            raise
        return vars(attempt)


def _on_engine(
    plan: BenchmarkPlan, keys: Sequence[str], todo: Sequence[int]
) -> Iterator[tuple[int, ResultRow]]:
    """The place and the row of each instance to do, computed as cells."""
    folder, instances = witness_folder(plan.out), [plan.instances[place] for place in todo]
    paths = {path for one in instances for path in (one.network_path, one.spec_path)}
    work = InstanceWork(plan.command, {path: Network(path.name, path) for path in paths})
    items = [(one, keys[place]) for place, one in zip(todo, instances, strict=True)]
    with progress("instances", len(items)) as step:
        cells = compute_cells(work, items, cell_store(folder / "cells"), jobs=plan.jobs, progress=step)
    for place, one, plain in zip(todo, instances, cells.read(), strict=True):
        yield place, _row(one, instance.InstanceOutcome(**plain), keys[place], folder)


def _row(one: Instance, attempt: instance.InstanceOutcome, key: str, folder: Path) -> ResultRow:
    names = {"category": one.category, "network": one.network, "spec": one.spec}
    facts: dict[str, Any] = names | vars(attempt) | {"key": key}
    if attempt.witness:
        name = re.sub(r"[^\w.+-]", "_", f"{stem_of(one.network)}_{stem_of(one.spec)}")[:150]
        file = folder / f"{name}-{key[:8]}.counterexample"
        write_atomic(file, attempt.witness.encode())
        facts["witness"] = f"{folder.name}/{file.name}"
    return ResultRow(limit=one.limit, result=facts.pop("status"), **facts)
