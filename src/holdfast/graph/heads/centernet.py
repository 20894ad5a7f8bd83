"""CenterNet: objects are the peaks of a heat map per class."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from holdfast.core.model import Card
from holdfast.core.registry import stage
from holdfast.core.types import Detections, Tensor
from holdfast.graph import candidates
from holdfast.graph.candidates import named, one_image, options_of, shapes, wrong


@dataclass(frozen=True)
class CenternetOptions:
    """Options of a card for the maps of CenterNet."""

    outputs: tuple[str, ...] = ()  # heat map, sides and, if the model has it, offset of the centre
    activation: Literal["none", "sigmoid"] = "none"  # of the heat map; none: done in the graph
    sides: Literal["cells", "pixels"] = "cells"  # unit of widths and heights
    peak: int = 3  # a cell is an object if it is the largest of so many cells per side; odd


@stage("head", task="detect", nms=False, nms_in_graph=False, options=CenternetOptions)
def centernet(raw: Mapping[str, Tensor], card: Card) -> Detections:
    """Detections from maps heat (1, k, h, w), width and height (1, 2, h, w) and offset (1, 2, h, w)."""
    chosen = options_of(CenternetOptions, card)
    if chosen.peak < 1 or chosen.peak % 2 == 0:
        raise wrong(card, f"peak: expected an odd number of cells, got {chosen.peak}")
    outputs = named(raw, chosen.outputs, card)
    maps = [one_image(name, value, card) for name, value in outputs.items()]
    in_order = maps if chosen.outputs else sorted(maps, key=lambda m: m.shape[0] != len(card.classes))
    channels = [m.shape[0] for m in in_order if m.ndim == 3 and m.shape[1:] == in_order[0].shape[1:]]
    if channels not in ([len(card.classes), 2], [len(card.classes), 2, 2]) or len(maps) != len(channels):
        expected = f"a heat map (1, {len(card.classes)} classes, h, w), sides (1, 2, h, w), maybe an offset"
        advice = "correct `classes`, or name the outputs in this order: outputs = [...]"
        raise wrong(card, f"expected {expected}, got {shapes(outputs)}; {advice}")
    heat, sides = in_order[:2]
    least = card.score if chosen.activation == "none" else candidates.logit(card.score)
    k, y, x = np.nonzero((heat >= least) & (heat == _neighbourhood(heat, chosen.peak)))
    scores = heat[k, y, x].astype(np.float64)
    scores = scores if chosen.activation == "none" else candidates.sigmoid(scores)
    centres = np.stack([x, y], axis=1).astype(np.float64)
    if len(in_order) == 3:
        centres += in_order[2][:, y, x].T
    stride = np.array(card.input.size, np.float64) / heat.shape[:0:-1]
    size = sides[:, y, x].T.astype(np.float64) * (stride if chosen.sides == "cells" else 1.0)
    return Detections(candidates.from_centres(centres * stride, size), scores, k)


def _neighbourhood(heat: Tensor, peak: int) -> Tensor:
    """The largest value of the peak × peak cells around each cell."""
    reach = peak // 2
    padded = np.pad(heat, ((0, 0), (reach, reach), (reach, reach)), constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (peak, peak), axis=(1, 2))
    return np.asarray(windows.max(axis=(3, 4)))
