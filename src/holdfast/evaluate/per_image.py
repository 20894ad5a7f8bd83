"""Results per image: one row per image as CSV, and all detections in the results format of COCO."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.config.output import write_json
from holdfast.core.dataset import Dataset, Entry
from holdfast.core.errors import InputError
from holdfast.core.model import Task
from holdfast.core.result import optional, rows_to_csv
from holdfast.core.types import plain_name
from holdfast.data.entries import FileEntry
from holdfast.data.images import sniff
from holdfast.engine.records import ClassificationRecord, DetectionRecord, Record, SegmentationRecord
from holdfast.engine.store import printable, write_atomic
from holdfast.evaluate.options import RecordOptions
from holdfast.evaluate.result import Evaluation
from holdfast.evaluate.score import Settings, score_records


@dataclass(frozen=True)
class RecordSet:
    """The records of one evaluation; `labels` are columns that tell it apart: model, option."""

    records: Sequence[Record] = field(repr=False)
    task: Task
    classes: tuple[str, ...]
    settings: Settings
    labels: Mapping[str, str] = field(default_factory=dict)


def records_of(evaluation: Evaluation, **labels: str) -> RecordSet:
    """The records of a finished evaluation."""
    about = evaluation.about
    settings = Settings.from_plain(about.settings)
    return RecordSet(evaluation.records, about.task, about.classes, settings, labels)


def write_records(options: RecordOptions, sets: Iterable[RecordSet], dataset: Dataset) -> None:
    """Write the files that the options name; `sets` is read once, one set at a time."""
    if not options.predictions_out and not options.per_image:
        return
    rows: list[dict[str, Any]] = []
    found: list[dict[str, Any]] = []
    ids = coco_ids(dataset) if options.predictions_out else None
    for one in sets:
        if options.per_image:
            rows += per_image_rows(one)
        if ids is not None:
            found += coco_results(one, ids)
    if options.per_image:
        write_atomic(options.per_image, rows_to_csv(rows).encode("utf-8", "replace"), durable=False)
    if options.predictions_out:
        write_json(options.predictions_out, found)


def check_task(options: RecordOptions, task: Task) -> None:
    """Raise InputError if detections are asked of a model that is no detector."""
    if options.predictions_out and task not in ("detect", "single"):
        raise InputError(f"--predictions-out: COCO results hold detections; the task is {task}")


def per_image_rows(one: RecordSet) -> Iterator[dict[str, Any]]:
    """One row per image: counts at the score and IoU thresholds and the AP of a detector, or the like."""
    for record in one.records:
        result = score_records([record], one.task, one.classes, one.settings)
        yield {**one.labels, "image": printable(record.name), **_columns(record, result, one.classes)}


def _columns(record: Record, result: Mapping[str, Any], classes: tuple[str, ...]) -> dict[str, Any]:
    metrics = result["metrics"]
    if isinstance(record, ClassificationRecord):
        best = classes[record.best] if 0 <= record.best < len(classes) else ""
        score = float(record.scores[0]) if len(record.scores) else None
        return {"truth": classes[record.label], "predicted": best, "score": score, "correct": metrics["top1"]}
    if isinstance(record, SegmentationRecord):
        return {name: metrics[name] for name in ("mIoU", "pixel_accuracy")}
    if "at_score" not in result:  # a single-object detector
        return {"iou_equal": metrics["iou_equal"]}
    counts = result["at_score"]
    ap = metrics["mAP"] if "mAP" in metrics else metrics["AP"]
    return {
        "true_positives": counts["tp"], "false_positives": counts["fp"], "misses": counts["fn"], "AP": ap,
    }  # fmt: skip


@dataclass(frozen=True)
class CocoIds:
    """Ids of images by name and of classes by name; `known`: they are those of a COCO file."""

    images: Mapping[str, int]
    classes: Mapping[str, int]
    known: bool


def coco_ids(dataset: Dataset) -> CocoIds:
    """The ids of the dataset's COCO file; for other formats, places in the dataset from 1."""
    if dataset.format == "coco" and "data" in dataset.source:
        from holdfast.data.readers.coco import ids_of

        images, classes = ids_of(Path(dataset.source["data"]), dataset.source.get("split"))
        named = {plain_name(name): number for name, number in classes.items()}
        return CocoIds({printable(name): number for name, number in images.items()}, named, True)
    places = {printable(entry.name): place for place, entry in enumerate(dataset.entries, 1)}
    classes = {plain_name(name): place for place, name in enumerate(dataset.classes, 1)}
    return CocoIds(places, classes, False)


def coco_results(one: RecordSet, ids: CocoIds) -> Iterator[dict[str, Any]]:
    """Every detection as {image_id, category_id, bbox (x, y, width, height), score}.

    Where the data has no ids of its own, the names of the image and the class are added.
    """
    free = itertools.count(max(ids.classes.values(), default=0) + 1)
    known = [ids.classes.get(plain_name(name)) for name in one.classes]
    numbers = [next(free) if number is None else number for number in known]  # an id of 0 is valid
    for record in one.records:
        if not isinstance(record, DetectionRecord):
            continue
        found, name = record.detections, printable(record.name)
        columns = zip(found.boxes.tolist(), found.scores.tolist(), found.classes.tolist(), strict=True)
        for (x1, y1, x2, y2), score, category in columns:
            names = {} if ids.known else {"file_name": name, "category": one.classes[category]}
            yield {
                **one.labels,
                "image_id": ids.images[name],
                "category_id": numbers[category],
                "bbox": [x1, y1, x2 - x1, y2 - y1],
                "score": score,
                **names,
            }


def to_fiftyone(evaluation: Evaluation, folder: Path | None = None) -> Any:
    """A FiftyOne dataset: one sample per image, with the fields ground_truth and predictions."""
    if evaluation.dataset is None or evaluation.about.task == "segment":
        raise InputError("to_fiftyone: expected what evaluate() returns for a detector or a classifier")
    fiftyone = optional("fiftyone", "to_fiftyone()")
    entries = {printable(entry.name): entry for entry in evaluation.dataset.entries}
    samples = []
    for record in evaluation.records:
        path = _path(entries[printable(record.name)], folder)
        truth, predicted = _fields(fiftyone, record, evaluation.about.classes)
        samples.append(fiftyone.Sample(filepath=path, ground_truth=truth, predictions=predicted))
    found = fiftyone.Dataset()
    found.add_samples(samples)
    return found


def _fields(fiftyone: Any, record: Any, classes: tuple[str, ...]) -> tuple[Any, Any]:
    """The labels of the ground truth and of the prediction."""
    if isinstance(record, ClassificationRecord):
        best = classes[record.best] if 0 <= record.best < len(classes) else None
        score = float(record.scores[0]) if len(record.scores) else None
        truth = fiftyone.Classification(label=classes[record.label])
        return truth, fiftyone.Classification(label=best, confidence=score)
    if not isinstance(record, DetectionRecord):
        raise InputError(f"{record.name}: expected a detector's or a classifier's record")
    true, found = record.truth, record.detections

    def boxes(xyxy: Any, numbers: Any, **others: Any) -> Any:
        """Boxes as (left, top, width, height) relative to the size of the image."""
        scale = np.array([*record.size, *record.size], np.float64)
        xywh = np.concatenate([xyxy[:, :2], xyxy[:, 2:] - xyxy[:, :2]], axis=1) / scale
        rows = [dict(zip(others, row, strict=True)) for row in zip(*others.values(), strict=True)]
        rows = rows or [{}] * len(xywh)
        return fiftyone.Detections(
            detections=[
                fiftyone.Detection(label=classes[number], bounding_box=box, **extra)
                for number, box, extra in zip(numbers, xywh.tolist(), rows, strict=True)
            ]
        )

    predicted = boxes(found.boxes, found.classes.tolist(), confidence=found.scores.tolist())
    return boxes(true.xyxy, true.classes.tolist()), predicted


def _path(entry: Entry, folder: Path | None) -> str:
    """The file of an image; an image that has none is written into the folder."""
    if isinstance(entry, FileEntry):
        return entry.path
    if folder is None:
        raise InputError("to_fiftyone: the images are not files; give a folder to write them to: folder='…'")
    data = entry.load().data
    path = folder / f"{printable(entry.name).replace('/', '-')}.{sniff(data, entry.name).format.lower()}"
    write_atomic(path, data, durable=False)
    return str(path)
