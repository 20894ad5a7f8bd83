"""Whether a card fits its model, before the first image is run."""

from __future__ import annotations

import dataclasses

import numpy as np

from holdfast.core.errors import CardError, ModelError
from holdfast.core.model import Card
from holdfast.core.registry import lookup
from holdfast.graph.inspect import ModelInfo, TensorInfo

QUIET = -30.0  # as a logit it is no object; as a probability it is below every threshold


def image_input(info: ModelInfo) -> TensorInfo:
    """The one input of a model, which takes an image: four axes, or three of which one is the 3 channels."""
    if len(info.inputs) == 1:
        shape = info.inputs[0].shape
        if len(shape) == 4 or (len(shape) == 3 and 3 in (shape[0], shape[2])):
            return info.inputs[0]
    seen = ", ".join(str(t) for t in info.inputs) or "none"
    raise ModelError(
        f"{info.path}: expected one input that takes an image, of four axes or of three without a batch, "
        f"got {seen}"
    )


def check_card(card: Card, info: ModelInfo) -> None:
    """Raise a CardError naming the model if input or outputs cannot be as the card says."""
    _check_input(card, info)
    if not all(t.static for t in info.outputs):
        return  # free shapes: the head checks what really comes out
    # The head itself knows best what it needs: it is shown outputs of these shapes in which nothing is found.
    raw = {
        t.name: np.full(
            [1, *(int(d) for d in t.shape[1:])], 0 if np.dtype(t.dtype).kind in "iub" else QUIET, t.dtype
        )
        for t in info.outputs
        if t.shape and t.dtype != "unknown"
    }
    try:
        lookup("head", card.head.name)(raw, dataclasses.replace(card, score=1.0))
    except CardError as problem:
        raise CardError(f"{info.path}: {problem}") from None


def _check_input(card: Card, info: ModelInfo) -> None:
    tensor = image_input(info)
    width, height = card.input.size
    wanted = (3, height, width) if card.input.layout == "nchw" else (height, width, 3)
    got = tensor.shape[-3:]
    if any(isinstance(g, int) and g != w for g, w in zip(got, wanted, strict=True)):
        raise CardError(
            f"{info.path}: the card says an input of (1, {', '.join(map(str, wanted))}) "
            f"({card.input.layout}, {width}×{height}), the model takes {tensor}; correct `size` or `layout`"
        )
    if tensor.dtype != card.input.dtype:
        raise CardError(
            f"{info.path}: the card says input of type {card.input.dtype}, the model takes {tensor}; "
            "correct `dtype`"
        )
