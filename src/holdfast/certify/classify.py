"""Certify a classifier: masks and pairs of masks on every image, and what their answers prove."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.certify.certificate import all_places, uncovered
from holdfast.certify.classify_result import CLASSIFIED, ClassAccuracy, ClassCertification, ImageVerdict
from holdfast.certify.options import CertifyOptions
from holdfast.certify.run import widening
from holdfast.certify.threat import Threat, check_threat, frame_for, spread_of
from holdfast.certify.work import ClassWork
from holdfast.config.options import fields_of
from holdfast.core.errors import DataError, ImageError, InputError
from holdfast.core.fingerprint import generator
from holdfast.core.pipeline import Pipeline, check_names, pipeline_of
from holdfast.core.result import in_folder
from holdfast.core.sources import versions
from holdfast.core.types import Size
from holdfast.data.images import Encoding, sniff
from holdfast.engine.cells import run
from holdfast.engine.execution import cell_store
from holdfast.engine.manifest import folder_of, now
from holdfast.engine.pipelines import ImagePipeline, read_records
from holdfast.engine.records import ClassificationRecord, FailedImage
from holdfast.evaluate.classes import Alignment
from holdfast.evaluate.result import CELLS
from holdfast.evaluate.run import EvaluationPlan, alignment_of, work_for
from holdfast.metrics.intervals import mean_difference
from holdfast.metrics.points import points
from holdfast.noise.suite import Watch, no_progress
from holdfast.stages.defence import GREY
from holdfast.stages.double_masking import DoubleMasking
from holdfast.stages.masks import PatchSize, SquareMasks

DETECTORS_ONLY = (
    "lines", "overlap", "score", "alpha", "beta", "prune", "false_boxes", "calibration", "calibration_images",
    "attack",
)  # fmt: skip
ROUNDS = ("one_round", "two_rounds")


@dataclass(frozen=True)
class ClassPlan:
    """A classifier on a dataset, the masks, and where the patch is."""

    plan: EvaluationPlan
    defence: DoubleMasking
    threat: Threat = "decoded"

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline that is wrapped."""
        return self.plan.pipeline or pipeline_of(self.plan.model.card)


def class_plan(options: CertifyOptions, plan: EvaluationPlan) -> ClassPlan:
    """The plan for a classifier; InputError for options that only detectors have."""
    plain = {spec.name: spec.default for spec in fields_of(CertifyOptions)}
    for name in DETECTORS_ONLY:
        if getattr(options, name) != plain[name]:
            raise InputError(
                f"--{name.replace('_', '-')}: only detectors have it; {plan.model.name} is a classifier"
            )
    squares = SquareMasks(PatchSize.parse(options.patch), options.squares or 6, widening(options, plan))
    return ClassPlan(plan, DoubleMasking(squares, options.masks), options.threat)


def certify_classes(plan: ClassPlan, watch: Watch = no_progress) -> ClassCertification:
    """Certify every image of the dataset and save the result in its folder."""
    began, evaluated = time.perf_counter(), plan.plan
    check_class_plan(plan)
    alignment = alignment_of(evaluated)
    store, entries = cell_store(evaluated.runs / CELLS), evaluated.dataset.entries
    whole = work_for(evaluated, ImagePipeline(plan.pipeline), fatal=True)
    work = ClassWork(evaluated.model, plan.pipeline, plan.defence, whole.setups()[0].facts)
    known: dict[str, Any] = {"jobs": evaluated.jobs, "until": evaluated.until}
    with watch("certify: whole images", len(entries)) as step:
        records = read_records(run(whole, entries, store, progress=step, **known).of()).records
    with watch(f"certify: {plan.defence.squares}", len(entries)) as step:
        cells = run(work, entries, store, progress=step, **known).read()
    verdicts, failed = list[ImageVerdict](), list[FailedImage]()
    for record, cell in zip(records, cells, strict=False):
        if isinstance(record, FailedImage) or "failed" in cell:
            reason = cell.get("failed", "")
            failed.append(record if isinstance(record, FailedImage) else FailedImage(record.name, reason))
        elif isinstance(record, ClassificationRecord) and alignment.of_data[record.label] >= 0:
            verdicts.append(verdict_of(plan, record, cell, alignment))
    if not verdicts or (failed and evaluated.strict):
        raise DataError(str(failed[0]) if failed else "none of the images has an evaluated class")
    about = _about(plan, cells, time.perf_counter() - began)
    result = ClassCertification(about, accuracy_of(verdicts), tuple(verdicts), tuple(failed))
    title = f"certify-{evaluated.model.name}-on-{evaluated.dataset.name}"
    identity = [evaluated.model.sha256, plan.pipeline.describe(), str(plan.defence), plan.threat]
    folder = folder_of(evaluated.runs, title, identity)
    CLASSIFIED.save(result, folder)
    return in_folder(result, folder)


def check_class_plan(plan: ClassPlan) -> None:
    """Raise InputError if the pipeline or the patch cannot be certified."""
    model, patch = plan.plan.model, plan.defence.squares.patch
    if plan.pipeline.defence is not None:
        raise InputError("expected a model without a defence: certify builds it from the options")
    check_names(plan.pipeline)
    check_threat(plan.threat, plan.defence.where, plan.pipeline)
    for entry in plan.plan.dataset.entries:
        try:
            size = sniff(entry.load().data, entry.name).size
        except ImageError:
            continue  # reported where it is run
        if plan.defence.where == "input":
            size = frame_for(size, model.card, plan.pipeline).network
        if not patch.fits(size):
            got = f"got a patch of {patch.side(size)} px; {entry.name} is {size.width}×{size.height}"
            raise InputError(f"--patch: expected a patch that fits in every image, {got}")


def verdict_of(
    plan: ClassPlan, record: ClassificationRecord, cell: dict[str, Any], alignment: Alignment
) -> ImageVerdict:
    """What the answers of one image prove."""
    names, of_model, of_data = alignment.names, alignment.of_model, alignment.of_data
    truth = int(of_data[record.label])
    answers = [int(of_model[label]) for label in cell["first"]]
    covered = masks_cover(plan, record.size, cell)
    one_round = covered and all(answer == truth for answer in answers)
    vanilla, wrapped = int(of_model[record.best]), int(of_model[cell["answer"]])
    return ImageVerdict(
        name=record.name, label=names[truth],
        vanilla=names[vanilla] if vanilla >= 0 else "?", wrapped=names[wrapped] if wrapped >= 0 else "?",
        one_round=one_round, two_rounds=one_round and cell["agree"],
        alarm=len(set(cell["first"])) > 1, passes=cell["passes"],
    )  # fmt: skip


def masks_cover(plan: ClassPlan, size: Size, cell: dict[str, Any]) -> bool:
    """Whether at every place some mask removes the whole patch, with all that it spreads to."""
    model, coded = plan.plan.model, cell["encoding"]
    if plan.threat == "scene" and coded is None:
        return False
    encoding = Encoding((coded[0], coded[1]), coded[2]) if coded else Encoding()
    frame, resize = frame_for(size, model.card, plan.pipeline), str(plan.pipeline.resize)
    spread = spread_of(plan.threat, plan.defence.where, size, frame, encoding, resize)
    side = plan.defence.squares.patch.side(spread.size)
    masks = spread.effective(np.array(cell["masks"], np.int64))
    return not uncovered(masks, all_places(spread.size, side), side).any()


def accuracy_of(verdicts: Sequence[ImageVerdict]) -> ClassAccuracy:
    """The accuracies over all images."""
    right = np.array([[v.vanilla == v.label, v.wrapped == v.label] for v in verdicts], np.float64)
    span = mean_difference(right[:, 0], right[:, 1], generator(0, "certify"))
    shares = {name: float(np.mean([getattr(v, name) for v in verdicts])) for name in ROUNDS}
    return ClassAccuracy(
        len(verdicts), float(right[:, 0].mean()), float(right[:, 1].mean()),
        points_lost=points(-span.estimate), low=points(-span.high), high=points(-span.low),
        alarms=float(np.mean([v.alarm for v in verdicts])), **shares,
    )  # fmt: skip


def _about(plan: ClassPlan, cells: Sequence[dict[str, Any]], seconds: float) -> dict[str, Any]:
    model, data = plan.plan.model, plan.plan.dataset
    done = [cell for cell in cells if "failed" not in cell]
    return {
        "command": plan.plan.command,
        "created": now(),
        "seconds": round(seconds, 3),
        "model": {"name": model.name, "path": str(model.path), "sha256": model.sha256},
        "data": {"name": data.name, "images": len(done), "source": dict(data.source)},
        "pipeline": plan.pipeline.describe(),
        "patch": str(plan.defence.squares.patch),
        "threat": plan.threat,
        "masks": f"{plan.defence.squares}; {plan.defence.where}",
        "defence": str(plan.defence),
        "grey": GREY,
        "passes": round(float(np.mean([cell["passes"] for cell in done])), 1),
        "seconds_per_image": round(float(np.mean([cell["seconds"] for cell in done])), 3),
        "versions": versions(),
    }
