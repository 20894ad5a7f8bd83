"""Folders of images without labels, and how far the predictions of deployment and training agree on them."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from holdfast.core.dataset import Dataset
from holdfast.core.errors import InputError
from holdfast.core.fingerprint import generator, of_bytes
from holdfast.core.model import Model, Task
from holdfast.core.types import Boxes, Detections, Label, MaskFile, Sample, Truth
from holdfast.data.entries import read_image_file
from holdfast.data.files import is_image
from holdfast.data.images import sniff
from holdfast.data.open import recognise
from holdfast.diagnose.losses import DEPLOY, run_sides
from holdfast.engine.records import ClassificationRecord, DetectionRecord, Record, SegmentationRecord
from holdfast.evaluate.difference import ScoredRun, changes, matched_pairs
from holdfast.metrics.boxes import iou
from holdfast.metrics.intervals import SHARE, interval_of, mean_values
from holdfast.noise.suite import Watch
from holdfast.noise.vision.run import PreparedNoise
from holdfast.noise.vision.sweep import CLEAN
from holdfast.stages.families import NoiseOption

FORMAT = "unlabelled"
IGNORED = 255  # value of every pixel of the empty masks
MEASURES = {
    "classify": "images with the same top-1 class",
    "detect": "Σ IoU · lower score of matched detections / Σ higher score of all",
    "single": "Σ IoU · lower score of matched detections / Σ higher score of all",
    "segment": "points of the label grid with the same class",
}


@dataclass(frozen=True)
class UnlabelledImage:
    """An image file without a label, for a model of that task."""

    name: str
    path: str
    task: Task

    def key(self) -> str:
        """The hash of the file's bytes and of the task."""
        return of_bytes(f"{of_bytes(read_image_file(self.path))}|{FORMAT}:{self.task}".encode())

    def load(self) -> Sample:
        """The encoded bytes and a placeholder; raise ImageError if the file cannot be read."""
        data = read_image_file(self.path)
        return Sample(self.name, data, _placeholder(self.task, self.name, data))


def _placeholder(task: Task, name: str, data: bytes) -> Truth:
    """A truth that records accept and that no number of an agreement depends on."""
    if task == "classify":
        return Label(0)
    if task == "detect":
        return Boxes(np.zeros((0, 4)), np.zeros(0, np.int64))
    size = sniff(data, name).size
    if task == "single":
        return Boxes(np.array([[0.0, 0.0, *size]]), np.zeros(1, np.int64))
    from PIL import Image as Pillow

    mask = io.BytesIO()
    Pillow.new("L", size, IGNORED).save(mask, "PNG")
    return MaskFile(mask.getvalue())


def open_unlabelled(path: Path, model: Model, images: int | None = None) -> Dataset | None:
    """The images of a folder without labels for the model's task; None if the path is something else."""
    task = model.card.task
    tasks = ("detect", "single") if task in ("detect", "single") else (task,)
    if not path.is_dir() or any(reader.facts["task"] in tasks for reader, _ in recognise(path)):
        return None
    files = [file for file in sorted(path.rglob("*")) if is_image(file.name) and file.is_file()]
    if not files:
        return None
    names = [file.relative_to(path).as_posix() for file in files]
    entries = tuple(UnlabelledImage(n, str(f.resolve()), task) for n, f in zip(names, files, strict=True))
    dataset = Dataset(path.name, FORMAT, task, model.card.classes, entries, ignore_index=IGNORED)
    return dataset.first(images)


@dataclass(frozen=True)
class DifferenceAgreement:
    """The agreement with training if only this differs, and that of the deployment if only this is fixed."""

    label: str
    alone: float
    low: float
    high: float
    fixed: float
    fixed_low: float
    fixed_high: float
    changed: int
    note: str = ""


@dataclass(frozen=True)
class DeploymentAgreement:
    """The agreement of the predictions of deployment and training, 0 to 1, as a mean over the images."""

    task: str
    images: int
    agreement: float
    low: float
    high: float
    changed: int
    differences: tuple[DifferenceAgreement, ...]
    moved: tuple[str, ...]  # images whose predictions changed, the lowest agreement first


def measure_agreement(
    prepared: PreparedNoise, chosen: Sequence[NoiseOption], watch: Watch
) -> DeploymentAgreement:
    """How far the predictions of the deployment, and of each of its differences, agree with training."""
    sides, notes = run_sides(prepared, chosen, watch)
    train, replicates = sides[CLEAN], prepared.noise.replicates
    values = {role: agreements(train, side) for role, side in sides.items()}

    def mean(role: str) -> tuple[float, float, float]:
        rng = generator(0, "agreement")
        means = mean_values(np.array([*values[role].values()]), rng, replicates=replicates)
        found = interval_of(means, within=SHARE)
        return found.estimate, found.low, found.high

    rows = []
    for label in (option.label for option in chosen):
        alone, fixed = f"alone {label}", f"without {label}"
        changed = len(_changed(train, sides[alone]))
        rows.append(DifferenceAgreement(label, *mean(alone), *mean(fixed), changed, notes.get(label, "")))
    changed_names = _changed(train, sides[DEPLOY])
    moved = sorted(changed_names, key=lambda name: (values[DEPLOY][name], name))
    whole, low, high = mean(DEPLOY)
    return DeploymentAgreement(
        task=train.task,
        images=len(values[DEPLOY]),
        agreement=whole,
        low=low,
        high=high,
        changed=len(moved),
        differences=tuple(rows),
        moved=tuple(moved),
    )


def agreements(before: ScoredRun, after: ScoredRun) -> dict[str, float]:
    """The agreement of the two predictions of every common image."""
    known = {record.name: record for record in before.records}
    pairs = [(known[record.name], record) for record in after.records if record.name in known]
    if not pairs:
        raise InputError("expected images that ran in both pipelines, got none")
    return {one.name: agreement(one, other) for one, other in pairs}


def agreement(one: Record, other: Record) -> float:
    """How far two predictions of one image agree, 0 to 1: see MEASURES."""
    if isinstance(one, ClassificationRecord) and isinstance(other, ClassificationRecord):
        return float(one.best == other.best)
    if isinstance(one, SegmentationRecord) and isinstance(other, SegmentationRecord):
        return float((one.grid == other.grid).mean())
    if isinstance(one, DetectionRecord) and isinstance(other, DetectionRecord):
        return weighted_overlap(one.detections, other.detections)
    raise InputError(f"{one.name}: expected two predictions of one task")


def weighted_overlap(one: Detections, other: Detections) -> float:
    """Σ IoU · lower score of matched pairs over Σ higher score of all; weak detections count little."""
    pairs = np.array(matched_pairs(one, other), np.int64).reshape(-1, 2)
    a, b = pairs.T
    first, second = one.scores[a], other.scores[b]
    overlap = iou(one.boxes[a], other.boxes[b]).diagonal()
    total = float(one.scores.sum() + other.scores.sum() - np.minimum(first, second).sum())
    return float((overlap * np.minimum(first, second)).sum()) / total if total > 0.0 else 1.0


def _changed(before: ScoredRun, after: ScoredRun) -> list[str]:
    """The names of the images whose prediction changed."""
    known = {record.name: record for record in before.records}
    return [
        record.name
        for record in after.records
        if record.name in known and changes([known[record.name]], [record], after.task, after.settings).images
    ]
