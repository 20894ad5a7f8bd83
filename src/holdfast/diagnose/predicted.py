"""The predictions file of a target, the formats in which boxes are written, and what is found in it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from holdfast.core.dataset import Dataset
from holdfast.core.errors import InputError
from holdfast.core.pipeline import Frame
from holdfast.core.types import Detections, Floats, Ints, plain_name
from holdfast.diagnose.cause import Cause
from holdfast.diagnose.no_detections import NoDetections
from holdfast.evaluate.difference import matched_pairs
from holdfast.evaluate.per_image import coco_ids
from holdfast.metrics.boxes import iou

FORMS = ("xywh", "xyxy", "cxcywh", "yxyx")
UNITS = ("pixels", "fractions of the image", "pixels of the network input", "fractions of the network input")


@dataclass(frozen=True)
class Ranked:
    """A mistake and the agreement of the model's predictions with the target's if it is made."""

    cause: Cause
    agreement: float


@dataclass(frozen=True)
class PredictionDiagnosis:
    """Why the predictions of a target differ; the agreement is 1 if every box and score is equal."""

    causes: tuple[Cause, ...]
    explained: bool
    before: float
    after: float
    ranking: tuple[Ranked, ...]
    images: int
    detections: int
    nothing: NoDetections | None = None  # of a target without detections

    @property
    def lines(self) -> list[str]:
        """The sentences of the verdict, one cause per line."""
        if self.nothing is not None:
            return self.nothing.lines
        count = f"{self.detections} detections on {self.images} images"
        lines = [cause.text for cause in self.causes]
        if self.causes:
            lines.append(
                f"With this, the agreement of boxes and scores rises from {self.before:.3f} to "
                f"{self.after:.3f} ({count})."
            )
        elif self.explained:
            lines.append(f"The predictions agree with the model's: {self.after:.3f} of 1 ({count}).")
        if not self.explained:
            lines.append(
                f"The predictions are not explained: the best agreement is {self.after:.3f} of 1 ({count}). "
                "A dump of the target's input (--input) shows more."
            )
        return lines

    @property
    def verdict(self) -> str:
        """The causes, and how far they reproduce the predictions."""
        return " ".join(self.lines)

    def to_dict(self) -> dict[str, Any]:
        """The diagnosis as plain values."""
        return {**asdict(self), "verdict": self.verdict}


@dataclass(frozen=True)
class FileDetections:
    """The detections of one image as a target wrote them: four numbers each, scores and category ids."""

    numbers: Floats
    scores: Floats
    categories: Ints


def read_predictions(path: Path, dataset: Dataset) -> dict[str, FileDetections]:
    """The detections by image name, of COCO results or of `evaluate --predictions-out`."""
    rows = _rows(path)
    if not rows:  # a target that detects nothing
        return {entry.name: _detections([], path) for entry in dataset.entries}
    numbers = {number: name for name, number in coco_ids(dataset).images.items()}
    alone = dataset.entries[0].name if len(dataset.entries) == 1 else None
    grouped: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        name = row.get("file_name") or numbers.get(row.get("image_id", -1)) or alone
        if name is not None:
            grouped.setdefault(str(name), []).append(row)
    known = {entry.name for entry in dataset.entries}
    if not known & set(grouped):
        raise InputError(
            f"{path}: expected detections of the images of {dataset.name}, got those of {len(grouped)} "
            "others; image_id must be the id of the COCO file, or file_name the name of the image"
        )
    return {name: _detections(group, path) for name, group in grouped.items() if name in known}


def category_classes(path: Path, dataset: Dataset, classes: Sequence[str]) -> dict[int, int]:
    """The model's class that each category id of the file should stand for, by name where names exist."""
    places = {plain_name(name): place for place, name in enumerate(classes)}
    ids = coco_ids(dataset).classes
    known = {number: places[name] for name, number in ids.items() if name in places}
    for row in _rows(path):
        name = plain_name(str(row.get("category", "")))
        if name in places:
            known[row["category_id"]] = places[name]
    return known or {place + 1: place for place in range(len(classes))}


def _rows(path: Path) -> list[Mapping[str, Any]]:
    """The rows of the file; InputError if it is not a list of detections."""
    try:
        content = orjson.loads(path.read_bytes())
    except OSError as problem:
        raise InputError(f"{path}: cannot be read: {problem.strerror or problem}") from problem
    except orjson.JSONDecodeError as problem:
        raise InputError(f"{path}: expected COCO results (JSON), got: {problem}") from problem
    if isinstance(content, dict):
        content = content.get("annotations", content.get("detections"))
    if not isinstance(content, list) or not all(isinstance(row, dict) for row in content):
        raise InputError(f"{path}: expected a list of detections with image_id, category_id, bbox and score")
    return content


def _detections(rows: Sequence[Mapping[str, Any]], path: Path) -> FileDetections:
    try:
        numbers = np.array([row["bbox"] for row in rows], np.float64).reshape(len(rows), 4)
        scores = np.array([row["score"] for row in rows], np.float64)
        categories = np.array([row["category_id"] for row in rows], np.int64)
    except (KeyError, TypeError, ValueError) as problem:
        raise InputError(
            f"{path}: expected bbox (4 numbers), score and category_id, got: {problem}"
        ) from problem
    if not (np.isfinite(numbers).all() and np.isfinite(scores).all()):
        raise InputError(f"{path}: expected finite boxes and scores")
    return FileDetections(numbers, scores, categories)


def as_xyxy(numbers: Floats, form: str) -> Floats:
    """Boxes (n, 4) as corners x1 y1 x2 y2."""
    a, b, c, d = numbers.T if len(numbers) else np.zeros((4, 0))
    if form == "xyxy":
        return np.stack([a, b, c, d], axis=1)
    if form == "yxyx":
        return np.stack([b, a, d, c], axis=1)
    if form == "cxcywh":
        return np.stack([a - c / 2, b - d / 2, a + c / 2, b + d / 2], axis=1)
    return np.stack([a, b, a + c, b + d], axis=1)


def in_image(boxes: Floats, unit: str, frame: Frame) -> Floats:
    """Boxes of any unit in pixels of the image."""
    if unit == UNITS[1]:
        return np.asarray(boxes * np.array([*frame.original, *frame.original], np.float64))
    if unit == UNITS[2]:
        return frame.to_original(boxes)
    if unit == UNITS[3]:
        return frame.to_original(boxes * np.array([*frame.network, *frame.network], np.float64))
    return boxes


def agreement(one: Detections, other: Detections, scale: float = 1.0) -> float:
    """Agreement of two sets of detections, 0 to 1: IoU · (1 − |Δscore|) of the pairs, over the larger set.

    Differences of scores are measured in `scale` and count at most 1.
    """
    if not len(one) and not len(other):
        return 1.0
    pairs = matched_pairs(one, other)
    if not pairs:
        return 0.0
    a, b = (np.array(side) for side in zip(*pairs, strict=True))
    overlap = iou(one.boxes[a], other.boxes[b])[np.arange(len(a)), np.arange(len(a))]
    close = 1 - np.minimum(1.0, np.abs(one.scores[a] - other.scores[b]) / scale)
    return float((overlap * close).sum()) / max(len(one), len(other))
