"""Segmentation: pixels of each class taken for each class, and the intersection over union from them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import InputError
from holdfast.core.types import Floats, Ints


@dataclass(frozen=True, eq=False)
class SegmentationResult:
    """IoU of each class, (classes,), NaN where left out; their mean; and the share of right pixels."""

    mean_iou: float
    iou: Floats
    pixel_accuracy: float


def pixel_confusion(
    truth: NDArray[np.integer],
    prediction: NDArray[np.integer],
    classes: int,
    *,
    ignore_index: int | None = None,
) -> Ints:
    """Pixels by true class (row) and predicted class (column), (classes, classes).

    Pixels whose *truth* is `ignore_index` count nowhere. Add the tables of several images.
    """
    if truth.shape != prediction.shape:
        raise InputError(
            f"expected masks of one shape, got truth {truth.shape} and prediction {prediction.shape}"
        )
    true, found = truth.reshape(-1).astype(np.int64), prediction.reshape(-1).astype(np.int64)
    if ignore_index is not None:
        kept = true != ignore_index
        true, found = true[kept], found[kept]
    for name, values in (("truth", true), ("prediction", found)):
        if len(values) and (values.min() < 0 or values.max() >= classes):
            wrong = values[(values < 0) | (values >= classes)][0]
            raise InputError(f"{name} mask: expected classes 0 to {classes - 1}, got {wrong}")
    return np.bincount(true * classes + found, minlength=classes * classes).reshape(classes, classes)


def segmentation_result(confusion: Ints) -> SegmentationResult:
    """IoU = TP / (TP + FP + FN) per class and the mean over classes that are not left out.

    A class absent in truth and prediction has no IoU; one that was only predicted counts with IoU 0.
    """
    hit = np.diagonal(confusion)
    in_truth, predicted = confusion.sum(axis=1), confusion.sum(axis=0)
    union = in_truth + predicted - hit
    shown = union > 0
    iou: Floats = np.full(len(hit), np.nan)
    np.divide(hit, union, out=iou, where=shown)
    total = int(confusion.sum())
    return SegmentationResult(
        mean_iou=float(iou[shown].mean()) if shown.any() else float("nan"),
        iou=iou,
        pixel_accuracy=int(hit.sum()) / total if total else float("nan"),
    )
