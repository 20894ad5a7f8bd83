"""A model on a data set: predictions in cells, then the numbers."""

import dataclasses
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from holdfast.config.parser import command_line
from holdfast.core import fingerprint
from holdfast.core.dataset import Dataset
from holdfast.core.errors import DataError, InputError
from holdfast.core.model import Model
from holdfast.core.pipeline import Pipeline, check_names, pipeline_of
from holdfast.core.sources import versions
from holdfast.data.embedded import is_embedded
from holdfast.data.open import open_dataset
from holdfast.data.problems import MISSING_FILE
from holdfast.engine.cells import run
from holdfast.engine.executor import Progress, silent
from holdfast.engine.manifest import now, slug
from holdfast.engine.pipelines import SHARD, ImagePipeline, PipelineWork, read_records
from holdfast.engine.records import FailedImage
from holdfast.engine.store import Store, to_json
from holdfast.evaluate.classes import Alignment, align, realign
from holdfast.evaluate.options import EvaluationOptions
from holdfast.evaluate.reading import doubts
from holdfast.evaluate.result import CELLS, About, Evaluation, identity, save
from holdfast.evaluate.score import Settings, score_records
from holdfast.graph.load import load_model
from holdfast.metrics.rules import RULES

DEFAULT_RUNS = Path("holdfast-runs")


@dataclass(frozen=True)
class Plan:
    """What to evaluate and how; every field but the first two has a default."""

    model: Model
    dataset: Dataset
    pipeline: Pipeline | None = None  # None: the one the model was trained with
    settings: Settings = field(default_factory=lambda: Settings(RULES["coco"]))
    runs: Path = DEFAULT_RUNS
    jobs: int = 1  # processes; 0: one a core (a script then needs `if __name__ == "__main__"`)
    strict: bool = False
    common_classes: bool = False
    renames: Mapping[str, str] = field(default_factory=dict)
    source: Mapping[str, Any] = field(default_factory=dict)  # how to open the data set again
    command: str = ""
    shard: int = SHARD  # images a process gets at a time
    until: float = math.inf  # of time.monotonic: the work stops then, with the images finished so far


def plan_of(
    options: EvaluationOptions, model: Model | None = None, dataset: Dataset | None = None, command: str = ""
) -> Plan:
    """The plan of an evaluation; the model and the dataset are opened unless they are given."""
    settings, data = options.settings(), options.data
    loaded = model or load_model(options.model, options.card)
    reading: dict[str, Any] = {"format": options.format, "split": options.split, "images": options.images}
    for text in options.stage:
        if "=" not in text:
            raise InputError(f"--stage: expected NAME=VALUE such as 'resize=opencv-bilinear', got {text!r}")
    return Plan(
        loaded,
        dataset or open_dataset(data, task=loaded.card.task, **reading),
        pipeline_of(loaded.card).replace(**dict(text.split("=", 1) for text in options.stage)),
        settings,
        runs=options.runs,
        jobs=options.jobs,
        strict=options.strict,
        common_classes=options.classes == "common",
        renames=options.map,
        # The whole path, so that a report can be made from another folder.
        source={"data": data if is_embedded(data) else str(Path(data).resolve()), **reading},
        command=command or command_line(options),
    )


def run_folder(plan: Plan) -> Path:
    """Where the run of this plan is written: by names, and by a hash too if another run is there already.

    Another run is one of another model file or card, other data, another number of images, or another rule.
    """
    folder = plan.runs / _name(plan)
    same = {
        "sha256": plan.model.sha256,
        "card": dataclasses.asdict(plan.model.card),
        "source": dict(plan.source),
        "images": len(plan.dataset),
        "settings": settings_plain(plan.settings),
    }
    same = orjson.loads(to_json(same))
    there = identity(folder)
    return folder if there in (None, same) else folder.with_name(f"{folder.name}-{fingerprint.of(same)[:6]}")


def _name(plan: Plan) -> str:
    trained = pipeline_of(plan.model.card).describe()
    chosen = plan.pipeline.describe() if plan.pipeline else trained
    parts = [f"{plan.model.name}-on-{plan.dataset.name}"]
    for stage, name in chosen.items():
        if name != trained[stage]:  # of a function or a rewritten graph only a few digits
            parts.append(f"{stage}-{name if len(name) <= 40 else fingerprint.of(name)[:8]}")
    return slug("-".join(parts))


def evaluate(plan: Plan, progress: Progress = silent) -> Evaluation:
    """The evaluation, saved in its run folder. Images that fail are counted, not fatal, unless `strict`."""
    began = time.perf_counter()
    alignment = alignment_of(plan)
    if plan.strict and _missing(plan.dataset):
        raise DataError(str(_missing(plan.dataset)[0]))
    pipeline = plan.pipeline or pipeline_of(plan.model.card)
    check_names(pipeline)
    reused = 0

    def step(done: int, found: int) -> None:
        nonlocal reused
        reused += found
        progress(done, found)

    work = work_for(plan, ImagePipeline(pipeline), fatal=True)
    store = Store(plan.runs / CELLS)
    done = run(work, plan.dataset.entries, store, jobs=plan.jobs, progress=step, until=plan.until).of()
    cells = read_records(done)
    records = cells.records
    failed = tuple(r for r in records if isinstance(r, FailedImage))
    if len(failed) == len(records):
        raise DataError(f"none of the {len(records)} images could be evaluated; first {failed[0]}")
    failed += _missing(plan.dataset)
    kept = realign(records, alignment, plan.model.card.task)
    if not kept:
        raise DataError(f"none of the {len(records)} images shows a class that is evaluated")
    result = score_records(kept, plan.model.card.task, alignment.names, plan.settings)
    warnings = doubts(plan.model, plan.dataset, pipeline, records, alignment)
    result |= {"warnings": list(warnings)} if warnings else {}
    about = _about(plan, pipeline, alignment, result["rule"], time.perf_counter() - began)
    about.data["reused_images"] = reused
    remarks = (*warnings, *([alignment.note] if alignment.note else []), *cells.notes)
    evaluation = Evaluation(
        about, kept, failed, remarks, result, cells=done, alignment=alignment, content=cells.content
    )
    save(evaluation, run_folder(plan))
    return evaluation


def work_for(plan: Plan, *pipelines: ImagePipeline, fatal: bool = False) -> PipelineWork:
    """The work of running pipelines on the plan's model and data."""
    model, data = plan.model, plan.dataset
    classes = len(data.classes) or len(model.card.classes)
    return PipelineWork(
        model, pipelines, classes, data.ignore_index, strict=plan.strict, fatal=fatal, batch=plan.shard
    )


def alignment_of(plan: Plan) -> Alignment:
    """How the classes of model and data meet; DataError if the two do not fit."""
    model, data = plan.model, plan.dataset
    task = model.card.task
    if not data.entries:
        raise DataError(f"{data.name}: the data set is empty; expected at least one image with truth")
    if data.task != task and {data.task, task} != {"detect", "single"}:
        raise DataError(f"{data.name} is a data set to {data.task}, {model.name} is a model to {task}")
    if plan.common_classes and task == "segment":
        raise InputError("--classes common: a segmenter is evaluated on all its classes; correct the card")
    if not data.classes:  # a list of numbers: the model's classes, as they are
        if plan.renames:
            raise InputError(f"--map: {data.name} does not name its classes; nothing can be renamed")
        same = np.arange(len(model.card.classes))
        return Alignment(
            model.card.classes, same, same, "the data does not name its classes: taken by number"
        )
    if task == "segment":
        alignment = align(model.card.classes, data.classes, renames=plan.renames)
        if alignment.of_model.tolist() != list(range(len(data.classes))):
            raise DataError("a segmenter's classes must be the data's, in the same order; correct the card")
        return alignment
    return align(model.card.classes, data.classes, common=plan.common_classes, renames=plan.renames)


def _missing(dataset: Dataset) -> tuple[FailedImage, ...]:
    """Images the data set lists but that are not there."""
    gone = [p for p in dataset.problems if p.kind == MISSING_FILE]
    return tuple(FailedImage(p.where, p.what) for p in gone)


def settings_plain(settings: Settings) -> dict[str, Any]:
    """The settings as JSON values."""
    return {"rule": settings.rule.name, "iou": settings.iou, "score": settings.score}


def _about(plan: Plan, pipeline: Pipeline, alignment: Alignment, rule: str, seconds: float) -> About:
    model, data, settings = plan.model, plan.dataset, plan.settings
    return About(
        command=plan.command,
        created=now(),
        seconds=round(seconds, 3),
        task=model.card.task,
        model={
            "name": model.name,
            "path": str(model.path),
            "sha256": model.sha256,
            "guessed": list(model.guessed),
            "card": dataclasses.asdict(model.card),
        },
        data={
            "name": data.name,
            "format": data.format,
            "images": len(data),
            "problems": [str(p) for p in data.problems[:50]],
            "problem_count": len(data.problems),
            "source": dict(plan.source),
        },
        classes=alignment.names,
        pipeline=pipeline.describe(),
        rule=rule,
        settings=settings_plain(settings),
        versions=versions(),
    )
