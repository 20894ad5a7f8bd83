"""Tensors through networks and post-processing: each distinct run and each distinct record once."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from holdfast.core.dataset import Entry
from holdfast.core.errors import CardError, ImageError, InputError, ModelError, UnknownName
from holdfast.core.frame import Frame
from holdfast.core.pipeline import Run, checked
from holdfast.core.registry import lookup
from holdfast.core.types import Sample, Tensor
from holdfast.engine.job import Job
from holdfast.engine.recording import record_of
from holdfast.engine.records import Failed, Record
from holdfast.engine.share import Ready, grouped

HEAVY = 1 << 18  # bytes of outputs that are not left waiting
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
class Waiting:
    """Outputs of a network of which no record was made yet, and the ways on from there with their jobs."""

    image: int
    sample: Sample
    frames: Mapping[int, Frame]
    ways: Mapping[Hashable, list[int]]
    raw: Mapping[str, Tensor] | Exception


@dataclass(frozen=True)
class Desk:
    """A shard being worked on: jobs by number, what is open, and a page for each active job."""

    jobs: Sequence[Job]
    opened: Opened
    shard: Sequence[Entry]
    pages: Mapping[int, Page]
    known: dict[Hashable, Record | Exception | None] = field(default_factory=dict)  # of the image at hand
    waiting: list[Waiting] = field(default_factory=list)


def answer(desk: Desk, ready: Ready) -> None:
    """Nothing; what the networks say to this tensor waits on the desk, for `record` to be written down.

    Networks run one after another and records are made in one go: to change between the two is what costs.
    """
    users = [n for n in ready.frames if n not in desk.opened.problems]
    for n in users:
        desk.pages[n].inputs[ready.image] = ready.digest
    networks = grouped(users, lambda n: desk.jobs[n].stages["infer"])
    for group in networks.values():
        ways = grouped(group, partial(_way, desk, ready))
        raw: Mapping[str, Tensor] | Exception = {}
        if any(way not in desk.known for way in ways):
            run = _opened(desk, group)
            if run is None:
                continue
            raw = _attempt(_outputs, run, ready.tensor, len(networks) > 1)
        desk.known.update({way: None for way in ways if way not in desk.known})
        desk.waiting.append(Waiting(ready.image, ready.sample, ready.frames, ways, raw))
        if _heavy(raw):
            record(desk)


def record(desk: Desk) -> None:
    """Nothing; every job has its record of what was waiting on its page."""
    for item in desk.waiting:
        for way, members in item.ways.items():
            found = desk.known[way]
            if found is None:
                found = _record(desk, members[0], item)
                desk.known[way] = found
            for n in members:
                settle(desk, n, item.image, found)
    desk.waiting.clear()


def _heavy(raw: Mapping[str, Tensor] | Exception) -> bool:
    return not isinstance(raw, Exception) and sum(value.nbytes for value in raw.values()) > HEAVY


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


def _opened(desk: Desk, group: list[int]) -> Run | None:
    """The network of these jobs; None if it cannot be opened, which is then a problem of all of them."""
    job, runs = desk.jobs[group[0]], desk.opened.runs
    infer = job.stages["infer"]
    if infer not in runs:
        runs[infer] = _attempt(lookup("infer", job.pipeline.infer), job.model, job.threads)
    run = runs[infer]
    if isinstance(run, Exception):
        desk.opened.problems.update(dict.fromkeys(group, run))
        return None
    return run


def _outputs(run: Run, tensor: Tensor, shared: bool) -> Mapping[str, Tensor]:
    """What the network says to a tensor, which others may share, in arrays that stay as they are.

    A run that is not `pure` may write into its tensor or use its outputs' memory again: both are copied.
    """
    # What wraps a run by functools.wraps takes over its attributes, but may do anything.
    pure = getattr(run, "pure", False) and not hasattr(run, "__wrapped__")
    raw: Any = run(tensor.copy() if shared and not pure else tensor)
    if not isinstance(raw, Mapping):
        raise ModelError(f"expected the outputs of a network by their names, got {type(raw).__name__}")
    return raw if pure else {name: np.array(value) for name, value in raw.items()}


def _record(desk: Desk, n: int, item: Waiting) -> Record | Exception:
    if isinstance(item.raw, Exception):
        return item.raw
    job, frame = desk.jobs[n], item.frames[n]
    post = lookup("post", job.pipeline.post)
    raw = item.raw if len(item.ways) == 1 else {name: value.copy() for name, value in item.raw.items()}
    made = _attempt(lambda: post(checked(raw), frame, job.model.card))
    if isinstance(made, Exception):
        return made
    found: Record | Exception = _attempt(
        record_of, item.sample, frame.original, made, job.classes, job.ignore_index
    )
    return found


def _attempt(function: Any, *given: Any) -> Any:
    """What the function gives, or the exception it raises."""
    try:
        return function(*given)
    except MemoryError:
        raise
    except Exception as problem:  # noqa: BLE001 - a stage may be the user's; it is told, not swallowed
        return problem
