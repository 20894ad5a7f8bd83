"""Classification of images (top-k accuracy) and of pixels (segmentation: intersection over union)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from holdfast.core.errors import InputError
from holdfast.core.types import Floats, Ints


@dataclass(frozen=True, eq=False)
class ClassificationResult:
    """Top-k accuracies."""

    top: dict[int, float]
    per_class: Floats  # (classes,) top-1 accuracy of each class, NaN without images
    images: Ints  # (classes,) how many images it has


def classification_result(
    place: Ints, labels: ArrayLike, classes: int, ks: Sequence[int] = (1, 5)
) -> ClassificationResult:
    """Accuracies from the place of each image's true class (n,), 0 where it is the first choice."""
    truth = np.asarray(labels, dtype=np.int64)
    images = np.bincount(truth, minlength=classes)
    first = np.bincount(truth[place == 0], minlength=classes)
    per_class = np.divide(first, images, out=np.full(classes, np.nan), where=images > 0)
    top = {k: float((place < k).mean()) if len(place) else float("nan") for k in ks}
    return ClassificationResult(top, per_class, images)


@dataclass(frozen=True, eq=False)
class SegmentationResult:
    """IoU of each class, (classes,), NaN for skipped classes; their mean; and the share of correct pixels."""

    mean_iou: float
    iou: Floats
    pixel_accuracy: float


def pixel_confusion(
    truth: NDArray[np.integer], prediction: NDArray[np.integer], classes: int, ignore_index: int | None = None
) -> Ints:
    """Pixels by true class (row) and predicted class (column), (classes, classes).

    Pixels whose *truth* is `ignore_index` are ignored. The tables of several images can be added.
    """
    if truth.shape != prediction.shape:
        shapes = f"truth {truth.shape} and prediction {prediction.shape}"
        raise InputError(f"expected masks of one shape, got {shapes}")
    true, predicted = truth.reshape(-1).astype(np.int64), prediction.reshape(-1).astype(np.int64)
    if ignore_index is not None:
        counted = true != ignore_index
        true, predicted = true[counted], predicted[counted]
    for name, values in (("truth", true), ("prediction", predicted)):
        if len(values) and (values.min() < 0 or values.max() >= classes):
            wrong = values[(values < 0) | (values >= classes)][0]
            raise InputError(f"{name} mask: expected classes 0 to {classes - 1}, got {wrong}")
    return np.bincount(true * classes + predicted, minlength=classes * classes).reshape(classes, classes)


def segmentation_result(confusion: Ints) -> SegmentationResult:
    """IoU = TP / (TP + FP + FN) per class and the mean over the classes that are not skipped.

    A class absent in truth and prediction has no IoU; one that was only predicted counts with IoU 0.
    """
    hit = np.diagonal(confusion)
    union = confusion.sum(axis=1) + confusion.sum(axis=0) - hit
    present = union > 0
    iou = np.divide(hit, union, out=np.full(len(hit), np.nan), where=present)
    total = int(confusion.sum())
    return SegmentationResult(
        mean_iou=float(iou[present].mean()) if present.any() else float("nan"),
        iou=iou,
        pixel_accuracy=int(hit.sum()) / total if total else float("nan"),
    )
