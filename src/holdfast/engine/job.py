"""A job: one model and pipeline on any images, and the hash its cells are named by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from holdfast.core import fingerprint
from holdfast.core.dataset import Entry
from holdfast.core.errors import ImageError
from holdfast.core.model import Model
from holdfast.core.pipeline import Pipeline
from holdfast.core.registry import loaded_files, lookup, part
from holdfast.core.sources import code_of
from holdfast.engine.store import Store
from holdfast.engine.versions import versions
from holdfast.stages.deployed import Deployed


@dataclass(frozen=True)
class Job:
    """Everything a process needs to work on any shard. `job_of` makes it."""

    model: Model
    pipeline: Pipeline
    classes: int
    ignore_index: int | None
    store: Store
    setup: str  # the hash of all that can change a number, but for the images
    stages: Mapping[str, str] = field(default_factory=dict)  # a text a stage: equal for equal stages
    modules: tuple[str, ...] = ()  # where named parts from outside holdfast are defined
    files: tuple[Path, ...] = ()  # files of parts that other processes must load too
    threads: int = 0
    strict: bool = False  # the first image that fails ends the run
    without: frozenset[str] = frozenset()  # images left out, by name

    def key(self, content: str) -> str:
        """The name of a cell: the set-up and the hash of the images (name and key of each), hashed."""
        return fingerprint.of([self.setup, content])


def content_of(shard: Sequence[Entry]) -> list[tuple[str, str]]:
    """Name and key of each image; of one that cannot be read, why."""
    return [(entry.name, _entry_key(entry)) for entry in shard]


def _entry_key(entry: Entry) -> str:
    try:
        return entry.key()
    except ImageError as problem:
        return f"unreadable: {problem}"


def job_of(
    model: Model,
    pipeline: Pipeline,
    classes: int,
    ignore: int | None,
    store: Store,
    strict: bool = False,
) -> Job:
    """The job, its set-up hashed: model, card, pipeline with the user's parts, versions and code."""
    parts = {f.name: lookup(f.name, getattr(pipeline, f.name)) for f in fields(pipeline)}
    parts["head"] = lookup("head", model.card.head.name)
    stages = pipeline.describe()
    setup = fingerprint.of(
        {
            "code": code_of("evaluate"),
            "model": model.sha256,
            "card": model.card,
            "pipeline": stages,
            "parts": parts,
            "classes": classes,
            "ignore": ignore,
            "versions": versions(),
        }
    )
    files = loaded_files()
    homes = {str(getattr(one, "__module__", "")) for one in (*parts.values(), *_within(pipeline.infer))}
    foreign = (h for h in homes if not h.startswith(("holdfast.", "__")) and h not in files)
    return Job(
        model, pipeline, classes, ignore, store, setup, stages, tuple(sorted(foreign)),
        tuple(files.values()), strict=strict,
    )  # fmt: skip


def _within(infer: Any) -> list[Any]:
    """The functions a deployed model is made by, which other processes must know too."""
    if not isinstance(infer, Deployed):
        return []
    return [part("rewrite", name).function for name in infer.rewrites] + [
        part("runtime", infer.runtime).function
    ]
