"""Detectors over grids of cells: YOLOv3 (also tiny, YOLOv4 and Yolo-Fastest), YOLOX, NanoDet, FastestDet."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from holdfast.core.model import Card
from holdfast.core.registry import stage
from holdfast.core.types import Detections, Floats, Ints, Tensor
from holdfast.graph import candidates
from holdfast.graph.candidates import (
    Exp,
    above,
    bounded_exp,
    named,
    one_image,
    options_of,
    shapes,
    single,
    wrong,
)


@dataclass(frozen=True)
class Yolov3Options:
    """Options of a card for YOLOv3 maps; lists have one entry per output."""

    anchors: tuple[tuple[tuple[float, ...], ...], ...]  # per output: [width, height] in input pixels
    outputs: tuple[str, ...] = ()  # without: by stride if those are given, else in the model's order
    strides: tuple[int, ...] = ()  # without: the power of two by which the map is smaller than the input
    scale_xy: tuple[float, ...] = ()  # darknet's scale_x_y per output; without: 1
    multi_label: bool = True  # every class of a box that reaches the threshold, not only its best
    activation: Literal["sigmoid", "none"] = "sigmoid"  # of objectness and classes; none: done in the graph


@dataclass(frozen=True)
class OutputScale:
    """One scale: the output as (A, 5+k, h, w), its anchors (A, 2), stride and scale_x_y."""

    view: Tensor
    anchors: Floats
    stride: float
    scale_xy: float


@stage("head", task="detect", nms=True, options=Yolov3Options, exp=lambda chosen: "plain")
def yolov3(raw: Mapping[str, Tensor], card: Card, exp: Exp = bounded_exp) -> Detections:
    """Candidates from maps (1, A·(5+k), h, w) or (1, h, w, A·(5+k)): per anchor x y w h object classes."""
    chosen = options_of(Yolov3Options, card)
    parts = [_decode(scale, card, chosen, exp) for scale in scales(raw, chosen, card)]
    boxes, scores, classes = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Detections(boxes, scores, classes)


def _decode(scale: OutputScale, card: Card, chosen: Yolov3Options, exp: Exp) -> tuple[Floats, Floats, Ints]:
    """Boxes, scores and classes of one map; only cells whose objectness reaches the threshold are decoded."""
    is_logit = chosen.activation == "sigmoid"
    a, y, x = np.nonzero(scale.view[:, 4] >= (candidates.logit(card.score) if is_logit else card.score))
    cells = scale.view[a, :, y, x].astype(np.float64)
    values = candidates.sigmoid(cells[:, 4:]) if is_logit else cells[:, 4:]
    rows, classes, best = above(values[:, 1:] * values[:, :1], card.score, chosen.multi_label)
    # darknet: b_x = (s·σ(t_x) − (s − 1)/2 + c_x)·stride, b_w = p_w·exp(t_w)
    centres = candidates.sigmoid(cells[:, :2]) * scale.scale_xy - 0.5 * (scale.scale_xy - 1.0)
    centres = (centres + np.stack([x, y], axis=1)) * scale.stride
    boxes = candidates.from_centres(centres, exp(cells[:, 2:4]) * scale.anchors[a])
    return boxes[rows], best, classes


def scales(raw: Mapping[str, Tensor], chosen: Yolov3Options, card: Card) -> list[OutputScale]:
    """The scales in the order in which the card lists anchors."""
    outputs = named(raw, chosen.outputs, card)
    counts = [len(group) for group in chosen.anchors]
    if len(outputs) != len(counts):
        problem = f"the card lists them for {len(counts)} outputs, the model has {len(outputs)}"
        advice = "give one list of [width, height] pairs per output"
        raise wrong(card, f"anchors: {problem}: {shapes(outputs)}; {advice}")
    if any(len(pair) != 2 for group in chosen.anchors for pair in group) or not all(counts):
        raise wrong(card, "anchors: expected [width, height] pairs, at least one per output")
    for name, values in (("strides", chosen.strides), ("scale_xy", chosen.scale_xy)):
        if values and len(values) != len(counts):
            raise wrong(card, f"{name}: expected {len(counts)} numbers, one per output, got {list(values)}")
    order = list(outputs)
    if chosen.strides and not chosen.outputs:
        by_size = sorted(outputs, key=lambda name: -outputs[name].size / counts[order.index(name)])
        order = [by_size[int(i)] for i in np.argsort(np.argsort(chosen.strides))]
    maps = []
    for i, name in enumerate(order):
        view = _view(name, outputs[name], counts[i], card)
        stride = _stride(name, view, chosen.strides[i] if chosen.strides else None, card)
        scale_xy = chosen.scale_xy[i] if chosen.scale_xy else 1.0
        maps.append(OutputScale(view, np.array(chosen.anchors[i], np.float64), stride, scale_xy))
    return maps


def _stride(name: str, view: Tensor, stated: int | None, card: Card) -> float:
    """The stride of a map: the card's if the map's size agrees with it, else the power of two that does."""
    width, height = card.input.size
    rows, columns = view.shape[2:]
    stride = stated or candidates.nominal_stride(width, columns)
    if stride and abs(width / stride - columns) <= 1 and abs(height / stride - rows) <= 1:
        return float(stride)
    which = f"stride {stated}" if stated else "a stride that is a power of two"
    expected = f"expected a map of {which} of the {width}×{height} input, got {columns}×{rows} cells"
    raise wrong(card, f"output {name!r}: {expected}; correct `size` or `strides` in the card")


def _view(name: str, value: Tensor, anchors: int, card: Card) -> Tensor:
    """The output as (A, 5+k, h, w), without a copy."""
    width = 5 + len(card.classes)
    channels = anchors * width
    image = one_image(name, value, card)
    if image.ndim == 3 and image.shape[0] == channels:
        return image.reshape(anchors, width, *image.shape[1:])
    if image.ndim == 3 and image.shape[2] == channels:
        return image.reshape(*image.shape[:2], anchors, width).transpose(2, 3, 0, 1)
    if image.ndim == 4 and (image.shape[0], image.shape[3]) == (anchors, width):
        return image.transpose(0, 3, 1, 2)
    if image.ndim == 4 and image.shape[2:] == (anchors, width):
        return image.transpose(2, 3, 0, 1)
    expected = f"{anchors} anchors × (5 + {len(card.classes)} classes) = {channels} channels"
    advice = "correct `classes` or `anchors` in the card"
    raise wrong(card, f"output {name!r} {value.shape}: expected {expected}; {advice}")


@dataclass(frozen=True)
class YoloxOptions:
    """What a card may say of a YOLOX output."""

    outputs: tuple[str, ...] = ()
    strides: tuple[int, ...] = (8, 16, 32)
    decoded: bool = False  # whether the graph already turned cells into centres and sides in pixels
    activation: Literal["none", "sigmoid"] = "none"  # for objectness and classes; exports mostly apply it
    multi_label: bool = False  # every class of a box that reaches the threshold, not only its best


@stage("head", task="detect", nms=True, options=YoloxOptions, exp=lambda o: "" if o.decoded else "plain")
def yolox(raw: Mapping[str, Tensor], card: Card, exp: Exp = candidates.bounded_exp) -> Detections:
    """Candidates from an output (1, n, 5+k): x y w h objectness classes, cells stride by stride."""
    chosen = options_of(YoloxOptions, card)
    name, rows = candidates.table_rows(raw, chosen.outputs, card, (5, 0), "cells")
    maps = candidates.levels(card.input.size, chosen.strides, len(rows))
    if maps is None and not chosen.decoded:
        width, height = card.input.size
        expected = f"those of strides {list(chosen.strides)} of a {width}×{height} input, in one way"
        problem = f"{len(rows)} cells are not {expected}; correct `size` or `strides`"
        raise wrong(card, f"output {name!r}: {problem}")
    least = card.score if chosen.activation == "none" else candidates.logit(card.score)
    used = np.flatnonzero(rows[:, 4] >= least)
    cells = rows[used].astype(np.float64)
    parts = cells[:, 4:] if chosen.activation == "none" else candidates.sigmoid(cells[:, 4:])
    index, classes, scores = above(parts[:, 1:] * parts[:, :1], card.score, chosen.multi_label)
    centres, sides = cells[index, :2], cells[index, 2:4]
    if maps is not None and not chosen.decoded:
        places, stride = (a[used[index]] for a in candidates.grid(maps, chosen.strides))
        centres = (centres + places) * stride[:, None]
        sides = exp(sides) * stride[:, None]
    return Detections(candidates.from_centres(centres, sides), scores, classes)


@dataclass(frozen=True)
class NanodetOptions:
    """What a card may say of NanoDet outputs."""

    outputs: tuple[str, ...] = ()  # class scores stride by stride, then bins stride by stride
    strides: tuple[int, ...] = (8, 16, 32)
    activation: Literal["none", "sigmoid"] = "none"  # for class scores; exports mostly apply it
    centre: float = 0.5  # where in its cell a point lies: 0.5 for NanoDet, 0 for NanoDet-Plus
    multi_label: bool = True  # every class of a box that reaches the threshold, not only its best


@stage("head", task="detect", nms=True, options=NanodetOptions)
def nanodet(raw: Mapping[str, Tensor], card: Card) -> Detections:
    """Candidates from (1, n, k) and (1, n, 4·bins) at each stride, or from one (1, n, k + 4·bins)."""
    chosen = options_of(NanodetOptions, card)
    pairs = paired(named(raw, chosen.outputs, card), chosen, card)
    parts = [_decode_bins(*pair, chosen, card) for pair in pairs]
    boxes, scores, classes = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Detections(boxes, scores, classes)


def _decode_bins(
    scores: Tensor, bins: Tensor, strides: tuple[int, ...], chosen: NanodetOptions, card: Card
) -> tuple[Floats, Floats, Ints]:
    """Boxes, scores and classes of cells (n, k) and (n, 4·bins) that lie on the grids of these strides."""
    least = card.score if chosen.activation == "none" else candidates.logit(card.score)
    used = np.flatnonzero(scores.max(axis=1) >= least)
    cells = scores[used].astype(np.float64)
    probabilities = cells if chosen.activation == "none" else candidates.sigmoid(cells)
    rows, classes, selected_scores = above(probabilities, card.score, chosen.multi_label)
    maps = candidates.levels(card.input.size, strides, len(scores))
    if maps is None:
        width, height = card.input.size
        expected = f"those of stride {', '.join(map(str, strides))} of a {width}×{height} input, in one way"
        raise wrong(card, f"{len(scores)} cells are not {expected}; correct `size` or `strides` in the card")
    places, stride = (a[used] for a in candidates.grid(maps, strides))
    centres = (places + chosen.centre) * stride[:, None]
    # GFL: the distance to a side is the mean of its distribution over 0, 1, 2, ... strides.
    spread = candidates.softmax(bins[used].reshape(len(used), 4, bins.shape[1] // 4))
    far = spread @ np.arange(spread.shape[2], dtype=np.float64) * stride[:, None]
    boxes = np.concatenate([centres - far[:, :2], centres + far[:, 2:]], axis=1)
    return boxes[rows], selected_scores, classes


def paired(
    outputs: Mapping[str, Tensor], chosen: NanodetOptions, card: Card
) -> list[tuple[Tensor, Tensor, tuple[int, ...]]]:
    """Class scores (n, k), bins (n, 4·bins) and strides of each pair of outputs."""
    k = len(card.classes)
    flat = [one_image(name, value, card) for name, value in outputs.items()]
    if all(t.ndim == 2 for t in flat):
        if len(flat) == 1 and flat[0].shape[1] > k and (flat[0].shape[1] - k) % 4 == 0:
            return [(flat[0][:, :k], flat[0][:, k:], chosen.strides)]
        count = len(chosen.strides)
        scores = flat[:count] if chosen.outputs else [t for t in flat if t.shape[1] == k]
        bins = flat[count:] if chosen.outputs else [t for t in flat if t.shape[1] != k]
        scores, bins = (sorted(group, key=lambda t: -len(t)) for group in (scores, bins))
        order = sorted(chosen.strides)
        if len(scores) == len(bins) == count:
            pairs = list(zip(scores, bins, strict=True))
            if all(len(s) == len(b) and s.shape[1] == k and b.shape[1] % 4 == 0 for s, b in pairs):
                return [(s, b, (stride,)) for (s, b), stride in zip(pairs, order, strict=True)]
    expected = f"scores (1, cells, {k} classes) and bins (1, cells, 4·bins) at {len(chosen.strides)} strides"
    advice = "correct `classes`, `strides` or `outputs` in the card"
    raise wrong(card, f"expected {expected}, got {shapes(outputs)}; {advice}")


OBJECT, CLASS = 0.6, 0.4  # score = objectness^0.6 · class^0.4


@dataclass(frozen=True)
class FastestdetOptions:
    """What a card may say of a FastestDet output."""

    outputs: tuple[str, ...] = ()
    stride: int = 0  # without: the power of two by which the map is smaller than the input


@stage("head", task="detect", nms=True, options=FastestdetOptions)
def fastestdet(raw: Mapping[str, Tensor], card: Card) -> Detections:
    """Candidates from a map (1, 5+k, h, w): objectness, x y w h raw, class probabilities."""
    chosen = options_of(FastestdetOptions, card)
    name, value = single(raw, chosen.outputs, card)
    cell_map = one_image(name, value, card)
    if cell_map.ndim != 3 or cell_map.shape[0] != 5 + len(card.classes):
        expected = f"(1, 5 + {len(card.classes)} classes, height, width); correct `classes` in the card"
        raise wrong(card, f"output {name!r} {value.shape}: expected {expected}")
    stride = chosen.stride or candidates.nominal_stride(card.input.size.width, cell_map.shape[2])
    if not stride:
        columns = f"{cell_map.shape[2]} columns are no stride of an input of width {card.input.size.width}"
        advice = "correct `size` or give `stride` in the card"
        raise wrong(card, f"output {name!r} {value.shape}: {columns}; {advice}")
    # A class probability is at most 1, so the objectness alone already bounds the score.
    y, x = np.nonzero(cell_map[0] >= card.score ** (1.0 / OBJECT) * (1.0 - 1e-6))
    cells = cell_map[:, y, x].T.astype(np.float64)
    joint = np.maximum(cells[:, :1], 0.0) ** OBJECT * np.maximum(cells[:, 5:], 0.0) ** CLASS
    index, classes, scores = above(joint, card.score, multi_label=False)
    cells = cells[index]
    centres = (np.tanh(cells[:, 1:3]) + np.stack([x[index], y[index]], axis=1)) * stride
    sides = candidates.sigmoid(cells[:, 3:5]) * np.array(card.input.size, np.float64)
    return Detections(candidates.from_centres(centres, sides), scores, classes)
