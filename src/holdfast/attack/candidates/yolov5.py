"""YOLOv5's candidates with a gradient."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from holdfast.attack.gradient import energy
from holdfast.attack.gradient.outputs import Candidates, constant, from_centres, only
from holdfast.core.model import Card
from holdfast.core.registry import stage
from holdfast.graph.candidates import options_of, wrong
from holdfast.graph.heads.decoded import Yolov5Options


@stage("candidates")
def yolov5(raw: Mapping[str, Tensor], card: Card) -> Candidates:
    """All rows of the output: boxes (b, n, 4), scores and energy (b, n, k)."""
    chosen = options_of(Yolov5Options, card)
    name, rows = only(raw, chosen.outputs, card)
    if rows.ndim != 3 or rows.shape[2] != 5 + len(card.classes):
        width = 5 + len(card.classes)
        raise wrong(card, f"output {name!r} {tuple(rows.shape)}: expected (b, boxes, {width})")
    unit = constant(card.input.size if chosen.normalised else (1.0, 1.0), rows)
    boxes = from_centres(rows[..., :2] * unit, rows[..., 2:4] * unit)
    object_, class_ = rows[..., 4:5], rows[..., 5:]
    return Candidates(boxes, class_ * object_, energy.of_product(object_, class_))
