"""Post-processing: raw outputs to a prediction in pixels of the encoded image, with options of real systems.

The order of the options is the paper's (section 3.3 and appendix A): exp of the sides, the offset of the
right and lower side, rounding to whole pixels of the network input, NMS, back to the encoded image.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import CardError
from holdfast.core.model import Card
from holdfast.core.pipeline import Frame
from holdfast.core.registry import part, stage
from holdfast.core.types import Detections, LabelMap, Prediction, Scores, Size, Tensor
from holdfast.graph.candidates import Exp, clamped_exp, clamped_half_exp, exp_of, half_exp
from holdfast.graph.nms import nms

Rounding = Literal["none", "floor", "nearest", "ceil"]
_ROUNDED: dict[str, Any] = {"floor": np.floor, "nearest": np.rint, "ceil": np.ceil}


@stage("post", "card")
def by_card(raw: Mapping[str, Tensor], frame: Frame, card: Card) -> Prediction:
    """The prediction by the card's head, thresholds and class-wise NMS (suppress when IoU > nms_iou)."""
    return BoxPostProcessing()(raw, frame, card)


@dataclass(frozen=True)
class BoxPostProcessing:
    """Post-processing with options; without any it is the card's."""

    exp_half: bool = False  # exp of widths and heights in binary16
    exp_clamp: bool = False  # log of widths and heights at most log(1000/16)
    offset: bool = False  # the appendix's ALIGNED_FLAG.offset: 1 where the card has 0, 0 where it has 1
    rounding: Rounding = "none"  # of coordinates in the network input, before NMS
    nms_inclusive: bool = False  # suppress at IoU ≥ threshold, not >
    nms_plus_one: bool = False  # widths x2 − x1 + 1 in the IoU of NMS

    def __call__(self, raw: Mapping[str, Tensor], frame: Frame, card: Card) -> Prediction:
        """The prediction in pixels of the encoded image."""
        if frame.network != card.input.size:  # policy "short-side": the size is that of this image
            card = replace(card, input=replace(card.input, size=frame.network))
        head, exp = part("head", card.head.name), self.exp
        decoded = head.function(raw, card, exp=exp) if exp and exp_of(card) else head.function(raw, card)
        if isinstance(decoded, Scores):
            return decoded
        if not isinstance(decoded, Detections):
            return _label_map(np.asarray(decoded), frame)
        boxes, scores, classes = decoded.boxes, decoded.scores, decoded.classes
        if self.offset:
            offset = -1.0 if card.head.options.get("offset", 0.0) else 1.0
            # A box narrower than the offset would be inverted; it is empty.
            far = np.maximum(boxes[:, 2:] - offset, np.minimum(boxes[:, :2], boxes[:, 2:]))
            boxes = np.concatenate([boxes[:, :2], far], axis=1)
        if self.rounding != "none":
            boxes = np.asarray(_ROUNDED[self.rounding](boxes), np.float64)
        most = card.max_detections
        if head.facts.get("nms", True):
            strict, plus = not self.nms_inclusive, float(self.nms_plus_one)
            keep = nms(boxes, scores, classes, card.nms_iou, strict=strict, plus=plus, max_detections=most)
        else:
            keep = np.argsort(-scores, kind="stable")[:most]
        return Detections(frame.to_original(boxes[keep]), scores[keep], classes[keep])

    @property
    def exp(self) -> Exp | None:
        """The exponential of sides; None: the head's own."""
        if self.exp_half:
            return clamped_half_exp if self.exp_clamp else half_exp
        return clamped_exp if self.exp_clamp else None


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


def no_effect(option: str, card: Card) -> str:
    """Reason why a box option has no effect on a model with this card; empty if it may have one."""
    reason: Callable[[Card], str] | None = part("boxes", option).facts.get("no_effect")
    return reason(card) if reason else ""


def _without_nms(card: Card) -> str:
    if part("head", card.head.name).facts.get("nms", True):
        return ""
    if card.task == "single":
        return "the model predicts one box per image; there is no NMS"
    if not part("head", card.head.name).facts.get("nms_in_graph", True):
        return f"head {card.head.name!r} needs no NMS"
    return f"NMS is part of the graph (head {card.head.name!r}) and cannot be replaced"


def _without_exp(card: Card) -> str:
    if exp_of(card):
        return ""
    return f"head {card.head.name!r} does not decode box sides by exp"


def _clamped(card: Card) -> str:
    if exp_of(card) == "clamped":
        return f"head {card.head.name!r} already clamps at log(1000/16)"
    return _without_exp(card)


DETECTORS = ("detect", "single")


@stage("boxes", paper=True, tasks=DETECTORS, systems="inclusive pixels: Detectron (Caffe2), its ports")
def offset(boxes: BoxPostProcessing) -> BoxPostProcessing:
    """Corner x2 = x + w/2 − 1, likewise y2, in the network input: the appendix's ALIGNED_FLAG.offset = 1."""
    return replace(boxes, offset=True)


@stage("boxes", tasks=DETECTORS, systems="integer boxes by a cast: int(x), astype(int)")
def round_floor(boxes: BoxPostProcessing) -> BoxPostProcessing:
    """Coordinates x → ⌊x⌋ in the network input, before NMS."""
    return replace(boxes, rounding="floor")


@stage("boxes", tasks=DETECTORS, systems="integer boxes by round or rint")
def round_nearest(boxes: BoxPostProcessing) -> BoxPostProcessing:
    """Coordinates x → ⌊x⌉, halves to the even one, in the network input, before NMS."""
    return replace(boxes, rounding="nearest")


@stage(
    "boxes",
    tasks=DETECTORS,
    hypothetical=True,
    systems="integer boxes that cover the object; no known product",
)
def round_ceil(boxes: BoxPostProcessing) -> BoxPostProcessing:
    """Coordinates x → ⌈x⌉ in the network input, before NMS."""
    return replace(boxes, rounding="ceil")


@stage(
    "boxes", tasks=("detect",), no_effect=_without_nms, systems="cpu_nms.pyx of Faster R-CNN and its copies"
)
def nms_inclusive(boxes: BoxPostProcessing) -> BoxPostProcessing:
    """A box is suppressed at IoU ≥ threshold, not only above it."""
    return replace(boxes, nms_inclusive=True)


@stage("boxes", tasks=("detect",), no_effect=_without_nms, systems="py_cpu_nms of Fast R-CNN and its copies")
def nms_plus_one(boxes: BoxPostProcessing) -> BoxPostProcessing:
    """The IoU of NMS counts the last pixel: sides are x2 − x1 + 1 and y2 − y1 + 1."""
    return replace(boxes, nms_plus_one=True)


@stage("boxes", tasks=("detect",), no_effect=_without_exp, systems="heads run in fp16: mobile GPUs, NPUs")
def exp_fp16(boxes: BoxPostProcessing) -> BoxPostProcessing:
    """Sides w = p·exp(t) with t and exp(t) rounded to binary16 (11 bits, at most 65504)."""
    return replace(boxes, exp_half=True)


@stage("boxes", tasks=("detect",), no_effect=_clamped, systems="box coders of Detectron, torchvision, mmdet")
def exp_clamp(boxes: BoxPostProcessing) -> BoxPostProcessing:
    """Sides w = p·exp(min(t, log(1000/16))): the appendix's clamp, where the head has none."""
    return replace(boxes, exp_clamp=True)
