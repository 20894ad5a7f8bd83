"""An evaluation as a dataset of FiftyOne (voxel51.com), which must be installed."""

from pathlib import Path
from typing import Any

import numpy as np

from holdfast.core.dataset import Entry
from holdfast.core.errors import InputError
from holdfast.core.result import optional
from holdfast.data.entries import FileEntry
from holdfast.data.images import sniff
from holdfast.engine.records import ClassificationRecord, DetectionRecord
from holdfast.engine.store import printable, write_atomic
from holdfast.evaluate.result import Evaluation


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
