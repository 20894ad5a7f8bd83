"""A model on a data set attacked: cells, pictures, numbers, and the proof that the model is what it was."""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import io
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import orjson

from holdfast.attack.judge import open_judge
from holdfast.attack.plan import AttackPlan, task_of
from holdfast.attack.result import Attempt, Effect, Outcome, attempt_from_plain, effect_of, points_of, row_of
from holdfast.attack.universal import write_patch
from holdfast.attack.work import AttackWork
from holdfast.core import fingerprint
from holdfast.core.dataset import Entry
from holdfast.core.errors import DataError, ModelError
from holdfast.core.model import Model
from holdfast.core.patch import Patch
from holdfast.core.pipeline import pipeline_of
from holdfast.core.registry import lookup
from holdfast.core.types import Image
from holdfast.engine.cells import run
from holdfast.engine.executor import Progress, silent
from holdfast.engine.manifest import now
from holdfast.engine.records import Failed
from holdfast.engine.store import printable, to_json, write_atomic
from holdfast.engine.versions import versions
from holdfast.evaluate.classes import Alignment
from holdfast.evaluate.run import Plan, alignment_of, settings_plain

MANIFEST, TABLE = "attack.json", "images.csv"
CLAIM = "claim.json"
LOOKED_AT = 8  # images whose outputs are compared before and after


def attack(plan: AttackPlan, progress: Progress = silent, patch: Patch | None = None) -> Outcome:
    """The outcome, its files in the plan's folder; a killed run goes on where it was.

    `patch` is the universal one, if the plan wants one. The model's file and what it says of the first image
    are the same before and after, or ModelError says so.
    """
    from holdfast.stages.features import open_features

    began = time.perf_counter()
    alignment = alignment_of(plan.plan)
    others = [alignment_of(dataclasses.replace(plan.plan, model=m)) for m in plan.unseen]  # or told at once
    task = task_of(plan, alignment, patch)
    entries = plan.plan.dataset.entries
    claim(plan.out, task.setup.name, entries, plan.shared)
    before = state_of(plan, entries)
    if patch is not None:
        write_patch(plan, patch)
    work = AttackWork(task, file_names(entries))
    until = plan.plan.until
    cells = run(work, entries, task.store, jobs=plan.plan.jobs, progress=progress, until=until)
    results = [attempt_from_plain(plain) for plain in cells.read()]
    attempts = tuple(a for a in results if isinstance(a, Attempt))
    failed = tuple(f for f in results if isinstance(f, Failed))
    after = state_of(plan, entries)
    if after != before:
        raise ModelError(f"{plan.plan.model.path}: expected the model to stay as it was, got another one")
    if not attempts:
        raise DataError(f"none of the {len(failed)} images could be attacked; first {failed[0]}")
    settings = plan.plan.settings
    points = points_of(attempts, alignment, settings, plan.limits.pixels)
    about = _about(plan, alignment, before, time.perf_counter() - began)
    name = "" if attempts[0].features is None else open_features(plan.features).name
    effects = _effects(plan, attempts, alignment, others)
    found = Outcome(attempts, failed, effects, points, name, alignment, about, cells.of())
    _save(plan, found)
    return found


def _effects(
    plan: AttackPlan, attempts: tuple[Attempt, ...], alignment: Alignment, others: list[Alignment]
) -> tuple[Effect, ...]:
    settings = plan.plan.settings
    found = [effect_of(attempts, plan.plan.model.name, [a.model for a in attempts], alignment, settings)]
    for other, own in zip(plan.unseen, others, strict=True):
        pairs = [a.unseen[other.name] for a in attempts]
        found.append(effect_of(attempts, other.name, pairs, own, settings))
    return tuple(found)


def _about(plan: AttackPlan, alignment: Alignment, state: dict[str, str], seconds: float) -> dict[str, Any]:
    evaluated = plan.plan
    return {
        "command": evaluated.command,
        "created": now(),
        "seconds": round(seconds, 3),
        "model": {**_named(evaluated.model), "unchanged": state},
        "data": {"name": evaluated.dataset.name, "images": len(evaluated.dataset), **evaluated.source},
        "classes": list(alignment.names),
        "alignment": alignment.to_plain(),
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
        "settings": settings_plain(evaluated.settings),
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
        "cells": found.cells.to_plain() if found.cells else None,
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


def decoded(plan: Plan) -> Callable[[str], Image | None]:
    """The same for the images of any plan, by its own decoder."""
    entries = {printable(e.name): e for e in plan.dataset.entries}
    decode = lookup("decode", (plan.pipeline or pipeline_of(plan.model.card)).decode)

    def picture(name: str) -> Image | None:
        try:
            image: Image = decode(entries[printable(name)].load().data)
        except (KeyError, DataError):
            return None
        return image

    return picture


def claim(folder: Path, setup: str, entries: tuple[Entry, ...], shared: bool = False) -> None:
    """Claim the folder for this attack; DataError if it holds another one, or images beyond these.

    A shared one may hold others: of an audit, which attacks more images as its time allows, and other data.
    """
    path, names = folder / CLAIM, [e.name for e in entries]
    try:
        held = orjson.loads(path.read_bytes())
        more = set(held["images"]) - set(map(printable, names))
        same = held["setup"] == setup and (shared or not more)
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


def state_of(plan: AttackPlan, entries: tuple[Entry, ...]) -> dict[str, str]:
    """The hash of the model's file and of what the model says of the first images that can be read."""
    model = plan.plan.model
    content = hashlib.sha256(model.read()).hexdigest()
    judge = open_judge(model, plan.plan.pipeline, plan.method.rule)
    said: dict[str, list[tuple[str, str]]] = {}
    for entry in entries[:LOOKED_AT]:
        try:
            tensor = judge.prepared(judge.machine.decode(entry.load().data)).tensor
        except DataError:
            continue
        outputs = judge.machine.run(tensor)
        said[entry.name] = [
            (n, fingerprint.of_bytes(np.ascontiguousarray(v).tobytes())) for n, v in outputs.items()
        ]
    return {"sha256": content, "images": str(len(said)), "outputs": fingerprint.of(said)}


def file_names(entries: tuple[Entry, ...]) -> dict[str, str]:
    """Image -> its name in the folder of results: without its ending, unless two images then meet."""
    short = {e.name: str(PurePosixPath(_inside(e.name)).with_suffix("")) for e in entries}
    times = Counter(name.casefold() for name in short.values())
    taken: set[str] = {name.casefold() for name in short.values() if times[name.casefold()] == 1}
    found = {}
    for name, stem in short.items():
        chosen, number = stem, 1
        if times[stem.casefold()] > 1:
            chosen = _inside(name)
            while chosen.casefold() in taken:
                number += 1
                chosen = f"{_inside(name)}-{number}"
            taken.add(chosen.casefold())
        found[name] = chosen
    return found


def _inside(name: str) -> str:
    """The name as a path that cannot leave the folder it is put into."""
    parts = [p for p in PurePosixPath(name.replace("\\", "/")).parts if p not in ("/", "..", ".")]
    return "/".join(parts) or "image"
