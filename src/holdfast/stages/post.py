"""Post-processing: raw outputs to a prediction in pixels of the encoded image."""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import CardError
from holdfast.core.model import Card
from holdfast.core.pipeline import Frame
from holdfast.core.registry import part, stage
from holdfast.core.types import Detections, LabelMap, Prediction, Scores, Size, Tensor
from holdfast.graph.candidates import Exp, exp_of
from holdfast.graph.nms import nms

Rounding = Literal["none", "floor", "nearest", "ceil"]
_ROUNDED: dict[str, Any] = {"floor": np.floor, "nearest": np.rint, "ceil": np.ceil}


@stage("post", "card")
def by_card(raw: Mapping[str, Tensor], frame: Frame, card: Card) -> Prediction:
    """The prediction by the card's head, thresholds and class-wise NMS (suppress when IoU > nms_iou)."""
    return finish(raw, frame, card)


def finish(
    raw: Mapping[str, Tensor],
    frame: Frame,
    card: Card,
    *,
    exp: Exp | None = None,
    offset: float = 0.0,
    rounding: Rounding = "none",
    nms_strict: bool = True,
    nms_plus_one: bool = False,
) -> Prediction:
    """The prediction, with the variations of deployed systems as parameters, in order of application.

    `exp` replaces the head's exponential of sides; `offset` is the difference of ALIGNED_FLAG.offset from the
    card's, in pixels of the network input by which the right and lower side move inwards; `rounding` is that
    of the coordinates in the network input. Then NMS: `nms_strict` suppresses
    at IoU > threshold (else ≥), `nms_plus_one` counts the last pixel of sides (x2 − x1 + 1) in its IoU.
    """
    head = part("head", card.head.name)
    decoded = head.function(raw, card, exp=exp) if exp and exp_of(card) else head.function(raw, card)
    if isinstance(decoded, Scores):
        return decoded
    if not isinstance(decoded, Detections):
        return _label_map(np.asarray(decoded), frame)
    boxes = decoded.boxes
    if offset:
        # A box narrower than the offset would be inverted; it is empty.
        far = np.maximum(boxes[:, 2:] - offset, np.minimum(boxes[:, :2], boxes[:, 2:]))
        boxes = np.concatenate([boxes[:, :2], far], axis=1)
    if rounding != "none":
        boxes = np.asarray(_ROUNDED[rounding](boxes), np.float64)
    decoded = Detections(boxes, decoded.scores, decoded.classes)
    if head.facts.get("nms", True):
        keep = nms(
            decoded.boxes,
            decoded.scores,
            decoded.classes,
            card.nms_iou,
            strict=nms_strict,
            plus=1.0 if nms_plus_one else 0.0,
            max_detections=card.max_detections,
        )
        decoded = decoded.take(keep)
    else:
        decoded = decoded.take(np.argsort(-decoded.scores, kind="stable")[: card.max_detections])
    return Detections(frame.to_original(decoded.boxes), decoded.scores, decoded.classes)


def _label_map(scores: NDArray[Any], frame: Frame) -> LabelMap:
    """A class per pixel of the encoded image, from (k, h, w) scores (bilinear) or an (h, w) map (nearest)."""
    if frame.offset_x < 0 or frame.offset_y < 0:
        hint = "does not see the whole image; use stretch or letterbox"
        raise CardError(f"segmentation under policy 'crop' {hint}")
    x, y = frame.offset_x, frame.offset_y
    right, bottom = x + frame.resized.width, y + frame.resized.height
    resize = _nearest if scores.ndim == 2 else _bilinear

    def resized(channel: NDArray[Any]) -> NDArray[Any]:
        full = resize(channel.astype(np.float32), frame.network)
        return resize(full[y:bottom, x:right], frame.original)

    if scores.ndim == 2:
        return LabelMap(resized(scores).astype(np.uint16))
    best = resized(scores[0])
    classes = np.zeros(best.shape, np.uint16)
    for index in range(1, len(scores)):  # one by one: all at the size of the image may need gigabytes
        channel = resized(scores[index])
        classes[channel > best] = index
        np.maximum(best, channel, out=best)
    return LabelMap(classes)


def _nearest(values: Tensor, size: Size) -> Tensor:
    """The value of the nearest centre, in(⌊(i + ½) · in/out⌋); of two equally near ones the second."""

    def chosen(source: int, target: int) -> NDArray[np.intp]:
        return (2 * np.arange(target) + 1) * source // (2 * target)

    rows = values[chosen(values.shape[0], size.height)]
    return np.take(rows, chosen(values.shape[1], size.width), axis=1)


def _bilinear(values: Tensor, size: Size) -> Tensor:
    """Bilinear interpolation with aligned centres and repeated edges, as OpenCV's INTER_LINEAR."""

    def neighbours(source: int, target: int) -> tuple[NDArray[np.intp], NDArray[np.intp], Tensor]:
        at = ((np.arange(target) + 0.5) * (source / target) - 0.5).clip(0, source - 1).astype(np.float32)
        low = at.astype(np.intp)
        return low, np.minimum(low + 1, source - 1), at - low.astype(np.float32)

    if values.shape == (size.height, size.width):
        return values
    low, high, part = neighbours(values.shape[1], size.width)
    rows = np.take(values, low, axis=1) * (1 - part) + np.take(values, high, axis=1) * part
    low, high, part = neighbours(values.shape[0], size.height)
    upper, lower = rows[low], rows[high]
    upper *= (1 - part)[:, np.newaxis]
    lower *= part[:, np.newaxis]
    upper += lower
    return np.asarray(upper)
