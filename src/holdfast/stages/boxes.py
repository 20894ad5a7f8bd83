"""What deployed systems do otherwise with boxes: options of one post-processing, which can be combined."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.core.frame import Frame
from holdfast.core.model import Card
from holdfast.core.registry import stage
from holdfast.core.types import Prediction, Tensor
from holdfast.stages.post import Rounding, finish


@dataclass(frozen=True)
class Boxes:
    """A post-processing with some choices made otherwise; with none of them it is the card's."""

    nms_strict: bool = True  # suppress at IoU > threshold; False: at ≥
    offset: float = 0.0  # the appendix's ALIGNED_FLAG.offset: right and bottom are so much smaller
    rounding: Rounding = "none"

    def __call__(self, raw: Mapping[str, Tensor], frame: Frame, card: Card) -> Prediction:
        """The prediction in pixels of the encoded image."""
        return finish(
            raw, frame, card, nms_strict=self.nms_strict, offset=self.offset, rounding=self.rounding
        )


@stage("boxes", paper=True, tasks=("detect",), systems="detectors ported from code with inclusive pixels")
def offset(boxes: Boxes) -> Boxes:
    """x2 = x + w/2 − 1, likewise y2: the appendix's ALIGNED_FLAG.offset = 1."""
    return dataclasses.replace(boxes, offset=1.0)
