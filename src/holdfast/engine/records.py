"""What is kept of one image: truth and prediction, small enough to hold thousands, as JSON and back."""

import base64
import io
import zlib
from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from holdfast.core import types
from holdfast.core.errors import ImageError, InputError
from holdfast.metrics.classification import pixel_confusion

TOP = 5  # classes kept of a classifier's answer
GRID = 64  # points a side at which a segmenter's labels are kept
Grid: TypeAlias = NDArray[np.uint16]


@dataclass(frozen=True)
class DetectionRecord:
    """A detector's image: truth boxes and detections, in pixels of the encoded image."""

    name: str
    size: types.Size
    truth: types.Boxes
    detections: types.Detections


@dataclass(frozen=True, eq=False)
class ClassificationRecord:
    """A classifier's image: the true class and the best classes with their scores, best first."""

    name: str
    size: types.Size
    label: int
    top: types.Ints
    scores: types.Floats

    @property
    def best(self) -> int:
        """The best class; −1 without one."""
        return int(self.top[0]) if len(self.top) else -1

    @property
    def score(self) -> float | None:
        """The score of the best class."""
        return float(self.scores[0]) if len(self.scores) else None


@dataclass(frozen=True, eq=False)
class SegmentationRecord:
    """A segmenter's image: pixels by true class (row) and predicted class (column), without ignored ones.

    `grid` (GRID, GRID) holds the predicted classes at evenly spread points, to tell two predictions apart; it
    is empty in records of a version that kept none.
    """

    name: str
    size: types.Size
    confusion: types.Ints
    grid: Grid = field(default_factory=lambda: np.zeros((0, 0), np.uint16))


def sampled(classes: NDArray[Any]) -> Grid:
    """The label map (h, w) at the centres of GRID × GRID equal cells, by the nearest pixel."""
    y, x = ((2 * np.arange(GRID) + 1) * side // (2 * GRID) for side in classes.shape)
    return np.asarray(classes[np.ix_(y, x)], np.uint16)


@dataclass(frozen=True)
class FailedImage:
    """An image that could not be read, decoded or predicted, and why."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


Record: TypeAlias = DetectionRecord | ClassificationRecord | SegmentationRecord | FailedImage


def to_plain(record: Record) -> dict[str, Any]:
    """The record as JSON values."""
    if isinstance(record, FailedImage):
        return {"failed": record.name, "reason": record.reason}
    common: dict[str, Any] = {"name": record.name, "size": list(record.size)}
    if isinstance(record, DetectionRecord):
        return {**common, "truth": _columns(record.truth), "found": _columns(record.detections)}
    if isinstance(record, ClassificationRecord):
        return {**common, "label": record.label, "top": record.top.tolist(), "scores": record.scores.tolist()}
    packed = zlib.compress(np.ascontiguousarray(record.grid, "<u2").tobytes())
    grid = base64.b64encode(packed).decode("ascii") if record.grid.size else ""
    return {**common, "confusion": record.confusion.tolist(), "grid": grid}


def _columns(boxes: types.Boxes | types.Detections) -> dict[str, Any]:
    return {column.name: getattr(boxes, column.name).tolist() for column in fields(boxes)}


def from_plain(plain: dict[str, Any]) -> Record:
    """The record that `to_plain` wrote."""
    if "failed" in plain:
        return FailedImage(plain["failed"], plain["reason"])
    name, size = plain["name"], types.Size(*plain["size"])
    if "found" in plain:
        return DetectionRecord(name, size, types.Boxes(**plain["truth"]), types.Detections(**plain["found"]))
    if "label" in plain:
        top, scores = np.array(plain["top"], np.int64), np.array(plain["scores"], np.float64)
        return ClassificationRecord(name, size, plain["label"], top, scores)
    confusion = np.array(plain["confusion"], np.int64)
    if not plain.get("grid"):
        return SegmentationRecord(name, size, confusion)
    labels = np.frombuffer(zlib.decompress(base64.b64decode(plain["grid"])), "<u2")
    return SegmentationRecord(name, size, confusion, labels.reshape(GRID, GRID).astype(np.uint16))


def record_of(
    sample: types.Sample, size: types.Size, prediction: types.Prediction, classes: int, ignore: int | None
) -> Record:
    """The record of one image of that size; InputError if truth and prediction are not of one kind."""
    truth: Any = sample.truth
    if isinstance(truth, types.Boxes) and isinstance(prediction, types.Detections):
        return DetectionRecord(sample.name, size, truth, prediction)
    if isinstance(truth, types.Label) and isinstance(prediction, types.Scores):
        top = first_of(prediction.values, TOP)
        return ClassificationRecord(sample.name, size, truth.index, top, prediction.values[top])
    if isinstance(truth, types.MaskFile) and isinstance(prediction, types.LabelMap):
        confusion = _confusion(truth, size, prediction, classes, ignore)
        return SegmentationRecord(sample.name, size, confusion, sampled(prediction.classes))
    got, has = type(prediction).__name__, type(truth).__name__
    raise InputError(f"the model predicts {got}, but the data has {has}")


def first_of(values: types.Floats, count: int) -> types.Ints:
    """The places of the highest values, highest first, of equals the first one first."""
    least = np.partition(values, -count)[-count] if count < len(values) else -np.inf
    places = np.flatnonzero(values >= least)  # few: to sort all of 1000 classes takes ten times as long
    return places[np.argsort(-values[places], kind="stable")][:count]


def _confusion(
    truth: types.MaskFile, size: types.Size, prediction: types.LabelMap, classes: int, ignore: int | None
) -> types.Ints:
    mask = read_mask(truth.data)
    if mask.shape != prediction.classes.shape:
        (height, width), image = mask.shape, f"{size.width}×{size.height}"
        raise ImageError(f"its mask is {width}×{height} pixels, the image {image}")
    counted = mask[mask != ignore] if ignore is not None else mask
    if counted.size and not 0 <= counted.min() <= counted.max() < classes:
        wrong = int(counted.min() if counted.min() < 0 else counted.max())
        raise ImageError(f"its mask has the value {wrong}; expected classes 0 to {classes - 1}")
    return pixel_confusion(mask, prediction.classes, classes, ignore_index=ignore)


def read_mask(data: bytes) -> Any:
    """The class id of every pixel (h, w) of an encoded mask: grey values or palette indices, unscaled."""
    from PIL import Image as Pillow

    # Not OpenCV: it turns a palette (as PASCAL VOC's masks have) into colours.
    try:
        with Pillow.open(io.BytesIO(data)) as picture:
            mask = np.asarray(picture)
    except (OSError, SyntaxError, ValueError, Pillow.DecompressionBombError) as problem:
        raise ImageError(f"its mask cannot be decoded: {problem}") from problem
    if mask.ndim == 3 and (mask[:, :, :3] == mask[:, :, :1]).all():
        mask = mask[:, :, 0]
    if mask.ndim != 2 or mask.dtype.kind not in "biu":
        expected = "expected class ids in one channel"
        raise ImageError(f"its mask is a colour image; {expected}, got mode {picture.mode}")
    return mask.astype(np.int64)
