"""Post-processing: raw outputs to a prediction in pixels of the encoded image."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import CardError
from holdfast.core.frame import Frame
from holdfast.core.model import Card
from holdfast.core.registry import part, stage
from holdfast.core.types import Detections, LabelMap, Prediction, Scores, Tensor
from holdfast.graph.nms import nms

Rounding = Literal["none", "floor", "round", "ceil"]


@stage("post", "card")
def by_card(raw: Mapping[str, Tensor], frame: Frame, card: Card) -> Prediction:
    """The prediction by the card's head, thresholds and class-wise NMS (suppress when IoU > nms_iou)."""
    return finish(raw, frame, card)


def finish(
    raw: Mapping[str, Tensor],
    frame: Frame,
    card: Card,
    *,
    nms_strict: bool = True,
    offset: float = 0.0,
    rounding: Rounding = "none",
) -> Prediction:
    """The prediction, with the choices deployed systems make differently as parameters.

    `nms_strict` suppresses at IoU > threshold (else ≥); `offset` is the +1 pixel of box widths in NMS;
    `rounding` is applied to coordinates of the network input.
    """
    head = part("head", card.head.name)
    found = head.function(raw, card)
    if isinstance(found, Scores):
        return found
    if not isinstance(found, Detections):
        return _label_map(np.asarray(found), frame)
    if head.facts.get("nms", True):
        kept = nms(
            found.boxes,
            found.scores,
            found.classes,
            card.nms_iou,
            strict=nms_strict,
            offset=offset,
            max_detections=card.max_detections,
        )
        found = found.take(kept)
    else:
        found = found.take(np.argsort(-found.scores, kind="stable")[: card.max_detections])
    boxes = found.boxes if rounding == "none" else _ROUNDED[rounding](found.boxes)
    return Detections(frame.to_original(boxes), found.scores, found.classes)


_ROUNDED: dict[str, Any] = {"floor": np.floor, "round": np.round, "ceil": np.ceil}


def _label_map(scores: NDArray[Any], frame: Frame) -> LabelMap:
    """A class per pixel of the encoded image, from (k, h, w) scores (bilinear) or an (h, w) map (nearest)."""
    import cv2

    if frame.offset_x < 0 or frame.offset_y < 0:
        raise CardError(
            "segmentation under policy 'crop' does not see the whole image; use stretch or letterbox"
        )
    x, y = frame.offset_x, frame.offset_y
    right, bottom = x + frame.resized.width, y + frame.resized.height
    # Exact: centres aligned as in the linear one; OpenCV's plain nearest shifts by half a pixel.
    how = cv2.INTER_NEAREST_EXACT if scores.ndim == 2 else cv2.INTER_LINEAR

    def shown(channel: NDArray[Any]) -> NDArray[Any]:
        full = cv2.resize(channel.astype(np.float32), tuple(frame.network), interpolation=how)
        return np.asarray(cv2.resize(full[y:bottom, x:right], tuple(frame.original), interpolation=how))

    if scores.ndim == 2:
        return LabelMap(shown(scores).astype(np.uint16))
    best = shown(scores[0])
    classes = np.zeros(best.shape, np.uint16)
    for index in range(1, len(scores)):  # one after the other: all at the image's size may be gigabytes
        channel = shown(scores[index])
        classes[channel > best] = index
        np.maximum(best, channel, out=best)
    return LabelMap(classes)
