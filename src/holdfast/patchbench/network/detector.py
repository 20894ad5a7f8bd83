"""A single-object detector seen from outside: which tensor is its input, its box, its scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.core.errors import CardError, ModelError
from holdfast.core.model import Model
from holdfast.core.registry import part
from holdfast.core.types import Detections, Floats


@dataclass(frozen=True, eq=False)
class Detector:
    """The names of input, box and scores; raw box · `scale` (4,) is the box in parts of the picture."""

    input: str
    box: str
    scores: str
    scale: Floats


def check_single(model: Model) -> None:
    """Nothing if the model finds a single object; CardError otherwise."""
    head = part("head", model.card.head.name)
    if model.card.task != "single" or head.facts.get("task") != "single":
        raise CardError(
            f"{model.path}: expected a detector of a single object (task single, such as signs-single), "
            f"got the task {model.card.task!r} with the head {model.card.head.name!r}"
        )


def detector_of(model: Model, proto: Any) -> Detector:
    """How the detector is read, found by feeding its card's head numbers that tell where they came from."""
    card = model.card
    head = part("head", card.head.name)
    check_single(model)
    weights = {weight.name for weight in proto.graph.initializer}
    inputs = [value for value in proto.graph.input if value.name not in weights]
    if len(inputs) != 1:
        raise ModelError(f"{model.path}: expected one image input, got {len(inputs)}")
    batch = inputs[0].type.tensor_type.shape.dim[0].dim_value
    if batch > 1:
        raise ModelError(f"{model.path}: takes {batch} images at once; export it with a batch of 1")
    names = [value.name for value in proto.graph.output]
    if len(names) != 2:
        raise ModelError(f"{model.path}: expected two outputs, a box and scores, got {len(names)}")
    box, scores, scale = _told_apart(model, names, head.function)
    unit = np.array([*card.input.size, *card.input.size], np.float64)
    return Detector(inputs[0].name, box, scores, scale / unit)


def _told_apart(model: Model, names: list[str], head: Any) -> tuple[str, str, Floats]:
    """The box's name, the scores' name, and what the head multiplies each corner by."""
    corners = np.array([1.0, 2.0, 3.0, 4.0])
    told = None
    for box, scores in (names, names[::-1]):
        raw = {box: corners[None], scores: 100.0 + np.arange(len(model.card.classes))[None]}
        try:  # in the order of the graph: a head may tell them apart by it
            found = head({name: raw[name] for name in names}, model.card)
        except CardError as problem:
            told = told or problem
            continue
        if isinstance(found, Detections) and len(found) == 1:
            scale = found.boxes[0] / corners
            if (scale > 0).all() and scale.max() < 20 * max(model.card.input.size):
                return box, scores, scale
    raise told or CardError(f"{model.path}: the head {model.card.head.name!r} gives no single box")
