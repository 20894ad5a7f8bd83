"""Attack a model on a dataset: cells, attacked images, results, and a check that the model is unchanged."""

import dataclasses
import itertools
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import orjson

from holdfast.attack.judge import open_judge
from holdfast.attack.plan import AttackPlan, contiguous_plan, task_of
from holdfast.attack.prints import describe_prints
from holdfast.attack.result import AttackResult, Attempt, attempt_from_plain, effect_of, points_of, row_of
from holdfast.attack.work import AttackWork, write_patch
from holdfast.core import fingerprint
from holdfast.core.dataset import Entry
from holdfast.core.errors import DataError, ModelError
from holdfast.core.model import Model
from holdfast.core.patch import Patch
from holdfast.core.pipeline import pipeline_of
from holdfast.core.registry import lookup
from holdfast.core.result import in_folder
from holdfast.core.sources import versions
from holdfast.core.text import printable
from holdfast.core.types import Image
from holdfast.engine.cells import run
from holdfast.engine.executor import Progress, silent
from holdfast.engine.manifest import now
from holdfast.engine.records import FailedImage
from holdfast.engine.store import to_json, write_atomic
from holdfast.evaluate.classes import Alignment
from holdfast.evaluate.run import EvaluationPlan, alignment_of, settings_plain
from holdfast.report.tables import table_of, to_csv

MANIFEST, TABLE = "attack.json", "images.csv"
CLAIM, UNIVERSAL = "claim.json", "universal.png"
LOOKED_AT = 8  # images whose outputs are compared before and after


def attack(plan: AttackPlan, progress: Progress = silent, patch: Patch | None = None) -> AttackResult:
    """Run the attack and write its files to the plan's folder; an interrupted run resumes.

    `patch` is the universal patch. Raise ModelError if the model file or its outputs changed.
    """
    from holdfast.stages.features import open_features

    began = time.perf_counter()
    alignment = alignment_of(plan.plan)
    # Before the attack, so that a mismatch is reported at once.
    others = [(m.name, alignment_of(dataclasses.replace(plan.plan, model=m))) for m in plan.unseen]
    task = task_of(plan, alignment, patch)
    entries = plan.plan.dataset.entries
    claim(plan.out, task.setup.name, entries, plan.shared)
    before = state_of(plan, entries)
    if patch is not None:
        write_patch(plan.out / UNIVERSAL, patch, task.origin)
    work, jobs = AttackWork(task, file_names(entries)), plan.plan.jobs
    cells = run(work, entries, task.store, jobs=jobs, progress=progress, until=plan.plan.until)
    results = [attempt_from_plain(plain) for plain in cells.read()]
    attempts = tuple(a for a in results if isinstance(a, Attempt))
    failed = tuple(f for f in results if isinstance(f, FailedImage))
    if state_of(plan, entries) != before:
        raise ModelError(f"{plan.plan.model.path}: the model changed during the attack")
    if not attempts:
        raise DataError(f"none of the {len(failed)} images could be attacked; first: {failed[0]}")
    settings, model = plan.plan.settings, plan.plan.model.name
    result = AttackResult(
        attempts=attempts,
        failed=failed,
        effects=(
            effect_of(attempts, model, [a.model for a in attempts], alignment, settings),
            *(effect_of(attempts, n, [a.unseen[n] for a in attempts], own, settings) for n, own in others),
        ),
        points=points_of(attempts, alignment, settings, _pixel_limit(plan)),
        distance="" if attempts[0].features is None else open_features(plan.features).name,
        alignment=alignment,
        about=_about(plan, alignment, before, time.perf_counter() - began),
        cells=cells.of(),
        files={printable(name): file for name, file in work.names.items()},  # as attempts are named
    )
    write_atomic(plan.out / MANIFEST, to_json(as_plain(result), indent=True))
    rows = to_csv(table_of([row_of(a) for a in attempts]))
    write_atomic(plan.out / TABLE, rows.encode("utf-8", "replace"))
    return in_folder(result, plan.out)


def _pixel_limit(plan: AttackPlan) -> int:
    """The largest number of changed pixels per image; patches with a size have no budget."""
    return sys.maxsize if plan.method.size else plan.limits.pixels


def add_contiguous(result: AttackResult, plan: AttackPlan, progress: Progress = silent) -> AttackResult:
    """Attack again with contiguous squares at the same pixel budget, and save both results."""
    both = dataclasses.replace(result, contiguous=attack(contiguous_plan(plan), progress))
    write_atomic(plan.out / MANIFEST, to_json(as_plain(both), indent=True))
    return in_folder(both, plan.out)


def _about(plan: AttackPlan, alignment: Alignment, state: dict[str, str], seconds: float) -> dict[str, Any]:
    evaluation = plan.plan
    return {
        "command": evaluation.command,
        "created": now(),
        "seconds": round(seconds, 3),
        "model": {**_named(evaluation.model), "unchanged": state},
        "data": {"name": evaluation.dataset.name, "images": len(evaluation.dataset), **evaluation.source},
        "classes": list(alignment.names),
        "alignment": alignment.to_plain(),
        "note": alignment.note,
        "pipeline": (evaluation.pipeline or pipeline_of(evaluation.model.card)).describe(),
        "method": dataclasses.asdict(plan.method),
        "limits": dataclasses.asdict(plan.limits),
        "seed": plan.seed,
        "surrogates": [_named(m) for m in plan.surrogates],
        "unseen": [_named(m) for m in plan.unseen],
        "deployments": list(plan.deployments),
        "universal": plan.universal,
        "rule": f"{evaluation.settings.rule}; IoU {evaluation.settings.iou}",
        "settings": settings_plain(evaluation.settings),
        "versions": versions(),
    }


def _named(model: Model) -> dict[str, str]:
    return {"name": model.name, "path": str(model.path), "sha256": model.sha256}


def as_plain(result: AttackResult) -> dict[str, Any]:
    """The outcome as JSON values: effects, means, curves, and one row per image."""
    return {
        "about": result.about,
        "effects": [{**dataclasses.asdict(e), "S_e": e.effect} for e in result.effects],
        "success": result.success,
        "mean_pixels": result.mean(lambda a: a.pixels),
        "mean_amplitude": result.mean(lambda a: a.amplitude),
        "mean_ssim": result.mean(lambda a: a.ssim),
        "distance": {"name": result.distance, "value": result.points[-1].distance},
        "curve": [dataclasses.asdict(p) for p in result.points],
        "images": [{**row_of(a), **_detections(a), **_patches(a, result)} for a in result.attempts],
        "failed": [str(f) for f in result.failed],
        "cells": result.cells.to_plain() if result.cells else None,
        "survival": [dataclasses.asdict(row) for row in result.survival],
        "contiguous": as_plain(result.contiguous) if result.contiguous else None,
    }


def _patches(attempt: Attempt, result: AttackResult) -> dict[str, Any]:
    """The patches of a shape; without a shape there is no such entry."""
    if not attempt.stickers:
        return {}
    stem, shape = result.files[attempt.name], result.about["method"]["shape"]
    return {"patches": describe_prints(attempt, stem, shape)}


def _detections(attempt: Attempt) -> dict[str, Any]:
    """The detections before and after, of the model and of the models that were not attacked."""
    pairs = {"": attempt.model, **{f"{name} ": pair for name, pair in attempt.unseen.items()}}
    return {
        f"{name}{when}": [
            {"box": box, "score": score, "class": number}
            for box, score, number in zip(*(values.tolist() for values in vars(d).values()), strict=True)
        ]
        for name, pair in pairs.items()
        for when, d in vars(pair).items()
    }


def decoded(plan: EvaluationPlan) -> Callable[[str], Image | None]:
    """A function that decodes an image by its name; it returns None if the image cannot be read."""
    entries = {printable(e.name): e for e in plan.dataset.entries}
    decode = lookup("decode", (plan.pipeline or pipeline_of(plan.model.card)).decode)

    def picture(name: str) -> Image | None:
        try:
            image: Image | None = decode(entries[printable(name)].load().data)
        except (KeyError, DataError):
            image = None
        return image

    return picture


def claim(folder: Path, setup: str, entries: tuple[Entry, ...], shared: bool = False) -> None:
    """Claim the folder for this attack; raise DataError if it contains another attack or other images.

    A shared folder may contain other images: an audit attacks as many as its time allows.
    """
    path, names = folder / CLAIM, [e.name for e in entries]
    try:
        claimed = orjson.loads(path.read_bytes())
        smaller = shared or set(claimed["images"]) <= set(map(printable, names))
        same = smaller and claimed["setup"] == setup
    except FileNotFoundError:
        same = True
    except (OSError, ValueError, KeyError, TypeError):
        same = False
    if not same:
        raise DataError(
            f"{folder}: holds another attack (other model, dataset, options or version of holdfast); "
            "use another --out or delete the folder"
        )
    write_atomic(path, to_json({"setup": setup, "images": names}))


def state_of(plan: AttackPlan, entries: tuple[Entry, ...]) -> dict[str, str]:
    """The hash of the model file and of its outputs on the first readable images."""
    model = plan.plan.model
    judge = open_judge(model, plan.plan.pipeline, plan.method.rule)
    outputs: dict[str, list[tuple[str, str]]] = {}
    for entry in entries[:LOOKED_AT]:
        try:
            tensor = judge.prepared(judge.machine.decode(entry.load().data)).tensor
        except DataError:
            continue
        outputs[entry.name] = [
            (name, fingerprint.of_bytes(np.ascontiguousarray(value).tobytes()))
            for name, value in judge.machine.run(tensor).items()
        ]
    content = fingerprint.of_bytes(model.read())
    return {"sha256": content, "images": str(len(outputs)), "outputs": fingerprint.of(outputs)}


def file_names(entries: tuple[Entry, ...]) -> dict[str, str]:
    """Image -> file name in the results: without its extension, unless two images would collide."""
    names = {e.name: str(PurePosixPath(_inside(e.name)).with_suffix("")) for e in entries}
    counts = Counter(stem.casefold() for stem in names.values())
    taken = {stem for stem, count in counts.items() if count == 1}
    for name, stem in names.items():
        if counts[stem.casefold()] > 1:
            names[name] = full = _inside(name)
            numbers = itertools.count(2)
            while names[name].casefold() in taken:
                names[name] = f"{full}-{next(numbers)}"
            taken.add(names[name].casefold())
    return names


def _inside(name: str) -> str:
    """The name as a path that cannot leave its folder."""
    parts = [p for p in PurePosixPath(name.replace("\\", "/")).parts if p not in ("/", "..", ".")]
    return "/".join(parts) or "image"
