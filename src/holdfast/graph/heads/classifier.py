"""Classifier: one score per class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from holdfast.core.model import Card
from holdfast.core.registry import stage
from holdfast.core.types import Scores, Tensor
from holdfast.graph.candidates import softmax
from holdfast.graph.outputs import one_image, options_of, single, wrong


@dataclass(frozen=True)
class Options:
    """What a card may say of a classifier's output."""

    outputs: tuple[str, ...] = ()
    activation: Literal["none", "softmax"] = "none"  # applied to what the network gives
    skip: int = 0  # leading outputs that are no class, e.g. 1 for a background


@stage("head", task="classify", nms=False, options=Options)
def classifier(raw: Mapping[str, Tensor], card: Card) -> Scores:
    """One score per class from an output (1, k) or (1, k, 1, 1)."""
    chosen = options_of(Options, card)
    name, value = single(raw, chosen.outputs, card)
    scores = one_image(name, value, card).reshape(-1)[chosen.skip :]
    if len(scores) != len(card.classes):
        raise wrong(
            card,
            f"output {name!r} {value.shape}: expected one score for each of the card's "
            f"{len(card.classes)} classes, got {len(scores)}; "
            "correct `classes` in the card (or `skip` for a background output)",
        )
    return Scores(softmax(scores) if chosen.activation == "softmax" else scores)
