"""Single object: the output of CCTSDB-YOLO, IoU(predicted box, true box) · [predicted class = true class]."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from holdfast.core.errors import InputError
from holdfast.core.types import Floats
from holdfast.metrics.boxes import area, as_boxes, pair_iou, xyxy_to_xywh


@dataclass(frozen=True, eq=False)
class SingleResult:
    """The output of every image, (n,), in 0 … 1; its mean; and the share of outputs above 0.5."""

    values: Floats
    mean: float
    above_half: float


def single_values(
    boxes: ArrayLike, classes: ArrayLike, true_boxes: ArrayLike, true_classes: ArrayLike
) -> Floats:
    """IoU · equal(class) of each image, (n,); boxes are xyxy, one an image."""
    first, second = as_boxes(boxes, "boxes"), as_boxes(true_boxes, "true_boxes")
    predicted, wanted = np.asarray(classes).reshape(-1), np.asarray(true_classes).reshape(-1)
    sizes = {len(first), len(second), len(predicted), len(wanted)}
    if len(sizes) != 1:
        raise InputError(f"expected one box and one class an image on both sides, got sizes {sorted(sizes)}")
    proper = (area(first) > 0) & (area(second) > 0)  # corners in the wrong order enclose nothing
    return np.where(proper & (predicted == wanted), pair_iou(xyxy_to_xywh(first), xyxy_to_xywh(second)), 0.0)


def single_result(values: Floats) -> SingleResult:
    """The result from the outputs of all images."""
    empty = len(values) == 0
    return SingleResult(
        values=values,
        mean=float("nan") if empty else float(values.mean()),
        above_half=float("nan") if empty else float((values > 0.5).mean()),
    )
