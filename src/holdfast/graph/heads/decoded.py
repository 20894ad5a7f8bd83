"""Boxes that the graph has decoded: one tensor (YOLOv5, YOLOv8, RT-DETR), or outputs after NMS inside."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from holdfast.core.model import Card
from holdfast.core.registry import stage
from holdfast.core.types import Detections, Floats, Ints, Tensor
from holdfast.graph import candidates
from holdfast.graph.candidates import (
    above,
    as_xyxy,
    from_centres,
    known_labels,
    named,
    one_image,
    options_of,
    shapes,
    single,
    wrong,
)


@dataclass(frozen=True)
class Yolov5Options:
    """What a card may say of a YOLOv5 output."""

    outputs: tuple[str, ...] = ()
    normalised: bool = False  # boxes in parts of the input (0..1), not in pixels
    multi_label: bool = True  # every class of a box that reaches the threshold, not only its best
    trailing: int = 0  # columns behind the classes: mask coefficients, keypoints, an angle


@stage("head", task="detect", nms=True, options=Yolov5Options)
def yolov5(raw: Mapping[str, Tensor], card: Card) -> Detections:
    """Candidates from an output (1, n, 5+k): centre x y, width, height, objectness, classes."""
    chosen = options_of(Yolov5Options, card)
    hint = ' (or, without objectness, the head: "yolov8")'
    _, rows = candidates.table_rows(raw, chosen.outputs, card, (5, chosen.trailing), "boxes", hint)
    cells = rows[rows[:, 4] >= card.score].astype(np.float64)
    last = 5 + len(card.classes)
    index, classes, scores = above(cells[:, 5:last] * cells[:, 4:5], card.score, chosen.multi_label)
    unit = candidates.pixels(card, chosen.normalised)
    return Detections(from_centres(cells[index, :2] * unit, cells[index, 2:4] * unit), scores, classes)


@dataclass(frozen=True)
class Yolov8Options(Yolov5Options):
    """What a card may say of a YOLOv8 output."""

    angle: bool = (
        False  # the first of the trailing columns is the box's rotation; the upright box around it is used
    )


@stage("head", task="detect", nms=True, options=Yolov8Options)
def yolov8(raw: Mapping[str, Tensor], card: Card) -> Detections:
    """Candidates from an output (1, 4+k, n) or (1, n, 4+k): centre x y, width, height, classes."""
    chosen = options_of(Yolov8Options, card)
    name, value = single(raw, chosen.outputs, card)
    table = one_image(name, value, card)
    last = 4 + len(card.classes)
    width = last + chosen.trailing
    if table.ndim != 2 or width not in table.shape:
        more = f" + {chosen.trailing} trailing columns" if chosen.trailing else ""
        expected = f"expected (1, 4 + {len(card.classes)} classes{more}, boxes) or its transpose"
        advice = 'correct `classes` in the card (or, with objectness, the head: "yolov5")'
        raise wrong(card, f"output {name!r} {value.shape}: {expected}; {advice}")
    if chosen.angle and not chosen.trailing:
        raise wrong(card, "angle = true needs a column for the angle: set trailing = 1 in the card")
    rows = table.T if table.shape[0] == width else table
    cells = rows[rows[:, 4:last].max(axis=1) >= card.score].astype(np.float64)
    index, classes, scores = above(cells[:, 4:last], card.score, chosen.multi_label)
    unit = candidates.pixels(card, chosen.normalised)
    sides = cells[index, 2:4] * unit
    if chosen.angle:
        sides = candidates.upright_sides(sides, cells[index, last])
    return Detections(from_centres(cells[index, :2] * unit, sides), scores, classes)


@dataclass(frozen=True)
class RtdetrOptions:
    """What a card may say of an RT-DETR table."""

    outputs: tuple[str, ...] = ()
    normalised: bool = True  # boxes in parts of the input (0..1), not in pixels
    multi_label: bool = False  # every class of a box that reaches the threshold, not only its best


@stage("head", task="detect", nms=False, nms_in_graph=False, options=RtdetrOptions)
def rtdetr(raw: Mapping[str, Tensor], card: Card) -> Detections:
    """Detections from an output (1, n, 4+k): centre x y, width, height, class probabilities."""
    chosen = options_of(RtdetrOptions, card)
    _, table = candidates.table_rows(raw, chosen.outputs, card, (4, 0), "queries")
    rows = table.astype(np.float64)
    index, classes, scores = above(rows[:, 4:], card.score, chosen.multi_label)
    unit = candidates.pixels(card, chosen.normalised)
    return Detections(from_centres(rows[index, :2] * unit, rows[index, 2:4] * unit), scores, classes)


Column = Literal["x1", "y1", "x2", "y2", "cx", "cy", "w", "h", "score", "label", "angle", "-"]

_CORNERS = {
    "xyxy": ("x1", "y1", "x2", "y2"),
    "cxcywh": ("cx", "cy", "w", "h"),
    "xywh": ("x1", "y1", "w", "h"),
}
# What is in the names of outputs, by role; looked for in this order.
_WORDS = {"count": "num|count", "boxes": "box", "scores": "score|conf", "labels": "label|class"}


@dataclass(frozen=True)
class BoxesOptions:
    """Options of a card for outputs after NMS; by default they are recognised by name, then by shape."""

    boxes: str = ""
    scores: str = ""
    labels: str = ""
    count: str = ""  # how many rows are filled, if the graph says so
    columns: tuple[Column, ...] = ()  # of a single output, e.g. ["x1", "y1", "x2", "y2", "score", "label"];
    # "angle" is the rotation of a box cx cy w h, of which the upright box around it is used
    form: candidates.Form = "xyxy"  # order in a boxes output of its own
    normalised: bool = False  # boxes in parts of the input (0..1), not in pixels
    label_offset: int = 0  # subtracted from every label, e.g. 1 where 0 is the background


@stage("head", task="detect", nms=False, options=BoxesOptions)
def boxes(raw: Mapping[str, Tensor], card: Card) -> Detections:
    """The detections a graph with NMS inside gives; rows of padding (label below 0, score 0) are dropped."""
    chosen = options_of(BoxesOptions, card)
    is_table = bool(chosen.columns) or (len(raw) == 1 and not chosen.boxes)
    corners, scores, labels = (_columns if is_table else _separate)(raw, chosen, card)
    labels = labels - chosen.label_offset
    used = np.flatnonzero((scores >= card.score) & (scores > 0) & (labels >= 0))
    unit = np.tile(candidates.pixels(card, chosen.normalised), 2)
    return Detections(corners[used] * unit, scores[used], known_labels(labels[used], card))


def _columns(raw: Mapping[str, Tensor], chosen: BoxesOptions, card: Card) -> tuple[Floats, Floats, Ints]:
    """Boxes xyxy, scores and labels from the columns of one output (1, n, c) or (n, c)."""
    name = chosen.boxes or next(iter(raw))
    value = named(raw, [name], card)[name]
    names: list[str] = list(chosen.columns or ("x1", "y1", "x2", "y2", "score", "label"))
    table = np.asarray(value, np.float64).reshape(-1, value.shape[-1] if value.ndim else 1)
    form = next((f for f, corners in _CORNERS.items() if set(corners) <= set(names)), None)
    if table.shape[1] != len(names) or form is None or not {"score", "label"} <= set(names):
        example = 'columns = ["x1", "y1", "x2", "y2", "score", "label"] ("-" for one to skip)'
        expected = f"expected the columns {names}; say in the card which is which: {example}"
        raise wrong(card, f"output {name!r} {value.shape}: {expected}")
    coordinates = np.stack([table[:, names.index(column)] for column in _CORNERS[form]], axis=1)
    if "angle" in names and form == "cxcywh":
        coordinates[:, 2:] = candidates.upright_sides(coordinates[:, 2:], table[:, names.index("angle")])
    labels = np.rint(table[:, names.index("label")]).astype(np.int64)
    return as_xyxy(coordinates, form), table[:, names.index("score")], labels


def _separate(raw: Mapping[str, Tensor], chosen: BoxesOptions, card: Card) -> tuple[Floats, Floats, Ints]:
    """Boxes (n, 4), scores (n,) and labels (n,) from outputs of their own."""
    names = roles({n: v.shape for n, v in raw.items()}, {n: v.dtype.kind for n, v in raw.items()})
    names |= {role: name for role in _WORDS if (name := getattr(chosen, role))}
    missing = [role for role in ("boxes", "scores", "labels") if role not in names]
    if missing:
        problem = f"cannot tell which output holds the {' and the '.join(missing)} among {shapes(raw)}"
        raise wrong(card, f'{problem}; say it in the card: {missing[0]} = "..."')
    tensors = named(raw, list(names.values()), card)
    four = np.asarray(tensors[names["boxes"]], np.float64).reshape(-1, 4)
    scores = np.asarray(tensors[names["scores"]], np.float64).reshape(-1)
    labels = np.rint(np.asarray(tensors[names["labels"]], np.float64)).astype(np.int64).reshape(-1)
    if not len(four) == len(scores) == len(labels):
        got = f"{len(four)} boxes, {len(scores)} scores, {len(labels)} labels"
        advice = "name the right outputs in the card"
        raise wrong(card, f"expected as many scores and labels as boxes, got {got}; {advice}")
    filled = len(four)
    if "count" in names:
        filled = min(filled, int(np.asarray(tensors[names["count"]]).reshape(-1)[0]))
    return as_xyxy(four[:filled], chosen.form), scores[:filled], labels[:filled]


def roles(shape_of: Mapping[str, tuple[int | str, ...]], kind_of: Mapping[str, str]) -> dict[str, str]:
    """Which output is boxes, scores, labels and count, by what it is called, then by shape and type."""
    by_role: dict[str, str] = {}
    for role, words in _WORDS.items():
        hits = [n for n in shape_of if n not in by_role.values() and re.search(words, n.lower())]
        if hits:
            by_role[role] = hits[0]
    for name, shape in shape_of.items():
        if name in by_role.values():
            continue
        if "boxes" not in by_role and shape and shape[-1] == 4:
            by_role["boxes"] = name
        elif "labels" not in by_role and kind_of[name] in "iu" and shape not in ((), (1,), (1, 1)):
            by_role["labels"] = name
        elif "scores" not in by_role and kind_of[name] == "f":
            by_role["scores"] = name
    return by_role


@dataclass(frozen=True)
class SelectedOptions:
    """What a card may say of the three outputs."""

    outputs: tuple[str, ...] = ()  # boxes (1, n, 4), scores (1, k, n), selected indices (m, 3)
    form: Literal["yxyx", "xyxy", "cxcywh"] = "yxyx"  # NonMaxSuppression's own order is yxyx
    normalised: bool = False  # boxes in parts of the input (0..1), not in pixels


@stage("head", task="detect", nms=False, options=SelectedOptions)
def selected(raw: Mapping[str, Tensor], card: Card) -> Detections:
    """The detections at the selected (image, class, box) indices."""
    chosen = options_of(SelectedOptions, card)
    four, scores, picks = _pick(named(raw, chosen.outputs, card), bool(chosen.outputs), card)
    picks = picks[(picks[:, 0] == 0) & (picks >= 0).all(axis=1)]
    corners, values = as_xyxy(four[picks[:, 2]], chosen.form), scores[picks[:, 1], picks[:, 2]]
    if chosen.form != "cxcywh":  # the operator takes corners in either order
        corners = np.sort(corners.reshape(-1, 2, 2), axis=1).reshape(-1, 4)
    unit = np.tile(candidates.pixels(card, chosen.normalised), 2)
    used = values >= card.score
    return Detections((corners * unit)[used], values[used], picks[used, 1])


def _pick(raw: Mapping[str, Tensor], in_order: bool, card: Card) -> tuple[Tensor, Tensor, Tensor]:
    """Boxes (n, 4), scores (k, n) and selected indices (m, 3): by the card's order, or by type and shape."""
    k = len(card.classes)
    tensors = list(raw.values())
    if not in_order:
        integers = [t for t in tensors if t.dtype.kind in "iu"]
        fours = [t for t in tensors if t.dtype.kind == "f" and t.ndim == 3 and t.shape[2] == 4]
        rest = [t for t in tensors if t.dtype.kind == "f" and not any(t is f for f in fours[:1])]
        tensors = [*fours[:1], *rest, *integers]
    if len(tensors) == 3:
        four, scores, picks = tensors
        picks = picks[0] if picks.ndim == 3 and len(picks) == 1 else picks
        fits = four.ndim == 3 and four.shape[2] == 4 and scores.ndim == 3 and scores.shape[1] == k
        if fits and picks.ndim == 2 and picks.shape[1] == 3 and four.shape[1] == scores.shape[2]:
            return four[0].astype(np.float64), scores[0].astype(np.float64), picks.astype(np.int64)
    expected = f"boxes (1, n, 4), scores (1, {k} classes, n), selected indices (m, 3)"
    advice = "correct `classes`, or name the three outputs in that order in the card"
    raise wrong(card, f"expected {expected}, got {shapes(raw)}; {advice}")
