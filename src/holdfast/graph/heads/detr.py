"""Queries of a transformer in two outputs, without NMS: DETR, Deformable DETR, RT-DETR, D-FINE, RF-DETR."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from holdfast.core.model import Card
from holdfast.core.registry import stage
from holdfast.core.types import Detections, Tensor
from holdfast.graph import candidates
from holdfast.graph.candidates import options_of
from holdfast.graph.heads.boxes_scores import BoxesScoresOptions, decoded_pairs


@dataclass(frozen=True)
class DetrOptions(BoxesScoresOptions):
    """Options of a card for boxes (1, queries, 4) and logits (1, queries, k)."""

    form: candidates.Form = "cxcywh"
    normalised: bool = True  # boxes in parts of the input (0..1), not in pixels
    activation: Literal["none", "sigmoid", "softmax"] = "sigmoid"  # softmax: with a class for "no object"


@stage("head", task="detect", nms=False, nms_in_graph=False, options=DetrOptions)
def detr(raw: Mapping[str, Tensor], card: Card) -> Detections:
    """Detections from outputs boxes (1, queries, 4) and logits (1, queries, k)."""
    return decoded_pairs(raw, options_of(DetrOptions, card), card)
