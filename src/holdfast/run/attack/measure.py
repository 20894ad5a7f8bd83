"""A model on a data set attacked: cells, pictures, numbers, and the proof that the model is what it was."""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import io
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import orjson

from holdfast.attack.judge import open_judge
from holdfast.core import fingerprint
from holdfast.core.dataset import Entry
from holdfast.core.errors import DataError, ImageError, ModelError
from holdfast.core.model import Model
from holdfast.core.patch import OnBoxes, Patch, Spot
from holdfast.core.pipeline import pipeline_of
from holdfast.core.registry import lookup
from holdfast.core.types import Boxes, Image
from holdfast.data.patchfile import files_of
from holdfast.run.attack.attempt import Attempt, attempt_from_plain, row_of
from holdfast.run.attack.plan import AttackPlan, Task, task_of
from holdfast.run.attack.result import Effect, Outcome, effect_of, points_of
from holdfast.run.attack.work import AttackWork
from holdfast.run.classes import Alignment
from holdfast.run.evaluate import alignment_of
from holdfast.run.executor import Progress, execute
from holdfast.run.records import Failed
from holdfast.run.store import printable, to_json, write_atomic
from holdfast.run.versions import versions

MANIFEST, TABLE, CLAIM, UNIVERSAL = "attack.json", "images.csv", "claim.json", "universal.png"


def attack(
    plan: AttackPlan, progress: Progress = lambda done, reused: None, patch: Patch | None = None
) -> Outcome:
    """The outcome, its files in the plan's folder; a killed run goes on where it was.

    `patch` is the universal one, if the plan wants one. The model's file and what it says of the first image
    are the same before and after, or ModelError says so.
    """
    began = time.perf_counter()
    alignment = alignment_of(plan.plan)
    others = [alignment_of(dataclasses.replace(plan.plan, model=m)) for m in plan.unseen]  # or told at once
    task = task_of(plan, alignment, patch)
    entries = plan.plan.dataset.entries
    claim(plan.out, task.setup, entries)
    before = state_of(plan, entries)
    if patch is not None:
        _write_patch(plan, patch)
    work = AttackWork(task, file_names(entries))
    rows = execute(work, entries, plan.plan.jobs, progress, size=1)
    attempts, failed = _read(task, [key for row in rows for key in row])
    after = state_of(plan, entries)
    if after != before:
        raise ModelError(f"{plan.plan.model.path}: expected the model to stay as it was, got another one")
    if not attempts:
        raise DataError(f"none of the {len(failed)} images could be attacked; first {failed[0]}")
    settings = plan.plan.settings
    points = points_of(attempts, alignment, settings, plan.limits.pixels)
    about = _about(plan, alignment, before, time.perf_counter() - began)
    name = "" if attempts[0].features is None else _distance_name(plan)
    effects = _effects(plan, attempts, alignment, others)
    found = Outcome(attempts, failed, effects, points, name, alignment, about)
    _save(plan, found)
    return found


def claim(folder: Path, setup: str, entries: tuple[Entry, ...]) -> None:
    """Nothing; the folder is this attack's. DataError if it holds another one, or images beyond these."""
    path, names = folder / CLAIM, [e.name for e in entries]
    try:
        held = orjson.loads(path.read_bytes())
        same = held["setup"] == setup and set(held["images"]) <= set(map(printable, names))
    except FileNotFoundError:
        same = True
    except (OSError, ValueError, KeyError, TypeError):
        same = False
    if not same:
        raise DataError(
            f"{folder}: holds another attack (other model, data, options or version of holdfast); "
            "give another --out, or delete it"
        )
    write_atomic(path, to_json({"setup": setup, "images": names}))


def _write_patch(plan: AttackPlan, patch: Patch) -> None:
    model = plan.plan.model
    about: dict[str, str | int | float] = {"model": model.name, "sha256": model.sha256, "seed": plan.seed}
    png, toml = files_of(patch, about)
    write_atomic(plan.out / UNIVERSAL, png)
    write_atomic((plan.out / UNIVERSAL).with_suffix(".toml"), toml)


def state_of(plan: AttackPlan, entries: tuple[Entry, ...]) -> dict[str, str]:
    """The hash of the model's file and of what the model says of the first image that can be read."""
    model = plan.plan.model
    content = hashlib.sha256(model.read()).hexdigest()
    judge = open_judge(model, plan.plan.pipeline, plan.method.rule)
    for entry in entries[:20]:
        try:
            tensor = judge.prepared(judge.machine.decode(entry.load().data)).tensor
        except DataError:
            continue
        outputs = judge.machine.run(tensor)
        values = [
            (name, hashlib.sha256(np.ascontiguousarray(v).tobytes()).hexdigest())
            for name, v in outputs.items()
        ]
        return {"sha256": content, "image": entry.name, "outputs": fingerprint.of(values)}
    return {"sha256": content}


def file_names(entries: tuple[Entry, ...]) -> dict[str, str]:
    """Image -> its name in the folder of results: without its ending, unless two images then meet."""
    plain = {e.name: str(PurePosixPath(_inside(e.name)).with_suffix("")) for e in entries}
    times = Counter(name.casefold() for name in plain.values())
    return {n: short if times[short.casefold()] == 1 else _inside(n) for n, short in plain.items()}


def _inside(name: str) -> str:
    """The name as a path that cannot leave the folder it is put into."""
    parts = [p for p in PurePosixPath(name.replace("\\", "/")).parts if p not in ("/", "..", ".")]
    return "/".join(parts) or "image"


def _read(task: Task, keys: list[str]) -> tuple[tuple[Attempt, ...], tuple[Failed, ...]]:
    found = []
    for key in keys:
        data = task.store.get(key)
        if data is None:
            raise DataError(f"{task.store.path(key)}: the cell is missing or damaged; attack again")
        found.append(attempt_from_plain(orjson.loads(data)))
    attempts = tuple(a for a in found if isinstance(a, Attempt))
    return attempts, tuple(f for f in found if isinstance(f, Failed))


def _effects(
    plan: AttackPlan, attempts: tuple[Attempt, ...], alignment: Alignment, others: list[Alignment]
) -> tuple[Effect, ...]:
    settings = plan.plan.settings
    found = [effect_of(attempts, plan.plan.model.name, [a.model for a in attempts], alignment, settings)]
    for other, own in zip(plan.unseen, others, strict=True):
        pairs = [a.unseen[other.name] for a in attempts]
        found.append(effect_of(attempts, other.name, pairs, own, settings))
    return tuple(found)


def _distance_name(plan: AttackPlan) -> str:
    from holdfast.stages.features import open_features

    return open_features(plan.features).name


def _about(plan: AttackPlan, alignment: Alignment, state: dict[str, str], seconds: float) -> dict[str, Any]:
    evaluated = plan.plan
    return {
        "command": evaluated.command,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds, 3),
        "model": {**_named(evaluated.model), "unchanged": state},
        "data": {"name": evaluated.dataset.name, "images": len(evaluated.dataset), **evaluated.source},
        "classes": list(alignment.names),
        "note": alignment.note,
        "pipeline": (evaluated.pipeline or pipeline_of(evaluated.model.card)).describe(),
        "method": dataclasses.asdict(plan.method),
        "limits": dataclasses.asdict(plan.limits),
        "seed": plan.seed,
        "surrogates": [_named(m) for m in plan.surrogates],
        "unseen": [_named(m) for m in plan.unseen],
        "deployments": list(plan.deployments),
        "universal": plan.universal,
        "rule": f"{evaluated.settings.rule}; IoU {evaluated.settings.iou}",
        "versions": versions(),
    }


def _named(model: Model) -> dict[str, str]:
    return {"name": model.name, "path": str(model.path), "sha256": model.sha256}


def _save(plan: AttackPlan, found: Outcome) -> None:
    rows = [row_of(a) for a in found.attempts]
    write_atomic(plan.out / MANIFEST, to_json(as_plain(found), indent=True))
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomic(plan.out / TABLE, text.getvalue().encode("utf-8", "replace"))


def as_plain(found: Outcome) -> dict[str, Any]:
    """The outcome as JSON values: effects, means, curves and a row an image."""
    return {
        "about": found.about,
        "effects": [{**dataclasses.asdict(e), "S_e": e.effect} for e in found.effects],
        "success": found.success,
        "mean_pixels": found.mean(lambda a: a.pixels),
        "mean_amplitude": found.mean(lambda a: a.amplitude),
        "mean_ssim": found.mean(lambda a: a.ssim),
        "distance": {"name": found.distance, "value": found.points[-1].distance},
        "curve": [dataclasses.asdict(p) for p in found.points],
        "images": [{**row_of(a), **_said(a)} for a in found.attempts],
        "failed": [str(f) for f in found.failed],
    }


def _said(attempt: Attempt) -> dict[str, Any]:
    """What the model says before and after, and what those say that were never attacked."""
    pairs = {"": attempt.model, **attempt.unseen}
    return {
        f"{name}{' ' if name else ''}{when}": [
            {"box": box, "score": score, "class": number}
            for box, score, number in zip(
                d.boxes.tolist(), d.scores.tolist(), d.classes.tolist(), strict=True
            )
        ]
        for name, pair in pairs.items()
        for when, d in (("before", pair.before), ("after", pair.after))
    }


def clean_pictures(plan: AttackPlan) -> Callable[[str], Image | None]:
    """A function that gives an image's decoded pixels by its name; None if it cannot be read any more."""
    entries = {e.name: e for e in plan.plan.dataset.entries}
    decode = lookup("decode", (plan.plan.pipeline or pipeline_of(plan.plan.model.card)).decode)

    def picture(name: str) -> Image | None:
        try:
            image: Image = decode(entries[name].load().data)
        except (KeyError, DataError):
            return None
        return image

    return picture


def make_universal(plan: AttackPlan, progress: Progress = lambda done, reused: None) -> Patch:
    """One patch for the whole data set, searched on the images in which something true is found."""
    from holdfast.attack.judge import target_in
    from holdfast.attack.universal import universal
    from holdfast.core.seeds import generator
    from holdfast.run.attack.work import known_boxes, victims_of

    alignment = alignment_of(plan.plan)
    task = task_of(plan, alignment)
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
