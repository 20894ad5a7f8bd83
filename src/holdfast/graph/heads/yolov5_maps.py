"""Maps of YOLOv5 and YOLOv7 before the decoding of boxes, as exports without the last layer give them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from holdfast.core.model import Card
from holdfast.core.registry import stage
from holdfast.core.types import Detections, Floats, Ints, Tensor
from holdfast.graph import candidates
from holdfast.graph.candidates import above, options_of
from holdfast.graph.heads.grids import OutputScale, Yolov3Options, scales


@dataclass(frozen=True)
class Yolov5MapsOptions(Yolov3Options):
    """Options of a card for YOLOv5 maps; lists have one entry per output."""

    activation: Literal["sigmoid", "none"] = "sigmoid"  # of all values; none: done in the graph


@stage("head", task="detect", nms=True, options=Yolov5MapsOptions)
def yolov5_maps(raw: Mapping[str, Tensor], card: Card) -> Detections:
    """Candidates from maps (1, A, h, w, 5+k), (1, A·(5+k), h, w) or (1, h, w, A·(5+k)), before decoding."""
    chosen = options_of(Yolov5MapsOptions, card)
    parts = [_decode(scale, card, chosen) for scale in scales(raw, chosen, card)]
    boxes, scores, classes = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Detections(boxes, scores, classes)


def _decode(scale: OutputScale, card: Card, chosen: Yolov5MapsOptions) -> tuple[Floats, Floats, Ints]:
    """Boxes, scores and classes of one map; only cells whose objectness reaches the threshold are decoded."""
    squashed = chosen.activation == "none"
    a, y, x = np.nonzero(scale.view[:, 4] >= (card.score if squashed else candidates.logit(card.score)))
    cells = scale.view[a, :, y, x].astype(np.float64)
    cells = cells if squashed else candidates.sigmoid(cells)
    rows, classes, best = above(cells[:, 5:] * cells[:, 4:5], card.score, chosen.multi_label)
    # b_x = (2σ(t_x) − ½ + c_x)·stride, b_w = p_w·(2σ(t_w))²
    centres = (cells[:, :2] * 2.0 - 0.5 + np.stack([x, y], axis=1)) * scale.stride
    boxes = candidates.from_centres(centres, (cells[:, 2:4] * 2.0) ** 2 * scale.anchors[a])
    return boxes[rows], best, classes
