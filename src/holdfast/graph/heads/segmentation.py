"""Segmentation: a score per class and pixel, or a class per pixel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from holdfast.core.model import Card
from holdfast.core.registry import stage
from holdfast.core.types import Tensor
from holdfast.graph.candidates import nominal_stride
from holdfast.graph.outputs import one_image, options_of, single, wrong


@dataclass(frozen=True)
class Options:
    """What a card may say of a segmenter's output."""

    outputs: tuple[str, ...] = ()
    layout: Literal["auto", "chw", "hwc"] = "auto"  # auto: the axis as long as there are classes
    single: Literal["logit", "probability"] = "logit"  # one channel for two classes: how class 1 is told


@stage("head", task="segment", nms=False, options=Options)
def segmentation(raw: Mapping[str, Tensor], card: Card) -> Tensor:
    """Scores (k, h, w) as float, or a class map (h, w) as integers if the network gives one."""
    chosen = options_of(Options, card)
    name, value = single(raw, chosen.outputs, card)
    found = one_image(name, value, card)
    if found.dtype.kind in "iu":
        return _inside(_class_map(name, found, card), card)
    return _inside(_scores(name, value, found, chosen, card), card)


def _inside(found: Tensor, card: Card) -> Tensor:
    """The map without cells below and right of the input: pools that round up add them, and none moves."""
    width, height = card.input.size
    return found[..., : _within(height, found.shape[-2]), : _within(width, found.shape[-1])]


def _within(pixels: int, cells: int) -> int:
    """How many of the cells lie in the input."""
    if pixels <= cells:
        return pixels if cells < 2 * pixels else cells
    stride = nominal_stride(pixels, cells)
    return min(cells, -(-pixels // stride)) if stride else cells


def _scores(name: str, value: Tensor, found: Tensor, chosen: Options, card: Card) -> Tensor:
    """Scores (k, h, w) in whichever layout they come."""
    if found.ndim != 3:
        raise wrong(card, f"output {name!r}: expected (1, classes, height, width), got {value.shape}")
    k = len(card.classes)
    if k == 2 and 1 in (found.shape[0], found.shape[2]):
        plane = found[0] if found.shape[0] == 1 else found[..., 0]
        return np.stack([1 - plane, plane] if chosen.single == "probability" else [0 * plane, plane])
    if chosen.layout != "hwc" and found.shape[0] == k:
        return found
    if chosen.layout != "chw" and found.shape[2] == k:
        return np.ascontiguousarray(found.transpose(2, 0, 1))
    raise wrong(
        card,
        f"output {name!r} {value.shape}: expected one channel for each of the card's {k} classes; "
        "correct `classes` (or the option `layout`) in the card",
    )


def _class_map(name: str, found: Tensor, card: Card) -> Tensor:
    flat = found[0] if found.ndim == 3 and found.shape[0] == 1 else found
    if flat.ndim != 2:
        raise wrong(card, f"output {name!r}: expected a class map (1, height, width), got {found.shape}")
    if flat.size and not 0 <= int(flat.min()) <= int(flat.max()) < len(card.classes):
        raise wrong(
            card,
            f"output {name!r}: expected class ids 0 to {len(card.classes) - 1} as the card names "
            f"{len(card.classes)} classes, got {int(flat.min())} to {int(flat.max())}; correct `classes`",
        )
    return flat
