"""The universal patch of an attack: searched once, kept, written where it can be used again."""

from __future__ import annotations

import base64

import orjson

from holdfast.attack.judge import open_judge, target_in
from holdfast.attack.plan import AttackPlan, Task, task_of
from holdfast.attack.work import known_boxes, victims_of
from holdfast.core import fingerprint
from holdfast.core.errors import DataError, ImageError
from holdfast.core.patch import OnBoxes, Patch, Spot
from holdfast.core.seeds import generator
from holdfast.core.types import Boxes
from holdfast.data.patchfile import files_of, patch_of
from holdfast.engine.executor import Progress
from holdfast.engine.job import content_of
from holdfast.engine.store import to_json, write_atomic
from holdfast.evaluate.run import alignment_of

UNIVERSAL = "universal.png"


def make_universal(plan: AttackPlan, progress: Progress = lambda done, reused: None) -> Patch:
    """One patch for the whole data set, searched on the images in which something true is found.

    It is kept as a cell: a run that goes on goes on with the same patch.
    """
    alignment = alignment_of(plan.plan)
    task = task_of(plan, alignment)
    entries = plan.plan.dataset.entries
    key = fingerprint.of(["universal", task.setup, plan.universal, content_of(entries)])
    held = task.store.get(key)
    if held is not None:
        png, toml = orjson.loads(held)
        return patch_of(base64.b64decode(png), toml.encode())
    made = _searched(plan, task, progress)
    png, toml = files_of(made)
    task.store.put(key, to_json([base64.b64encode(png).decode(), toml.decode()]))
    return made


def _searched(plan: AttackPlan, task: Task, progress: Progress) -> Patch:
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
