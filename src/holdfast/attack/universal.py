"""The universal patch of an attack: searched once, kept, written where it can be used again."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

from holdfast.attack.judge import open_judge, target_in
from holdfast.attack.plan import AttackPlan, Task, task_of
from holdfast.attack.work import known_boxes, victims_of
from holdfast.core.dataset import Entry
from holdfast.core.errors import DataError, ImageError
from holdfast.core.patch import OnBoxes, Patch, Spot
from holdfast.core.seeds import generator
from holdfast.core.types import Boxes
from holdfast.data.patchfile import files_of, patch_of
from holdfast.engine.cells import ItemWork, Setup, run
from holdfast.engine.executor import Progress, silent
from holdfast.engine.pipelines import content_of
from holdfast.engine.store import write_atomic
from holdfast.evaluate.run import alignment_of

UNIVERSAL = "universal.png"


@dataclass(frozen=True)
class UniversalWork(ItemWork[tuple[Entry, ...], None]):
    """The search for one patch; its item is the whole dataset."""

    plan: AttackPlan
    task: Task
    progress: Progress

    def setups(self) -> list[Setup]:
        """The attack and where the patch lies."""
        return [Setup("attack", [self.task.facts, "universal", self.plan.universal])]

    def contents(self, item: tuple[Entry, ...]) -> list[Any]:
        """Name and content of every image."""
        return [[content_of(entry) for entry in item]]

    def open(self, threads: int) -> None:
        """Open nothing: the search opens what it needs."""

    def compute_item(self, state: None, item: tuple[Entry, ...]) -> list[str]:
        """The patch as PNG and TOML."""
        png, toml = files_of(_search(self.plan, self.task, self.progress))
        return [base64.b64encode(png).decode(), toml.decode()]


def make_universal(plan: AttackPlan, progress: Progress = silent) -> Patch:
    """One patch for the whole dataset, searched on the images in which something true is found.

    It is stored as a cell: a resumed run continues with the same patch.
    """
    task = task_of(plan, alignment_of(plan.plan))
    work = UniversalWork(plan, task, progress)
    ((png, toml),) = run(work, [plan.plan.dataset.entries], task.store).read()
    return patch_of(base64.b64decode(png), toml.encode())


def _search(plan: AttackPlan, task: Task, progress: Progress) -> Patch:
    from holdfast.attack.gradient.universal import universal  # here, because it needs torch

    judge = open_judge(task.model, task.pipeline, plan.method.rule)
    targets = []
    for entry in plan.plan.dataset.entries:
        try:
            sample = entry.load()
            image = judge.machine.decode(sample.data)
        except ImageError:  # told when it is its turn to be attacked
            continue
        if isinstance(sample.truth, Boxes):
            boxes = known_boxes(sample.truth, task)
            found = target_in(judge, image, boxes, plan.method.rule, plan.method.goal)
            targets += [found] if found else []
    if not targets:
        raise DataError(
            f"{task.model.name} finds nothing true in {plan.plan.dataset.name}: nothing to attack"
        )
    rng, where = generator(plan.seed, "universal"), OnBoxes() if plan.universal == "boxes" else Spot()
    told = 0

    def step(done: int, _reused: int) -> None:  # it counts from the beginning, progress from step to step
        nonlocal told
        progress(done - told, 0)
        told = done

    return universal(victims_of(task), targets, plan.method, plan.limits, rng, step, where)


def write_patch(plan: AttackPlan, patch: Patch) -> None:
    """Nothing; the patch lies in the folder of results, as PNG and TOML."""
    model = plan.plan.model
    about: dict[str, str | int | float] = {"model": model.name, "sha256": model.sha256, "seed": plan.seed}
    png, toml = files_of(patch, about)
    write_atomic(plan.out / UNIVERSAL, png)
    write_atomic((plan.out / UNIVERSAL).with_suffix(".toml"), toml)
