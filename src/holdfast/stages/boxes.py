"""Differences of deployed systems in the processing of boxes, as options that can be combined.

The order is the paper's (section 3.3 and appendix A): exp of the sides, the offset of the right and lower
side, rounding to whole pixels of the network input, non-maximum suppression, back to the encoded image.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from holdfast.core.model import Card
from holdfast.core.pipeline import Frame
from holdfast.core.registry import part, stage
from holdfast.core.types import Prediction, Tensor
from holdfast.graph.candidates import Exp, clamped_exp, clamped_half_exp, exp_of, half_exp
from holdfast.stages.post import Rounding, finish


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
        return finish(
            raw,
            frame,
            card,
            exp=self.exp,
            offset=(-1.0 if card.head.options.get("offset", 0.0) else 1.0) if self.offset else 0.0,
            rounding=self.rounding,
            nms_strict=not self.nms_inclusive,
            nms_plus_one=self.nms_plus_one,
        )

    @property
    def exp(self) -> Exp | None:
        """The exponential of sides; None: the head's own."""
        if self.exp_half:
            return clamped_half_exp if self.exp_clamp else half_exp
        return clamped_exp if self.exp_clamp else None


def no_effect(option: str, card: Card) -> str:
    """Reason why a box option has no effect on a model with this card; empty if it may have one."""
    reason: Callable[[Card], str] | None = part("boxes", option).facts.get("no_effect")
    return reason(card) if reason else ""


def _without_nms(card: Card) -> str:
    if part("head", card.head.name).facts.get("nms", True):
        return ""
    if card.task == "single":
        return "the model predicts one box per image; there is no NMS"
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


@stage("boxes", tasks=DETECTORS, systems="integer boxes that cover the object; no known product")
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
