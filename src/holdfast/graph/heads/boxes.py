"""Graphs with NMS inside: boxes, scores and labels, or the indices that NonMaxSuppression selected."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from holdfast.core.model import Card
from holdfast.core.registry import stage
from holdfast.core.types import Detections, Floats, Ints, Tensor
from holdfast.graph.candidates import from_centres, named, options_of, pixels, shapes, upright_sides, wrong

Column = Literal["x1", "y1", "x2", "y2", "cx", "cy", "w", "h", "score", "label", "angle", "-"]

_CORNERS = {
    "xyxy": ("x1", "y1", "x2", "y2"),
    "cxcywh": ("cx", "cy", "w", "h"),
    "xywh": ("x1", "y1", "w", "h"),
}
# What is in the names of outputs, by role; looked for in this order.
_WORDS = {"count": "num|count", "boxes": "box", "scores": "score|conf", "labels": "label|class"}


@dataclass(frozen=True)
class Options:
    """What a card may say of outputs after NMS; without names they are told apart by name, then by shape."""

    boxes: str = ""
    scores: str = ""
    labels: str = ""
    count: str = ""  # how many rows are filled, if the graph says so
    columns: tuple[Column, ...] = ()  # of a single output, e.g. ["x1", "y1", "x2", "y2", "score", "label"];
    # "angle" is the rotation of a box cx cy w h, of which the upright box around it is taken
    form: Literal["xyxy", "yxyx", "cxcywh", "xywh"] = "xyxy"  # order in a boxes output of its own
    normalised: bool = False  # boxes in parts of the input (0..1), not in pixels
    label_offset: int = 0  # subtracted from every label, e.g. 1 where 0 is the background


@stage("head", task="detect", nms=False, options=Options)
def boxes(raw: Mapping[str, Tensor], card: Card) -> Detections:
    """The detections a graph with NMS inside gives; rows of padding (label below 0, score 0) are dropped."""
    chosen = options_of(Options, card)
    is_table = bool(chosen.columns) or (len(raw) == 1 and not chosen.boxes)
    found, scores, labels = (_columns if is_table else _separate)(raw, chosen, card)
    labels = labels - chosen.label_offset
    used = np.flatnonzero((scores >= card.score) & (scores > 0) & (labels >= 0))
    if len(used) and labels[used].max() >= len(card.classes):
        raise wrong(
            card,
            f"a label is {int(labels[used].max())}, but the card names {len(card.classes)} classes (0 to "
            f"{len(card.classes) - 1}); correct `classes` or `label_offset` in the card (COCO's own ids, "
            'up to 90, are classes = "coco91")',
        )
    unit = np.tile(pixels(card, chosen.normalised), 2)
    return Detections(found[used] * unit, scores[used], labels[used])


def _as_xyxy(found: Floats, form: str) -> Floats:
    if form == "yxyx":
        return found[:, [1, 0, 3, 2]]
    if form == "cxcywh":
        return from_centres(found[:, :2], found[:, 2:])
    if form == "xywh":
        return np.concatenate([found[:, :2], found[:, :2] + found[:, 2:]], axis=1)
    return found


def _columns(raw: Mapping[str, Tensor], chosen: Options, card: Card) -> tuple[Floats, Floats, Ints]:
    """Boxes xyxy, scores and labels from the columns of one output (1, n, c) or (n, c)."""
    name = chosen.boxes or next(iter(raw))
    value = named(raw, [name], card)[name]
    names: list[str] = list(chosen.columns or ("x1", "y1", "x2", "y2", "score", "label"))
    table = np.asarray(value, np.float64).reshape(-1, value.shape[-1] if value.ndim else 1)
    form = next((f for f, wanted in _CORNERS.items() if set(wanted) <= set(names)), None)
    if table.shape[1] != len(names) or form is None or not {"score", "label"} <= set(names):
        raise wrong(
            card,
            f"output {name!r} {value.shape}: expected the columns {names}; say in the card which is which: "
            'columns = ["x1", "y1", "x2", "y2", "score", "label"] ("-" for one to skip)',
        )
    found = np.stack([table[:, names.index(column)] for column in _CORNERS[form]], axis=1)
    if "angle" in names and form == "cxcywh":
        found[:, 2:] = upright_sides(found[:, 2:], table[:, names.index("angle")])
    labels = np.rint(table[:, names.index("label")]).astype(np.int64)
    return _as_xyxy(found, form), table[:, names.index("score")], labels


def _separate(raw: Mapping[str, Tensor], chosen: Options, card: Card) -> tuple[Floats, Floats, Ints]:
    """Boxes (n, 4), scores (n,) and labels (n,) from outputs of their own."""
    names = roles({n: v.shape for n, v in raw.items()}, {n: v.dtype.kind for n, v in raw.items()})
    names |= {role: name for role in _WORDS if (name := getattr(chosen, role))}
    missing = [role for role in ("boxes", "scores", "labels") if role not in names]
    if missing:
        raise wrong(
            card,
            f"cannot tell which output holds the {' and the '.join(missing)} among {shapes(raw)}; "
            f'say it in the card: {missing[0]} = "..."',
        )
    found = named(raw, list(names.values()), card)
    four = np.asarray(found[names["boxes"]], np.float64).reshape(-1, 4)
    scores = np.asarray(found[names["scores"]], np.float64).reshape(-1)
    labels = np.rint(np.asarray(found[names["labels"]], np.float64)).astype(np.int64).reshape(-1)
    if not len(four) == len(scores) == len(labels):
        raise wrong(
            card,
            f"expected as many scores and labels as boxes, got {len(four)} boxes, {len(scores)} scores, "
            f"{len(labels)} labels; name the right outputs in the card",
        )
    filled = len(four)
    if "count" in names:
        filled = min(filled, int(np.asarray(found[names["count"]]).reshape(-1)[0]))
    return _as_xyxy(four[:filled], chosen.form), scores[:filled], labels[:filled]


def roles(shape_of: Mapping[str, tuple[int | str, ...]], kind_of: Mapping[str, str]) -> dict[str, str]:
    """Which output is boxes, scores, labels and count, by what it is called, then by shape and type."""
    found: dict[str, str] = {}
    for role, words in _WORDS.items():
        hits = [n for n in shape_of if n not in found.values() and re.search(words, n.lower())]
        if hits:
            found[role] = hits[0]
    for name, shape in shape_of.items():
        if name in found.values():
            continue
        if "boxes" not in found and shape and shape[-1] == 4:
            found["boxes"] = name
        elif "labels" not in found and kind_of[name] in "iu" and shape not in ((), (1,), (1, 1)):
            found["labels"] = name
        elif "scores" not in found and kind_of[name] == "f":
            found["scores"] = name
    return found


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
    found, values = _as_xyxy(four[picks[:, 2]], chosen.form), scores[picks[:, 1], picks[:, 2]]
    if chosen.form != "cxcywh":  # the operator takes corners in either order
        found = np.sort(found.reshape(-1, 2, 2), axis=1).reshape(-1, 4)
    unit = np.tile(pixels(card, chosen.normalised), 2)
    used = values >= card.score
    return Detections((found * unit)[used], values[used], picks[used, 1])


def _pick(raw: Mapping[str, Tensor], in_order: bool, card: Card) -> tuple[Tensor, Tensor, Tensor]:
    """Boxes (n, 4), scores (k, n) and selected indices (m, 3): by the card's order, or by type and shape."""
    k = len(card.classes)
    tensors = list(raw.values())
    if not in_order:
        whole = [t for t in tensors if t.dtype.kind in "iu"]
        fours = [t for t in tensors if t.dtype.kind == "f" and t.ndim == 3 and t.shape[2] == 4]
        rest = [t for t in tensors if t.dtype.kind == "f" and not any(t is f for f in fours[:1])]
        tensors = [*fours[:1], *rest, *whole]
    if len(tensors) == 3:
        four, scores, picks = tensors
        fits = four.ndim == 3 and four.shape[2] == 4 and scores.ndim == 3 and scores.shape[1] == k
        if fits and picks.ndim == 2 and picks.shape[1] == 3 and four.shape[1] == scores.shape[2]:
            return four[0].astype(np.float64), scores[0].astype(np.float64), picks.astype(np.int64)
    raise wrong(
        card,
        f"expected boxes (1, n, 4), scores (1, {k} classes, n), selected indices (m, 3), got {shapes(raw)}; "
        "correct `classes`, or name the three outputs in that order in the card",
    )
