"""What is kept of one image: its record, from the truth and the prediction."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from holdfast.core.errors import ImageError, InputError
from holdfast.core.types import (
    Boxes,
    Detections,
    Floats,
    Ints,
    Label,
    LabelMap,
    MaskFile,
    Prediction,
    Sample,
    Scores,
    Size,
)
from holdfast.engine.records import Counted, Found, Ranked, Record, sampled
from holdfast.metrics.classification import pixel_confusion

TOP = 5  # classes kept of a classifier's answer


def record_of(sample: Sample, size: Size, prediction: Prediction, classes: int, ignore: int | None) -> Record:
    """The record of one image of that size; InputError if truth and prediction are not of one kind."""
    truth: Any = sample.truth
    if isinstance(truth, Boxes) and isinstance(prediction, Detections):
        return Found(sample.name, size, truth, prediction)
    if isinstance(truth, Label) and isinstance(prediction, Scores):
        top = first_of(prediction.values, TOP)
        return Ranked(sample.name, size, truth.index, top, prediction.values[top])
    if isinstance(truth, MaskFile) and isinstance(prediction, LabelMap):
        confusion = _confusion(truth, size, prediction, classes, ignore)
        return Counted(sample.name, size, confusion, sampled(prediction.classes))
    got, has = type(prediction).__name__, type(truth).__name__
    raise InputError(f"the model gives {got}, the data has {has}")


def first_of(values: Floats, count: int) -> Ints:
    """The places of the highest values, highest first, of equals the first one first."""
    if len(values) <= count:
        return np.argsort(-values, kind="stable")
    candidates = np.flatnonzero(values >= np.partition(values, -count)[-count])
    return np.asarray(candidates[np.argsort(-values[candidates], kind="stable")[:count]])


def _confusion(truth: MaskFile, size: Size, prediction: LabelMap, classes: int, ignore: int | None) -> Ints:
    mask = read_mask(truth.data)
    if mask.shape != prediction.classes.shape:
        raise ImageError(
            f"its mask is {mask.shape[1]}×{mask.shape[0]} pixels, the image {size.width}×{size.height}"
        )
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
        raise ImageError(f"its mask has colours; expected class ids in one channel, got mode {picture.mode}")
    return mask.astype(np.int64)
