"""The work of one process: shards of images through one or many pipelines, into the store."""

from __future__ import annotations

import contextlib
import dataclasses
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from holdfast.core import fingerprint
from holdfast.core.dataset import Entry
from holdfast.core.errors import InputError
from holdfast.core.registry import lookup
from holdfast.data.images import notes
from holdfast.engine.answer import Desk, Opened, Page, answer, record, settle
from holdfast.engine.job import Job, content_of
from holdfast.engine.records import Failed, to_plain
from holdfast.engine.share import Errors, Ready, Route, tensors
from holdfast.engine.store import printable, to_json

AHEAD = 1  # batches prepared before the network asks for them
BATCH = 8 << 20  # bytes of tensors in a batch, which ends with its image or before

T = TypeVar("T")


class Tally(NamedTuple):
    """How far a shard brings a run: images done (once a pipeline), and those of them found finished."""

    done: int
    found: int


@dataclass(frozen=True)
class Seen:
    """An image all of whose tensors were made: remarks on it, and the jobs that failed at it."""

    image: int
    remarks: tuple[str, ...]
    errors: Errors


@dataclass(frozen=True)
class Alone:
    """The work of one job; a problem of its pipeline is raised."""

    job: Job

    @property
    def modules(self) -> tuple[str, ...]:
        """Modules other processes must import first."""
        return self.job.modules

    @property
    def files(self) -> tuple[Path, ...]:
        """Files of parts other processes must load first."""
        return self.job.files

    def on(self, threads: int) -> Alone:
        """The same work with so many threads a process."""
        return Alone(dataclasses.replace(self.job, threads=threads))

    def work(self, opened: Opened | None, shard: Sequence[Entry]) -> tuple[str, Opened, Tally]:
        """The key of the shard's cell, what is open now, and how far that brings the run."""
        opened = opened or Opened()
        keys, tally = work((self.job,), opened, shard)
        if opened.problems:
            raise opened.problems[0]
        return keys[0], opened, tally


def work(jobs: Sequence[Job], opened: Opened, shard: Sequence[Entry]) -> tuple[list[str], Tally]:
    """The key of each job's cell ("" if it has no image here), and how far that brings the run.

    Jobs that cannot be done are in `opened.problems`; they have a key and no cell.
    """
    content = content_of(shard)
    members, keys = _named(jobs, shard, content)
    first = {key: n for n, key in reversed(list(enumerate(keys))) if key and n not in opened.problems}
    finished = {key for key, n in first.items() if _finished(jobs[n], key)}
    active = {n: members[n] for key, n in sorted(first.items(), key=lambda f: f[1]) if key not in finished}
    if active:
        _fill(Desk(jobs, opened, shard, {n: Page() for n in active}), active, keys, content)
    for n, key in enumerate(keys):  # jobs of one key are one job
        if first.get(key) in opened.problems:
            opened.problems.setdefault(n, opened.problems[first[key]])
    found = sum(len(m) for key, m in zip(keys, members, strict=True) if key in finished)
    return keys, Tally(sum(map(len, members)), found)


def missing(jobs: Sequence[Job], shard: Sequence[Entry]) -> int:
    """How many distinct cells the jobs would still have to make of the shard."""
    _, keys = _named(jobs, shard, content_of(shard))
    first = {key: job for key, job in zip(keys, jobs, strict=True) if key}
    return sum(not _finished(job, key) for key, job in first.items())


def _named(
    jobs: Sequence[Job], shard: Sequence[Entry], content: Sequence[tuple[str, str]]
) -> tuple[list[list[int]], list[str]]:
    """For each job the places of its images in the shard, and the key of its cell ("" without an image)."""
    held = {without: _members(shard, content, without) for without in {job.without for job in jobs}}
    found = [held[job.without] for job in jobs]
    keys = [job.key(hashed) if m else "" for job, (m, hashed) in zip(jobs, found, strict=True)]
    return [m for m, _ in found], keys


def _members(
    shard: Sequence[Entry], content: Sequence[tuple[str, str]], without: frozenset[str]
) -> tuple[list[int], str]:
    """The places of the images that are not left out, and the hash of what they hold."""
    members = [i for i, entry in enumerate(shard) if entry.name not in without]
    return members, fingerprint.of([content[i] for i in members])


def _finished(job: Job, key: str) -> bool:
    data = job.store.get(key)
    return data is not None and not (job.strict and b'"failed"' in data)


def _fill(
    desk: Desk, active: Mapping[int, list[int]], keys: Sequence[str], content: Sequence[tuple[str, str]]
) -> None:
    """Nothing; the cells of the active jobs are in the store, but for those that cannot be done."""
    remarks: dict[int, tuple[str, ...]] = {}
    with contextlib.closing(unpacked(ahead(batches(_prepared(desk, active)), AHEAD))) as items:
        for item in items:
            if isinstance(item, Ready):
                answer(desk, item)
                continue
            record(desk)
            remarks[item.image] = item.remarks
            desk.known.clear()
            for n, problem in item.errors.items():
                settle(desk, n, item.image, problem)
    for n, page in desk.pages.items():
        if n in desk.opened.problems:
            continue
        names = {i: printable(desk.shard[i].name) for i in active[n]}
        cell = {
            "records": [to_plain(page.records[i]) for i in names],
            "notes": [r for i in names if not isinstance(page.records[i], Failed) for r in remarks[i]],
            "content": {name: content[i][1] for i, name in names.items()},
            "inputs": {name: page.inputs[i] for i, name in names.items() if i in page.inputs},
        }
        desk.jobs[n].store.put(keys[n], to_json(cell))


def _prepared(desk: Desk, active: Mapping[int, list[int]]) -> Iterator[Ready | Seen]:
    """The distinct tensors of each image, then the image itself with the jobs that have none."""
    routes = routes_of({n: desk.jobs[n] for n in active})
    wanted = desk.jobs[0].model.card.input
    for image, entry in enumerate(desk.shard):
        mine = {n: r for n, r in routes.items() if image in active[n] and n not in desk.opened.problems}
        if not mine:
            continue
        try:
            sample = entry.load()
            remarks = notes(sample.data, sample.name)
        except InputError as problem:
            yield Seen(image, (), dict.fromkeys(mine, problem))
            continue
        errors: Errors = {}
        yield from tensors(mine, wanted, image, sample, errors)
        yield Seen(image, remarks, errors)


def routes_of(jobs: Mapping[int, Job]) -> dict[int, Route]:
    """The stages before the network of each job, by its number."""
    before = ("decode", "colour", "fit", "resize", "normalise")
    return {
        n: Route(job.stages, **{kind: lookup(kind, getattr(job.pipeline, kind)) for kind in before})
        for n, job in jobs.items()
    }


def batches(items: Iterable[Ready | Seen], size: int = BATCH) -> Iterator[deque[Ready | Seen]]:
    """The same items in rows; each ends with its image, or once its tensors take up `size` bytes."""
    row: deque[Ready | Seen] = deque()
    held = 0
    for item in items:
        row.append(item)
        held += item.tensor.nbytes if isinstance(item, Ready) else size
        if held >= size:
            yield row
            row, held = deque(), 0
    if row:
        yield row


def unpacked(rows: Generator[deque[T], None, None]) -> Generator[T, None, None]:
    """The items of all rows; none is kept once it was given."""
    with contextlib.closing(rows):
        for row in rows:
            while row:
                yield row.popleft()


def ahead(items: Iterator[T], count: int) -> Generator[T, None, None]:
    """The same items, up to `count` of them made by another thread before they are asked for."""
    end: Any = object()
    with ThreadPoolExecutor(1, "holdfast-prepare") as pool:
        try:
            waiting: deque[Future[T]] = deque(pool.submit(next, items, end) for _ in range(count))
            while (item := waiting.popleft().result()) is not end:
                waiting.append(pool.submit(next, items, end))
                yield item
        finally:
            pool.shutdown(cancel_futures=True)
