"""YOLOv3: raw maps with anchors, at any number of scales (also tiny, YOLOv4 and Yolo-Fastest)."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from holdfast.core.model import Card
from holdfast.core.registry import stage
from holdfast.core.types import Detections, Floats, Ints, Tensor
from holdfast.graph import candidates
from holdfast.graph.candidates import Exp, above, bounded_exp, named, one_image, options_of, shapes, wrong


@dataclass(frozen=True)
class Yolov3Options:
    """Options of a card for YOLOv3 maps; lists have one entry per output."""

    anchors: tuple[tuple[tuple[float, ...], ...], ...]  # per output: [width, height] in input pixels
    outputs: tuple[str, ...] = ()  # without: by stride if those are given, else in the model's order
    strides: tuple[int, ...] = ()  # without: the power of two by which the map is smaller than the input
    scale_xy: tuple[float, ...] = ()  # darknet's scale_x_y per output; without: 1
    multi_label: bool = True  # every class of a box that reaches the threshold, not only its best


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
    parts = [_decode(scale, card, chosen.multi_label, exp) for scale in scales(raw, chosen, card)]
    boxes, scores, classes = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Detections(boxes, scores, classes)


def _decode(scale: OutputScale, card: Card, multi_label: bool, exp: Exp) -> tuple[Floats, Floats, Ints]:
    """Boxes, scores and classes of one map; only cells whose objectness reaches the threshold are decoded."""
    a, y, x = np.nonzero(scale.view[:, 4] >= candidates.logit(card.score))
    cells = scale.view[a, :, y, x].astype(np.float64)
    scores = candidates.sigmoid(cells[:, 5:]) * candidates.sigmoid(cells[:, 4:5])
    rows, classes, best = above(scores, card.score, multi_label)
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
    expected = f"{anchors} anchors × (5 + {len(card.classes)} classes) = {channels} channels"
    advice = "correct `classes` or `anchors` in the card"
    raise wrong(card, f"output {name!r} {value.shape}: expected {expected}; {advice}")
