"""Results per image: rows as CSV, detections in the results format of COCO, a dataset of FiftyOne."""

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
from holdfast.core.text import printable
from holdfast.core.types import Floats, Ints, plain_name
from holdfast.data.entries import FileEntry
from holdfast.data.images import sniff
from holdfast.engine.records import ClassificationRecord, DetectionRecord, Record, SegmentationRecord
from holdfast.engine.store import write_atomic
from holdfast.evaluate.options import RecordOptions
from holdfast.evaluate.result import Evaluation
from holdfast.evaluate.score import Settings, score_records
from holdfast.metrics.boxes import xyxy_to_xywh


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
    detections: list[dict[str, Any]] = []
    ids = coco_ids(dataset) if options.predictions_out else None
    for records in sets:
        if options.per_image:
            rows += per_image_rows(records)
        if ids is not None:
            detections += coco_results(records, ids)
    if options.per_image:
        write_atomic(options.per_image, rows_to_csv(rows).encode("utf-8", "replace"), durable=False)
    if options.predictions_out:
        write_json(options.predictions_out, detections)


def check_task(options: RecordOptions, task: Task) -> None:
    """Raise InputError if detections are asked of a model that is no detector."""
    if options.predictions_out and task not in ("detect", "single"):
        raise InputError(f"--predictions-out: COCO results hold detections; the task is {task}")


def per_image_rows(records: RecordSet) -> Iterator[dict[str, Any]]:
    """One row per image: counts at the score and IoU thresholds and the AP of a detector, or the like."""
    classes = records.classes
    for record in records.records:
        result = score_records([record], records.task, classes, records.settings)
        yield {**records.labels, "image": printable(record.name), **_columns(record, result, classes)}


def _columns(record: Record, result: Mapping[str, Any], classes: tuple[str, ...]) -> dict[str, Any]:
    metrics = result["metrics"]
    if isinstance(record, ClassificationRecord):
        best = {"predicted": _best_class(record, classes) or "", "score": record.score}
        return {"truth": classes[record.label], **best, "correct": metrics["top1"]}
    if isinstance(record, SegmentationRecord):
        return {name: metrics[name] for name in ("mIoU", "pixel_accuracy")}
    if "at_score" not in result:  # a single-object detector
        return {"iou_equal": metrics["iou_equal"]}
    counts = result["at_score"]
    wrong = {"false_positives": counts["fp"], "misses": counts["fn"]}
    return {"true_positives": counts["tp"], **wrong, "AP": metrics["mAP" if "mAP" in metrics else "AP"]}


def _best_class(record: ClassificationRecord, classes: tuple[str, ...]) -> str | None:
    return classes[record.best] if 0 <= record.best < len(classes) else None


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


def coco_results(records: RecordSet, ids: CocoIds) -> Iterator[dict[str, Any]]:
    """Every detection as {image_id, category_id, bbox (x, y, width, height), score}.

    Where the data has no ids of its own, the names of the image and the class are added.
    """
    free = itertools.count(max(ids.classes.values(), default=0) + 1)
    known = [ids.classes.get(plain_name(name)) for name in records.classes]
    numbers = [next(free) if number is None else number for number in known]  # an id of 0 is valid
    for record in records.records:
        if not isinstance(record, DetectionRecord):
            continue
        d, name = record.detections, printable(record.name)
        boxes = xyxy_to_xywh(d.boxes).tolist()
        for box, score, category in zip(boxes, d.scores.tolist(), d.classes.tolist(), strict=True):
            names = {} if ids.known else {"file_name": name, "category": records.classes[category]}
            place = {"image_id": ids.images[name], "category_id": numbers[category], "bbox": box}
            yield {**records.labels, **place, "score": score, **names}


def to_fiftyone(evaluation: Evaluation, folder: Path | None = None) -> Any:
    """A FiftyOne dataset: one sample per image, with the fields ground_truth and predictions."""
    if evaluation.dataset is None or evaluation.about.task == "segment":
        raise InputError("to_fiftyone: expected what evaluate() returns for a detector or a classifier")
    fiftyone = optional("fiftyone", "to_fiftyone()")
    entries = {printable(entry.name): entry for entry in evaluation.dataset.entries}
    samples = []
    for record in evaluation.records:
        path = _path(entries[printable(record.name)], folder)
        truth, predicted = _labels(fiftyone, record, evaluation.about.classes)
        samples.append(fiftyone.Sample(filepath=path, ground_truth=truth, predictions=predicted))
    dataset = fiftyone.Dataset()
    dataset.add_samples(samples)
    return dataset


def _labels(fiftyone: Any, record: Record, classes: tuple[str, ...]) -> tuple[Any, Any]:
    if isinstance(record, ClassificationRecord):
        truth = fiftyone.Classification(label=classes[record.label])
        return truth, fiftyone.Classification(label=_best_class(record, classes), confidence=record.score)
    if not isinstance(record, DetectionRecord):
        raise InputError(f"{record.name}: expected a detector's or a classifier's record")

    def boxes(xyxy: Floats, numbers: Ints, scores: Sequence[dict[str, float]]) -> Any:
        """Boxes as (left, top, width, height) relative to the size of the image."""
        relative = (xyxy_to_xywh(xyxy) / np.array([*record.size, *record.size], np.float64)).tolist()
        columns = zip(numbers.tolist(), relative, scores, strict=True)
        return fiftyone.Detections(
            detections=[
                fiftyone.Detection(label=classes[number], bounding_box=box, **score)
                for number, box, score in columns
            ]
        )

    true, d = record.truth, record.detections
    truth = boxes(true.xyxy, true.classes, [{}] * len(true))
    return truth, boxes(d.boxes, d.classes, [{"confidence": score} for score in d.scores.tolist()])


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
