"""Certify a detector on a dataset: run it on masked images, calibrate the defence, prove what holds."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.certify.attacked import AttackItem, PlaceAttackWork, places_of
from holdfast.certify.certificate import AttackedPlace, ImageCertificate, ObjectCertificate, gains_of
from holdfast.certify.options import CertifyOptions
from holdfast.certify.result import (
    AREAS,
    CERTIFICATIONS,
    OVERLAPS,
    PATCHES,
    Certification,
    CertifiedRecall,
    CleanEffect,
    Thresholds,
    certified_recall,
)
from holdfast.certify.threat import Threat, check_threat, frame_for, radius_of, spread_of
from holdfast.certify.work import MaskedImage, MaskWork, join_families
from holdfast.core.dataset import Dataset, Entry
from holdfast.core.errors import DataError, ImageError, InputError, ModelError
from holdfast.core.model import MODEL_KINDS, Model
from holdfast.core.pipeline import Pipeline, check_names, pipeline_of
from holdfast.core.result import in_folder
from holdfast.core.sources import versions
from holdfast.core.text import printable
from holdfast.core.types import Boxes, Detections
from holdfast.data.images import Encoding, sniff
from holdfast.engine.cells import run
from holdfast.engine.execution import cell_store
from holdfast.engine.manifest import folder_of, now
from holdfast.engine.pipelines import ImagePipeline, read_records
from holdfast.engine.records import DetectionRecord, FailedImage, Record
from holdfast.evaluate.classes import Alignment, realign
from holdfast.evaluate.difference import ScoredRun, compare
from holdfast.evaluate.result import CELLS
from holdfast.evaluate.run import EvaluationPlan, alignment_of, work_for
from holdfast.evaluate.score import Settings
from holdfast.metrics.boxes import iou
from holdfast.metrics.rules import RULES
from holdfast.noise.suite import Watch, no_progress
from holdfast.noise.vision.choose import calibration_pool, reserve
from holdfast.report.tables import many
from holdfast.stages.defence import GREY, MaskDefence
from holdfast.stages.masks import HalfPlanes, MaskFamily, PatchSize, SquareMasks

SAME = 0.5  # IoU from which a box is a found object
GRID = (0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.93, 0.96, 0.98, 0.99, 1.0)


@dataclass(frozen=True)
class CertifyPlan:
    """A detector on a dataset, the patch, and the defence; without `alpha` it is calibrated."""

    plan: EvaluationPlan
    patch: PatchSize
    defence: MaskDefence
    overlap: float = 0.0
    threat: Threat = "decoded"
    calibrate: bool = True
    limit: float = 0.1  # of added false boxes per image
    calibration_data: Dataset | None = None  # None: some of the data, which are then skipped
    calibration_images: int = 20
    attack: int = 0  # places per image, certified and others, at which the wrapped detector is attacked

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline that is wrapped."""
        return self.plan.pipeline or pipeline_of(self.plan.model.card)


@dataclass(frozen=True)
class SeenImage:
    """One image as it is and masked, with the numbers of the model's classes."""

    record: DetectionRecord
    masked: MaskedImage


def certify_plan(options: CertifyOptions, plan: EvaluationPlan, calibration: Dataset | None) -> CertifyPlan:
    """The plan of a certification; InputError if the options contradict one another."""
    patch, families = PatchSize.parse(options.patch), list[MaskFamily]()
    if options.lines:
        families.append(HalfPlanes(options.lines))
    if options.squares:
        families.append(SquareMasks(patch, options.squares, widening(options, plan)))
    if not families:
        raise InputError("expected --lines or --squares above 0: without masks nothing can be certified")
    alpha = 1.0 if options.alpha is None else options.alpha
    defence = MaskDefence(
        tuple(families),
        alpha=alpha,
        beta=options.beta,
        score=options.score,
        prune=options.prune,
        where=options.masks,
    )
    pool = calibration
    if pool is None and "data" in plan.dataset.source:
        source = plan.dataset.source
        reading = (plan.dataset.task, source.get("format"), source.get("split"))
        pool = calibration_pool(source["data"], *reading, options.calibration_images)
    return CertifyPlan(
        plan, patch, defence, overlap=options.overlap, threat=options.threat, calibrate=options.alpha is None,
        limit=options.false_boxes, calibration_data=pool, calibration_images=options.calibration_images,
        attack=options.attack,
    )  # fmt: skip


def widening(options: CertifyOptions, plan: EvaluationPlan) -> int:
    """How many pixels compression and resize may add to the side of a patch, for the size of squares."""
    wide = 2 * (16 - 1 + 1) if options.threat == "scene" else 0
    resize = (plan.pipeline or pipeline_of(plan.model.card)).resize
    if options.masks == "input" and options.threat != "input" and isinstance(resize, str):
        wide += 2 * math.ceil(radius_of(resize) + 2)
    return wide


def certify(plan: CertifyPlan, watch: Watch = no_progress) -> Certification:
    """Certify every object of the dataset and save the result in its folder."""
    began = time.perf_counter()
    alignment = check_plan(plan)
    thresholds, entries = Thresholds(plan.defence.alpha, None, 0, None, "given"), plan.plan.dataset.entries
    if plan.calibrate:
        chosen = reserve(plan.plan.dataset, plan.calibration_data, plan.calibration_images)
        if chosen.lack:
            raise DataError(f"{chosen.lack}, or give --alpha")
        seen, _ = see(plan, alignment, chosen.items, watch, "calibration")
        count = many(len(seen), "image")
        source = f"{count} of the data, which are skipped" if chosen.without else chosen.words
        thresholds = calibrated(plan, seen, alignment, source)
        entries = tuple(e for e in entries if e.name not in chosen.without)
    defence = dataclasses.replace(plan.defence, alpha=thresholds.alpha)
    seen, failed = see(plan, alignment, entries, watch, "certify")
    images = tuple(certificates(one, defence, alignment, plan) for one in seen)
    result = Certification(
        _about(plan, defence, alignment, seen, time.perf_counter() - began),
        thresholds,
        clean_effect(seen, defence, alignment),
        tuple(recall_rows(images, plan)),
        images=images,
        failed=failed,
        attacked=attack_places(plan, defence, alignment, images, watch) if plan.attack else (),
    )
    folder = folder_of(
        plan.plan.runs,
        f"certify-{plan.plan.model.name}-on-{plan.plan.dataset.name}",
        [
            plan.plan.model.sha256,
            plan.pipeline.describe(),
            str(defence),
            str(plan.patch),
            plan.overlap,
            plan.threat,
        ],
    )
    CERTIFICATIONS.save(result, folder)
    object.__setattr__(result, "_dataset", plan.plan.dataset)  # for the pictures of the page; not a field
    return in_folder(result, folder)


def attack_places(
    plan: CertifyPlan,
    defence: MaskDefence,
    alignment: Alignment,
    images: Sequence[ImageCertificate],
    watch: Watch,
) -> tuple[AttackedPlace, ...]:
    """Attack the wrapped detector on every image; UnsoundCertificate if a certified object can be hidden."""
    evaluated, model = plan.plan, plan.plan.model
    pipeline = dataclasses.replace(plan.pipeline, defence=defence)
    (setup,) = work_for(evaluated, ImagePipeline(pipeline), fatal=True).setups()
    work = PlaceAttackWork(
        model, pipeline, defence, plan.patch, plan.overlap, places=plan.attack,
        of_model=tuple(alignment.of_model.tolist()), names=alignment.names, facts=setup.facts,
    )  # fmt: skip
    proofs = {one.name: one for one in images}
    entries = {e.name: e for e in evaluated.dataset.entries if printable(e.name) in proofs}
    items = [AttackItem(entry, proofs[printable(name)]) for name, entry in entries.items()]
    store = cell_store(evaluated.runs / CELLS)
    with watch("certify: attack", len(items)) as step:
        done = run(work, items, store, jobs=evaluated.jobs, progress=step, until=evaluated.until)
    found = []
    for item, rows in zip(items, done.read(), strict=False):
        found += places_of(item, plan.patch.side(item.certificate.size), rows)
    return tuple(found)


def check_task(model: Model) -> None:
    """Raise ModelError for a model without detections or classes of images."""
    if model.card.task == "single":
        exact = "holdfast patchbench certify decides it exactly at every position, without masks"
        raise ModelError(
            f"{model.name}: expected a detector of any number of objects, got one of one: {exact}"
        )
    if model.card.task not in ("detect", "classify"):
        expected = "expected a detector or a classifier"
        raise ModelError(f"{model.name}: {expected}, got a {MODEL_KINDS[model.card.task]}")


def check_plan(plan: CertifyPlan) -> Alignment:
    """How the classes correspond; an error if the model or the patch cannot be certified."""
    model, data = plan.plan.model, plan.plan.dataset
    if model.card.task != "detect":
        check_task(model)
        raise ModelError(f"{model.name}: expected a detector, got a {MODEL_KINDS[model.card.task]}")
    if plan.pipeline.defence is not None:
        raise InputError("expected a model without a defence: certify builds it from the options")
    check_names(plan.pipeline)
    check_threat(plan.threat, plan.defence.where, plan.pipeline)
    if plan.attack and plan.threat != "decoded":
        raise InputError(
            f"--attack: puts patches on decoded pixels, not where --threat {plan.threat} has them; "
            "omit one of them"
        )
    alignment = alignment_of(plan.plan)
    for entry in data.entries:
        try:
            size = sniff(entry.load().data, entry.name).size
        except ImageError:
            continue  # reported where it is run
        if plan.threat == "input":
            size = frame_for(size, model.card, plan.pipeline).network
        if not plan.patch.fits(size):
            got = f"a patch of {plan.patch.side(size)} px"
            raise InputError(
                f"--patch: expected a patch that fits in every image, got {got}; {entry.name} is "
                f"{size.width}×{size.height}"
            )
    return alignment


def see(
    plan: CertifyPlan, alignment: Alignment, entries: Sequence[Entry], watch: Watch, what: str
) -> tuple[list[SeenImage], tuple[FailedImage, ...]]:
    """Run the model on the images as they are and with each mask; the images that failed."""
    evaluated, model = plan.plan, plan.plan.model
    store, jobs, until = cell_store(evaluated.runs / CELLS), evaluated.jobs, evaluated.until
    whole = work_for(evaluated, ImagePipeline(plan.pipeline), fatal=True)
    with watch(f"{what}: whole images", len(entries)) as step:
        records = read_records(run(whole, entries, store, jobs=jobs, progress=step, until=until).of()).records
    (setup,) = whole.setups()
    columns = []
    for family in plan.defence.families:
        depends: dict[str, Any] = {
            "score": plan.defence.score,
            "where": plan.defence.where,
            "facts": setup.facts,
        }
        work = MaskWork(model, plan.pipeline, family, **depends)
        with watch(f"{what}: {family}", len(entries)) as step:
            columns.append(run(work, entries, store, jobs=jobs, progress=step, until=until).read())
    seen, failed = [], []
    for record, *cells in zip(records, *columns, strict=False):
        reason = next((cell["failed"] for cell in cells if "failed" in cell), "")
        if isinstance(record, FailedImage) or reason:
            failed.append(record if isinstance(record, FailedImage) else FailedImage(record.name, reason))
        elif isinstance(record, DetectionRecord):
            one = SeenImage(record, join_families([MaskedImage.from_cell(cell) for cell in cells]))
            if plan.threat == "scene" and one.masked.encoding is None:
                failed.append(
                    FailedImage(record.name, "how far its lossy format spreads a patch is not known")
                )
            else:
                seen.append(one)
    if failed and (evaluated.strict or not seen):
        raise DataError(str(failed[0]))
    return seen, tuple(failed)


def wrapped(one: SeenImage, defence: MaskDefence) -> DetectionRecord:
    """The record of the wrapped detector on an image without a patch."""
    combined = defence.combine(one.record.detections, one.masked.detections)
    return dataclasses.replace(one.record, detections=combined)


def added_boxes(one: SeenImage, defence: MaskDefence, alignment: Alignment) -> tuple[int, int]:
    """How many boxes the defence adds to an image, and how many of them match no object of their class."""
    record, count = wrapped(one, defence), len(one.record.detections)
    boxes = record.detections.take(slice(count, None))
    (own,) = realign([dataclasses.replace(record, detections=boxes)], alignment)
    if not isinstance(own, DetectionRecord) or not len(own.detections):
        return 0, 0
    truth = own.truth
    same = own.detections.classes[:, None] == truth.classes[None, :]
    overlap = iou(own.detections.boxes, truth.xyxy, crowd=truth.crowd)
    return len(own.detections), int((~(same & (overlap >= SAME)).any(axis=1)).sum())


def calibrated(plan: CertifyPlan, seen: Sequence[SeenImage], alignment: Alignment, source: str) -> Thresholds:
    """The lowest α from which on the added false boxes per image stay within the limit."""
    best, rate = GRID[-1], 0.0
    for alpha in reversed(GRID):
        defence = dataclasses.replace(plan.defence, alpha=alpha)
        false = sum(added_boxes(one, defence, alignment)[1] for one in seen) / len(seen)
        if false > plan.limit:
            break
        best, rate = alpha, false
    return Thresholds(best, plan.limit, len(seen), rate, source)


def certificates(
    one: SeenImage, defence: MaskDefence, alignment: Alignment, plan: CertifyPlan
) -> ImageCertificate:
    """The certificate of every object of an image, except crowds and objects marked difficult."""
    model, size = plan.plan.model, one.record.size
    frame, resize = frame_for(size, model.card, plan.pipeline), str(plan.pipeline.resize)
    encoding = one.masked.encoding or Encoding()
    spread = spread_of(plan.threat, defence.where, size, frame, encoding, resize)
    counted = one.masked.above(defence.mask_score)
    places = alignment.of_model[counted.detections.classes]
    keep = places >= 0
    detections = counted.detections.take(keep)
    detections = Detections(detections.boxes, detections.scores, places[keep])
    truth = _objects(one.record, alignment)
    gains = gains_of(
        truth.xyxy, truth.classes, detections, counted.mask[keep],
        count=len(counted.masks), share=defence.prune,
    )  # fmt: skip
    boxes = frame.to_network(truth.xyxy) if plan.threat == "input" else truth.xyxy
    objects = tuple(
        ObjectCertificate(alignment.names[label], tuple(box), area, tuple(own), tuple(every))
        for label, box, area, own, every in zip(
            truth.classes.tolist(), boxes.tolist(), truth.areas.tolist(), *(g.tolist() for g in gains),
            strict=True,
        )
    )  # fmt: skip
    masks = tuple(map(tuple, spread.effective(counted.masks).tolist()))
    return ImageCertificate(printable(one.record.name), spread.size, masks, objects)


def _objects(record: DetectionRecord, alignment: Alignment) -> Boxes:
    """The true boxes that are certified: of evaluated classes, no crowds, not difficult, not empty."""
    (own,) = realign([record], alignment)
    truth = own.truth if isinstance(own, DetectionRecord) else record.truth
    keep = ~truth.crowd & ~truth.difficult & ((truth.xyxy[:, 2:] > truth.xyxy[:, :2]).all(axis=1))
    return Boxes(truth.xyxy[keep], truth.classes[keep], areas=truth.areas[keep])


def clean_effect(seen: Sequence[SeenImage], defence: MaskDefence, alignment: Alignment) -> CleanEffect:
    """AP, recall and added boxes with and without the defence, on images without a patch."""
    sides = [[one.record for one in seen], [wrapped(one, defence) for one in seen]]
    settings = Settings(RULES["voc"], iou=SAME)
    runs = [ScoredRun(realign(s, alignment), "detect", alignment.names, settings) for s in sides]
    lost = compare(*runs)
    span = lost.points_lost
    boxes = np.array([added_boxes(one, defence, alignment) for one in seen], np.int64).reshape(-1, 2)
    found = [_found(side.records, alignment, defence.score) for side in runs]
    ends = (span.estimate, span.low, span.high)
    before, after, points, low, high = (_number(value) for value in (lost.before, lost.after, *ends))
    return CleanEffect(
        images=len(seen), objects=found[0][1], vanilla=before, wrapped=after,
        points_lost=points, low=low, high=high,
        recall=_share(*found[0]), wrapped_recall=_share(*found[1]),
        added=float(boxes[:, 0].mean()), added_false=float(boxes[:, 1].mean()),
    )  # fmt: skip


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def _found(records: Sequence[Record], alignment: Alignment, score: float) -> tuple[int, int]:
    """How many objects have a detection of their class above the score with IoU ≥ 0.5, and of how many."""
    found = total = 0
    same_classes = dataclasses.replace(alignment, of_data=np.arange(len(alignment.names)))
    for record in records:
        if not isinstance(record, DetectionRecord):
            continue
        truth = _objects(record, dataclasses.replace(same_classes, of_model=same_classes.of_data))
        above = record.detections.take(record.detections.scores > score)
        same = truth.classes[:, None] == above.classes[None, :]
        found += int((same & (iou(truth.xyxy, above.boxes) >= SAME)).any(axis=1).sum())
        total += len(truth)
    return found, total


def _share(part: int, of: int) -> float | None:
    return part / of if of else None


def recall_rows(images: Sequence[ImageCertificate], plan: CertifyPlan) -> list[CertifiedRecall]:
    """The certified recall for the patch that is asked for, by object size too, and for the others."""
    rows = []
    for patch in dict.fromkeys((plan.patch, *PATCHES)):
        overlaps = dict.fromkeys((plan.overlap, *OVERLAPS))
        for overlap in overlaps:
            for matched in (True, False):
                rows += certified_recall(images, patch, overlap, matched=matched)
        if patch == plan.patch:
            for objects in AREAS:
                rows += certified_recall(images, patch, plan.overlap, matched=True, objects=objects)
    return rows


def _about(
    plan: CertifyPlan, defence: MaskDefence, alignment: Alignment, seen: Sequence[SeenImage], seconds: float
) -> dict[str, object]:
    model, data = plan.plan.model, plan.plan.dataset
    return {
        "command": plan.plan.command,
        "created": now(),
        "seconds": round(seconds, 3),
        "model": {"name": model.name, "path": str(model.path), "sha256": model.sha256},
        "data": {"name": data.name, "images": len(seen), "source": dict(data.source)},
        "classes": list(alignment.names),
        "note": alignment.note,
        "pipeline": plan.pipeline.describe(),
        "patch": str(plan.patch),
        "overlap": plan.overlap,
        "threat": plan.threat,
        "masks": defence.where,
        "score": defence.score,
        "defence": str(defence),
        "families": [str(family) for family in defence.families],
        "mask_score": defence.mask_score,
        "grey": GREY,
        "passes": round(float(np.mean([len(one.masked.masks) + 1 for one in seen])), 1),
        "seconds_per_image": round(float(np.mean([one.masked.seconds for one in seen])), 3),
        "versions": versions(),
    }
