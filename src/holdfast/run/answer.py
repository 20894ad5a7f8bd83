"""Tensors through networks and post-processing: each distinct run and each distinct record once."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from holdfast.core.dataset import Entry
from holdfast.core.errors import CardError, ImageError, InputError, ModelError, UnknownName
from holdfast.core.pipeline import Run, checked
from holdfast.core.registry import lookup
from holdfast.core.types import Tensor
from holdfast.run.job import Job
from holdfast.run.recording import record_of
from holdfast.run.records import Failed, Record
from holdfast.run.share import Ready, grouped

FATAL = (CardError, ModelError, UnknownName)  # wrong for every image alike


@dataclass(frozen=True)
class Opened:
    """What a process keeps between shards: networks by name, and why some pipelines cannot run at all."""

    runs: dict[str, Run | Exception] = field(default_factory=dict)
    problems: dict[int, Exception] = field(default_factory=dict)


@dataclass(frozen=True)
class Page:
    """What is known so far of the images of a shard, for one pipeline."""

    records: dict[int, Record] = field(default_factory=dict)
    inputs: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Desk:
    """A shard being worked on: jobs by number, what is open, and a page for each active job."""

    jobs: Sequence[Job]
    opened: Opened
    shard: Sequence[Entry]
    pages: Mapping[int, Page]
    known: dict[Hashable, Record | Exception] = field(default_factory=dict)  # of the image at hand


def answer(desk: Desk, ready: Ready) -> None:
    """Nothing; every job that wants this tensor has its record on its page."""
    users = [n for n in ready.frames if n not in desk.opened.problems]
    for n in users:
        desk.pages[n].inputs[ready.image] = ready.digest
    networks = grouped(users, lambda n: desk.jobs[n].stages["infer"])
    for group in networks.values():
        # Copies, because a stage that is not ours may write into what others share.
        tensor = ready.tensor if len(networks) == 1 else ready.tensor.copy()
        ways = grouped(group, partial(_way, desk, ready))
        raw: Mapping[str, Tensor] | Exception | None = None
        for way, members in ways.items():
            if way not in desk.known:
                raw = raw if raw is not None else _run(desk, group, tensor)
                if raw is None:
                    break
                desk.known[way] = _record(desk, members[0], ready, _own(raw, len(ways)))
            for n in members:
                settle(desk, n, ready.image, desk.known[way])


def _way(desk: Desk, ready: Ready, n: int) -> Hashable:
    """All that the record of an image depends on, besides the image."""
    stages = desk.jobs[n].stages
    return ready.digest, stages["infer"], stages["post"], ready.frames[n]


def settle(desk: Desk, n: int, image: int, outcome: Record | Exception) -> None:
    """Nothing; the record, or the failure, of one image is on the page of job `n`."""
    if not isinstance(outcome, Exception):
        desk.pages[n].records[image] = outcome
    elif isinstance(outcome, InputError) and not isinstance(outcome, FATAL):
        name = desk.shard[image].name
        failed = Failed(name, str(outcome).removeprefix(f"{name}: "))
        if desk.jobs[n].strict:
            raise ImageError(str(failed))
        desk.pages[n].records[image] = failed
    else:
        desk.opened.problems.setdefault(n, outcome)


def _run(desk: Desk, group: list[int], tensor: Tensor) -> Mapping[str, Tensor] | Exception | None:
    """The network's outputs, or why it failed on this tensor; None if it cannot be opened."""
    job, runs = desk.jobs[group[0]], desk.opened.runs
    infer = job.stages["infer"]
    if infer not in runs:
        runs[infer] = _attempt(lookup("infer", job.pipeline.infer), job.model, job.threads)
    run = runs[infer]
    if isinstance(run, Exception):
        desk.opened.problems.update(dict.fromkeys(group, run))
        return None
    raw: Mapping[str, Tensor] | Exception = _attempt(lambda: checked(run(tensor)))
    return raw


def _record(desk: Desk, n: int, ready: Ready, raw: Mapping[str, Tensor] | Exception) -> Record | Exception:
    if isinstance(raw, Exception):
        return raw
    job, frame = desk.jobs[n], ready.frames[n]
    post = lookup("post", job.pipeline.post)
    made = _attempt(post, raw, frame, job.model.card)
    if isinstance(made, Exception):
        return made
    record: Record | Exception = _attempt(
        record_of, ready.sample, frame.original, made, job.classes, job.ignore_index
    )
    return record


def _own(raw: Mapping[str, Tensor] | Exception, users: int) -> Mapping[str, Tensor] | Exception:
    if users == 1 or isinstance(raw, Exception):
        return raw
    return {name: value.copy() for name, value in raw.items()}


def _attempt(function: Any, *given: Any) -> Any:
    """What the function gives, or the exception it raises."""
    try:
        return function(*given)
    except MemoryError:
        raise
    except Exception as problem:  # noqa: BLE001 - a stage may be the user's; it is told, not swallowed
        return problem
