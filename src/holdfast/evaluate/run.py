"""Evaluate a model on a dataset: predictions in cells, then the numbers."""

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
from holdfast.core.model import MODEL_KINDS, TASK_NAMES, Model
from holdfast.core.pipeline import Pipeline, check_names, pipeline_of
from holdfast.core.result import in_folder
from holdfast.core.sources import versions
from holdfast.data.open import open_dataset
from holdfast.data.problems import MISSING_FILE
from holdfast.engine.cells import run
from holdfast.engine.execution import cell_store
from holdfast.engine.executor import Progress, silent
from holdfast.engine.manifest import now, slug
from holdfast.engine.pipelines import SHARD, ImagePipeline, PipelineWork, read_records
from holdfast.engine.records import FailedImage
from holdfast.engine.store import to_json
from holdfast.evaluate.classes import Alignment, align, output_warnings, realign
from holdfast.evaluate.options import EvaluationOptions
from holdfast.evaluate.readings import settled
from holdfast.evaluate.result import CELLS, Evaluation, RunInfo, identity, save
from holdfast.evaluate.score import Settings, score_records
from holdfast.evaluate.slicing import Slicing, open_slicings
from holdfast.graph.load import load_model
from holdfast.metrics.rules import RULES
from holdfast.stages.defence import MaskDefence
from holdfast.stages.deployed import with_providers
from holdfast.stages.double_masking import DoubleMasking

DEFAULT_RUNS = Path("holdfast-runs")
CERTIFIED = "certify.json"  # the manifest of a certification
CERTIFIED_CLASSES = "certify-classes.json"  # and of one of a classifier


@dataclass(frozen=True)
class EvaluationPlan:
    """What to evaluate and how."""

    model: Model
    dataset: Dataset
    pipeline: Pipeline | None = None  # None: the training pipeline
    settings: Settings = field(default_factory=lambda: Settings(RULES["coco"]))
    runs: Path = DEFAULT_RUNS
    jobs: int = 1  # worker processes; 0: one per core (a script then needs `if __name__ == "__main__"`)
    strict: bool = False
    common_classes: bool = False
    renames: Mapping[str, str] = field(default_factory=dict)
    slices: tuple[Slicing, ...] = ()  # parts of the data with numbers of their own
    source: Mapping[str, Any] = field(default_factory=dict)  # how to open the dataset again
    command: str = ""
    shard: int = SHARD  # images per worker at a time
    until: float = math.inf  # deadline (time.monotonic): the run stops with the images finished by then


def evaluation_plan(
    options: EvaluationOptions, model: Model | None = None, dataset: Dataset | None = None, command: str = ""
) -> EvaluationPlan:
    """The plan of an evaluation; the model and the dataset are opened unless they are given."""
    settings = options.settings()
    model = model or load_model(options.model, options.card)
    for text in options.stage:
        if "=" not in text:
            raise InputError(f"--stage: expected KIND=NAME such as resize=opencv-bilinear, got {text!r}")
    if dataset is None:
        reading: dict[str, Any] = {name: getattr(options, name) for name in ("format", "split", "images")}
        dataset = open_dataset(options.data, task=model.card.task, **reading)
    if model.guessed:
        model = settled(model, dataset, renames=options.map)
    pipeline = pipeline_of(model.card).replace(**dict(text.split("=", 1) for text in options.stage))
    if options.provider:
        pipeline = pipeline.replace(infer=with_providers(pipeline.infer, options.provider))
    return EvaluationPlan(
        model,
        dataset,
        pipeline if options.defend is None else defended(pipeline, options.defend, model),
        settings,
        runs=options.runs,
        jobs=options.jobs,
        strict=options.strict,
        common_classes=options.classes == "common",
        renames=options.map,
        slices=_slices(options, dataset, model),
        source=dataset.source,
        command=command or command_line(options),
    )


def _slices(options: EvaluationOptions, dataset: Dataset, model: Model) -> tuple[Slicing, ...]:
    if not (options.slice_ or options.slice_file):
        return ()
    return open_slicings(options.slice_, options.slice_file, dataset, model.card.task)


def defended(pipeline: Pipeline, text: str, model: Model) -> Pipeline:
    """The pipeline with the defence of `--defend`: masks, masks:SETTINGS, or a certification."""
    defences: dict[str, Any] = {"detect": MaskDefence, "classify": DoubleMasking}
    if model.card.task not in defences:
        raise InputError(f"--defend: expected a detector or classifier, got a {MODEL_KINDS[model.card.task]}")
    kind, _, settings = text.partition(":")
    if kind != "masks":
        settings = _certified_defence(Path(text))
    try:
        return dataclasses.replace(pipeline, defence=defences[model.card.task].parse(settings))
    except InputError as problem:
        raise InputError(f"--defend: {problem}") from None


def _certified_defence(path: Path) -> str:
    """The settings of the defence in the manifest of a certification."""
    files = [path / name for name in (CERTIFIED, CERTIFIED_CLASSES)] if path.is_dir() else [path]
    file = next((one for one in files if one.is_file()), files[0])
    try:
        return str(orjson.loads(file.read_bytes())["about"]["defence"])
    except (OSError, ValueError, KeyError, TypeError) as problem:
        expected = "expected masks, masks:KEY=VALUE,… or the folder of a certification"
        raise InputError(f"--defend {path}: {expected}, got: {problem}") from None


def with_file(plan: EvaluationPlan, path: Path | None) -> EvaluationPlan:
    """The plan with a converted file of the model in place of its own, if one is given."""
    if path is None:
        return plan
    from holdfast.stages.runtime.files import file_option

    pipeline = plan.pipeline or pipeline_of(plan.model.card)
    return dataclasses.replace(plan, pipeline=file_option(path).noise(pipeline))


def run_folder(plan: EvaluationPlan) -> Path:
    """The folder of the run: named by model and data, with a hash if a different run is there already.

    Runs differ if the model file, the card, the data, the number of images or the rule differs.
    """
    folder = plan.runs / _name(plan)
    model = {"sha256": plan.model.sha256, "card": dataclasses.asdict(plan.model.card)}
    data = {"source": dict(plan.source), "images": len(plan.dataset)}
    new = orjson.loads(to_json({**model, **data, "settings": settings_plain(plan.settings)}))
    is_free = identity(folder) in (None, new)
    return folder if is_free else folder.with_name(f"{folder.name}-{fingerprint.of(new)[:6]}")


def _name(plan: EvaluationPlan) -> str:
    trained = pipeline_of(plan.model.card).describe()
    chosen = plan.pipeline.describe() if plan.pipeline else trained
    parts = [f"{plan.model.name}-on-{plan.dataset.name}"]
    for stage, name in chosen.items():
        if name != trained.get(stage):  # of a function or a rewritten graph only a few digits
            parts.append(f"{stage}-{name if len(name) <= 40 else fingerprint.of(name)[:8]}")
    return slug("-".join(parts))


def evaluate(plan: EvaluationPlan, progress: Progress = silent) -> Evaluation:
    """Evaluate and save the run in its folder. Images that fail are counted unless `strict`."""
    began = time.perf_counter()
    alignment = alignment_of(plan)
    missing = [FailedImage(p.where, p.what) for p in plan.dataset.problems if p.kind == MISSING_FILE]
    if plan.strict and missing:
        raise DataError(str(missing[0]))
    pipeline = plan.pipeline or pipeline_of(plan.model.card)
    check_names(pipeline)
    reused = 0

    def step(done: int, cached: int) -> None:
        nonlocal reused
        reused += cached
        progress(done, cached)

    work = work_for(plan, ImagePipeline(pipeline), fatal=True)
    store = cell_store(plan.runs / CELLS)
    done = run(work, plan.dataset.entries, store, jobs=plan.jobs, progress=step, until=plan.until).of()
    cells = read_records(done)
    records = cells.records
    failed = tuple(r for r in records if isinstance(r, FailedImage))
    if len(failed) == len(records):
        raise DataError(f"none of the {len(records)} images could be evaluated; first {failed[0]}")
    evaluated = realign(records, alignment, plan.model.card.task)
    if not evaluated:
        raise DataError(f"none of the {len(records)} images has an object of an evaluated class")
    result = score_records(evaluated, plan.model.card.task, alignment.names, plan.settings)
    warnings = output_warnings(plan.model, plan.dataset, pipeline, records, alignment)
    result |= {"warnings": list(warnings)} if warnings else {}
    if plan.slices:
        from holdfast.evaluate.slices import evaluation_slices  # here, because it imports this module

        result["slices"] = evaluation_slices(plan, alignment, evaluated)
    about = _about(plan, pipeline, alignment, result["rule"], time.perf_counter() - began)
    about.data["reused_images"] = reused
    remarks = (*warnings, *([alignment.note] if alignment.note else []), *cells.notes)
    evaluation = Evaluation(
        about, evaluated, (*failed, *missing), remarks, result, cells=done, alignment=alignment,
        content=cells.content, dataset=plan.dataset,
    )  # fmt: skip
    folder = run_folder(plan)
    save(evaluation, folder)
    return in_folder(evaluation, folder)


def work_for(plan: EvaluationPlan, *pipelines: ImagePipeline, fatal: bool = False) -> PipelineWork:
    """The work of running pipelines on the plan's model and data."""
    model, data = plan.model, plan.dataset
    classes = len(data.classes) or len(model.card.classes)
    return PipelineWork(
        model, pipelines, classes, data.ignore_index, strict=plan.strict, fatal=fatal, batch=plan.shard
    )


def check_task(model: Model, data: Dataset) -> None:
    """Raise DataError if the dataset is empty or labelled for another task than the model's."""
    if not data.entries:
        raise DataError(f"{data.name}: the dataset is empty; expected at least one image with ground truth")
    task = model.card.task
    if data.task != task and {data.task, task} != {"detect", "single"}:
        labels, kind = TASK_NAMES[data.task], MODEL_KINDS[task]
        raise DataError(f"dataset {data.name} is labelled for {labels}, but model {model.name} is a {kind}")


def alignment_of(plan: EvaluationPlan) -> Alignment:
    """How the classes of model and data correspond; DataError if they do not."""
    model, data = plan.model, plan.dataset
    task = model.card.task
    check_task(model, data)
    if plan.common_classes and task == "segment":
        raise InputError("--classes common: not supported for segmenters; correct the card instead")
    if not data.classes:  # a list of numbers: the model's classes, as they are
        if plan.renames:
            raise InputError(f"--map: {data.name} has no class names to map")
        same = np.arange(len(model.card.classes))
        note = "the dataset has no class names: classes are matched by number"
        return Alignment(model.card.classes, same, same, note)
    alignment = align(model.card.classes, data.classes, common=plan.common_classes, renames=plan.renames)
    if task == "segment" and alignment.of_model.tolist() != list(range(len(data.classes))):
        raise DataError("expected the segmenter's classes in the order of the dataset; correct the card")
    return alignment


def settings_plain(settings: Settings) -> dict[str, Any]:
    """The settings as JSON values."""
    return {"rule": settings.rule.name, "iou": settings.iou, "score": settings.score}


def _about(
    plan: EvaluationPlan, pipeline: Pipeline, alignment: Alignment, rule: str, seconds: float
) -> RunInfo:
    model, data, settings = plan.model, plan.dataset, plan.settings
    return RunInfo(
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
