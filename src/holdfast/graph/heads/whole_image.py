"""Heads with one prediction per image or per pixel: classifier, single object, segmentation."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from holdfast.core.model import Card
from holdfast.core.registry import stage
from holdfast.core.types import Detections, Scores, Tensor
from holdfast.graph import candidates
from holdfast.graph.candidates import named, one_image, options_of, shapes, single, softmax, wrong


@dataclass(frozen=True)
class ClassifierOptions:
    """What a card may say of a classifier's output."""

    outputs: tuple[str, ...] = ()
    activation: Literal["none", "softmax"] = "none"  # applied to what the network gives
    skip: int = 0  # leading outputs that are no class, e.g. 1 for a background


@stage("head", task="classify", nms=False, options=ClassifierOptions)
def classifier(raw: Mapping[str, Tensor], card: Card) -> Scores:
    """One score per class from an output (1, k) or (1, k, 1, 1)."""
    chosen = options_of(ClassifierOptions, card)
    name, value = single(raw, chosen.outputs, card)
    scores = one_image(name, value, card).reshape(-1)[chosen.skip :]
    if len(scores) != len(card.classes):
        expected = f"one score for each of the card's {len(card.classes)} classes, got {len(scores)}"
        advice = "correct `classes` in the card (or `skip` for a background output)"
        raise wrong(card, f"output {name!r} {value.shape}: expected {expected}; {advice}")
    return Scores(softmax(scores) if chosen.activation == "softmax" else scores)


@dataclass(frozen=True)
class LandmarkOptions:
    """What a card may say of the two outputs."""

    outputs: tuple[str, ...] = ()  # box, then scores
    normalised: bool = True  # the box is in parts of the input (0..1), not in pixels
    activation: Literal["softmax", "none"] = "softmax"  # what turns the scores into probabilities


@stage("head", task="single", nms=False, options=LandmarkOptions)
def landmark(raw: Mapping[str, Tensor], card: Card) -> Detections:
    """Exactly one detection from a box (1, 4) xyxy and class scores (1, k)."""
    chosen = options_of(LandmarkOptions, card)
    box, scores = picked(named(raw, chosen.outputs, card), card, bool(chosen.outputs))
    probabilities = softmax(scores) if chosen.activation == "softmax" else scores
    best = int(np.argmax(probabilities))
    unit = np.tile(candidates.pixels(card, chosen.normalised), 2)
    return Detections((box * unit)[None], probabilities[best : best + 1], np.array([best]))


def picked(raw: Mapping[str, Tensor], card: Card, in_order: bool) -> tuple[Tensor, Tensor]:
    """The box (4,) and the scores (k,): by the card's order, by name, or by length."""
    flat = {name: np.asarray(value, np.float64).reshape(-1) for name, value in raw.items()}
    k = len(card.classes)
    if len(flat) == 2:
        (first, a), (second, b) = flat.items()
        swap = len(a) == k != 4 or first == "scores" or second == "box"
        box, scores = (b, a) if swap and not in_order else (a, b)
        if len(box) == 4 and len(scores) == k:
            return box, scores
    expected = f"a box of 4 numbers and scores of the card's {k} classes"
    advice = 'correct `classes`, or name both outputs in the card: outputs = ["box", "scores"]'
    raise wrong(card, f"expected {expected}, got {shapes(raw)}; {advice}")


@dataclass(frozen=True)
class SegmentationOptions:
    """What a card may say of a segmenter's output."""

    outputs: tuple[str, ...] = ()
    layout: Literal["auto", "chw", "hwc"] = "auto"  # auto: the axis as long as there are classes
    single: Literal["logit", "probability"] = "logit"  # one channel for two classes: the score of class 1


@stage("head", task="segment", nms=False, options=SegmentationOptions)
def segmentation(raw: Mapping[str, Tensor], card: Card) -> Tensor:
    """Scores (k, h, w) as float, or a class map (h, w) as integers if the network gives one."""
    chosen = options_of(SegmentationOptions, card)
    name, value = single(raw, chosen.outputs, card)
    result = one_image(name, value, card)
    is_map = result.dtype.kind in "iu"
    result = _class_map(name, result, card) if is_map else _scores(name, value, result, chosen, card)
    # without cells below and right of the input: pools that round up add them, and none moves
    width, height = card.input.size
    return result[..., : _within(height, result.shape[-2]), : _within(width, result.shape[-1])]


def _within(side: int, cells: int) -> int:
    """How many of the cells lie in the input."""
    if side <= cells:
        return side if cells < 2 * side else cells
    stride = candidates.nominal_stride(side, cells)
    return min(cells, -(-side // stride)) if stride else cells


def _scores(name: str, value: Tensor, image: Tensor, chosen: SegmentationOptions, card: Card) -> Tensor:
    """Scores (k, h, w) in whichever layout they come."""
    if image.ndim != 3:
        raise wrong(card, f"output {name!r}: expected (1, classes, height, width), got {value.shape}")
    k = len(card.classes)
    if k == 2 and 1 in (image.shape[0], image.shape[2]):
        plane = image[0] if image.shape[0] == 1 else image[..., 0]
        return np.stack([1 - plane, plane] if chosen.single == "probability" else [0 * plane, plane])
    if chosen.layout != "hwc" and image.shape[0] == k:
        return image
    if chosen.layout != "chw" and image.shape[2] == k:
        return np.ascontiguousarray(image.transpose(2, 0, 1))
    expected = f"one channel for each of the card's {k} classes"
    advice = "correct `classes` (or the option `layout`) in the card"
    raise wrong(card, f"output {name!r} {value.shape}: expected {expected}; {advice}")


def _class_map(name: str, image: Tensor, card: Card) -> Tensor:
    flat = image[0] if image.ndim == 3 and image.shape[0] == 1 else image
    if flat.ndim != 2:
        raise wrong(card, f"output {name!r}: expected a class map (1, height, width), got {image.shape}")
    if flat.size and not 0 <= int(flat.min()) <= int(flat.max()) < len(card.classes):
        expected = f"class ids 0 to {len(card.classes) - 1} as the card names {len(card.classes)} classes"
        got = f"{int(flat.min())} to {int(flat.max())}"
        raise wrong(card, f"output {name!r}: expected {expected}, got {got}; correct `classes`")
    return flat
