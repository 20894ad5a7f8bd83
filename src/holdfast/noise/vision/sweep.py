"""Many pipelines of one model on one data set, run together: all they have in common is done once.

Each variant's cells are those a plain evaluation of its pipeline would write, so the two share them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from traceback import walk_tb
from typing import NamedTuple

from holdfast.core.dataset import Dataset, Entry
from holdfast.core.errors import BudgetSpent, DataError, HoldfastError, InputError
from holdfast.core.model import Model
from holdfast.engine.answer import Opened
from holdfast.engine.executor import SHARD, Progress, execute, shards
from holdfast.engine.job import Job
from holdfast.engine.store import Store
from holdfast.engine.work import Tally, missing, work
from holdfast.evaluate.result import CELLS
from holdfast.evaluate.run import Plan, job_for
from holdfast.noise.vision.variants import Swept, Variant


@dataclass(frozen=True)
class SweepPlan:
    """One model, one data set and the pipelines to run on it."""

    model: Model
    dataset: Dataset
    variants: tuple[Variant, ...]
    runs: Path
    jobs: int = 1  # processes; 0: one a core
    strict: bool = False
    shard: int = SHARD  # images per cell
    until: float = math.inf  # of time.monotonic
    partial: bool = False  # whether the images finished by then are enough


class Answer(NamedTuple):
    """What came of one shard: a key for each job ("" if it has no image here), and what cannot be done."""

    keys: tuple[str, ...]
    problems: dict[int, str]


@dataclass(frozen=True)
class Together:
    """The work of many jobs of one model on the same shards; the problem of one does not stop the others."""

    jobs: tuple[Job, ...]

    @property
    def modules(self) -> tuple[str, ...]:
        """Modules other processes must import first."""
        return tuple(sorted({name for job in self.jobs for name in job.modules}))

    @property
    def files(self) -> tuple[Path, ...]:
        """Files of parts other processes must load first, in the order they were loaded here."""
        return tuple(dict.fromkeys(path for job in self.jobs for path in job.files))

    def on(self, threads: int) -> Together:
        """The same work with so many threads a process."""
        return Together(tuple(dataclasses.replace(job, threads=threads) for job in self.jobs))

    def work(self, opened: Opened | None, shard: Sequence[Entry]) -> tuple[Answer, Opened, Tally]:
        """Keys and problems, what is open now, and how far that brings the sweep."""
        opened = opened or Opened()
        keys, tally = work(self.jobs, opened, shard)
        problems = {n: _told(problem) for n, problem in sorted(opened.problems.items())}
        return Answer(tuple(keys), problems), opened, tally


def sweep(plan: SweepPlan, progress: Progress = lambda done, found: None) -> dict[str, Swept]:
    """Variant name -> its finished cells, or why it cannot be run; progress counts images × variants.

    Finished cells are never redone, whoever wrote them. With `strict` the first image that fails ends it.
    BudgetSpent if not all images (with `partial`: none) are finished in time.
    """
    _check(plan)
    store = Store(plan.runs / CELLS)
    jobs, problems = _jobs(plan, store)
    for variant in plan.variants:
        if variant.name in problems:
            progress(images(plan.dataset, variant), 0)
    entries = plan.dataset.entries if jobs else ()
    work = Together(tuple(jobs.values()))
    answers = execute(work, entries, plan.jobs, progress, plan.shard, plan.until)
    if len(answers) < len(shards(entries, plan.shard)) and not plan.partial:
        raise BudgetSpent("the time was over before all images were finished")
    for number, name in enumerate(jobs):
        told = [a.problems[number] for a in answers if number in a.problems]
        problems.update({name: told[0]} if told else {})
    cells = {name: tuple(a.keys[n] for a in answers if a.keys[n]) for n, name in enumerate(jobs)}
    return {
        v.name: Swept(v, store, () if v.name in problems else cells[v.name], problems.get(v.name, ""))
        for v in plan.variants
    }


def unfinished(plan: SweepPlan) -> int:
    """How many cells are still to be made; every image is read and hashed for that, if any cell is there."""
    jobs = tuple(_jobs(plan, Store(plan.runs / CELLS))[0].values())
    pieces = shards(plan.dataset.entries, plan.shard)
    if not (plan.runs / CELLS).is_dir():
        return len(jobs) * len(pieces)
    return sum(missing(jobs, piece) for piece in pieces)


def _jobs(plan: SweepPlan, store: Store) -> tuple[dict[str, Job], dict[str, str]]:
    """The job of each variant, and why some have none, by the variants' names."""
    base = Plan(plan.model, plan.dataset, runs=plan.runs, strict=plan.strict)
    jobs: dict[str, Job] = {}
    problems: dict[str, str] = {}
    for variant in plan.variants:
        try:
            job = job_for(base, variant.pipeline, store)
        except HoldfastError as problem:  # a part that is not there
            problems[variant.name] = str(problem)
        else:
            jobs[variant.name] = dataclasses.replace(job, without=variant.without)
    return jobs, problems


def images(dataset: Dataset, variant: Variant) -> int:
    """How many images of the data set a variant is run on."""
    return sum(entry.name not in variant.without for entry in dataset.entries)


def steps(plan: SweepPlan) -> int:
    """How many images × variants the progress of a sweep counts up to."""
    return sum(images(plan.dataset, variant) for variant in plan.variants)


def _check(plan: SweepPlan) -> None:
    names = [v.name for v in plan.variants]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise InputError(f"expected variants of different names, got {twice[0]!r} twice")
    data, task = plan.dataset, plan.model.card.task
    if not data.entries:
        raise DataError(f"{data.name}: the data set is empty; expected at least one image with truth")
    if data.task != task and {data.task, task} != {"detect", "single"}:
        raise DataError(f"{data.name} is a data set to {data.task}, {plan.model.name} is a model to {task}")


def _told(problem: Exception) -> str:
    """A problem in one line; of an error nobody foresaw, its kind and where it was raised."""
    if isinstance(problem, HoldfastError):
        return str(problem)
    at = ""
    for frame, line in walk_tb(problem.__traceback__):
        at = f" ({Path(frame.f_code.co_filename).name}:{line})"
    return f"{type(problem).__name__}: {problem}{at}"
