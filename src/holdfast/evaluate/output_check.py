"""Warn when a detector's outputs hardly match the ground truth: the card may decode them wrongly.

A wrong box order, unit or class list in the card gives an AP near zero. The boxes are compared with the
ground truth regardless of class; if they do not overlap, other ways to decode the same outputs are tried on
some images.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args, get_type_hints

import numpy as np

from holdfast.core.dataset import Dataset
from holdfast.core.errors import InputError
from holdfast.core.model import Card, Head, Model
from holdfast.core.pipeline import Pipeline, checked, load_pipeline
from holdfast.core.registry import part
from holdfast.core.types import Boxes, Detections, Floats, Ints
from holdfast.engine.records import DetectionRecord, Record
from holdfast.evaluate.classes import Alignment
from holdfast.graph.card import BUILT_IN, toml
from holdfast.graph.nms import ious
from holdfast.stages.post import by_card

IOU = 0.5  # from here on a box matches an object
DOUBTFUL = 0.05  # share of matched objects below which a warning is due
WEAK = 0.3  # share below which other box orders and units are tried
FEW = 5  # objects below which only a better decoding is worth a warning
IMAGES = 16  # decoded again in other ways
ORDERS = {
    "xyxy": ("x1", "y1", "x2", "y2"),
    "yxyx": ("y1", "x1", "y2", "x2"),
    "cxcywh": ("cx", "cy", "w", "h"),
    "xywh": ("x1", "y1", "w", "h"),
}


@dataclass(frozen=True, eq=False)
class Overlap:
    """The IoU of the best box of any class for each object, in this many images."""

    values: Floats
    images: int

    @property
    def mean(self) -> float:
        """The mean over all objects."""
        return float(self.values.mean()) if len(self.values) else 0.0

    @property
    def met(self) -> float:
        """The share of objects that some box matches."""
        return float((self.values >= IOU).mean()) if len(self.values) else 0.0

    def __str__(self) -> str:
        objects, images = len(self.values), self.images
        return (
            f"mean best IoU {self.mean:.2f} over {objects} object{'s' * (objects != 1)} in {images} "
            f"image{'s' * (images != 1)}"
        )


def output_warnings(
    model: Model, dataset: Dataset, pipeline: Pipeline, records: Sequence[Record], alignment: Alignment
) -> tuple[str, ...]:
    """One line if boxes or classes hardly match the ground truth; `records` are not realigned."""
    found = [r for r in records if isinstance(r, DetectionRecord) and (~r.truth.crowd).any()]
    if not any(len(r.detections) for r in found):
        return ()
    now = overlap([(r.truth, r.detections) for r in found])
    line = _box_warning(now, model, dataset, pipeline, found) if now.met < WEAK else ""
    line = line or _class_warning(found, model.card, alignment)
    return (line,) if line else ()


def overlap(pairs: Sequence[tuple[Boxes, Detections]]) -> Overlap:
    """How well the highest-scored boxes of each image overlap its objects; crowds are skipped."""
    best = [_overlaps(truth, found).max(axis=1, initial=0.0) for truth, found in pairs]
    return Overlap(np.concatenate([np.zeros(0), *best]), len(best))


def _overlaps(truth: Boxes, found: Detections) -> Floats:
    """IoU (n, m) of the objects with twice as many boxes, or ten, of the highest scores."""
    objects = truth.xyxy[~truth.crowd]
    return ious(objects, found.boxes[_best(found, len(objects))])


def _best(found: Detections, objects: int) -> Ints:
    return np.argsort(-found.scores, kind="stable")[: max(10, 2 * objects)]


def _box_warning(
    now: Overlap, model: Model, dataset: Dataset, pipeline: Pipeline, found: Sequence[DetectionRecord]
) -> str:
    other = _better_decoding(now, model, dataset, pipeline, found)
    if other is None and (now.met >= DOUBTFUL or len(now.values) < FEW):
        return ""
    text = f"the boxes hardly overlap the ground truth ({now}): the card may decode the outputs wrongly"
    if other is None:
        return f"{text}; check the head, its box order and units, and the input policy in the card"
    change, then = other
    return f"{text}; {change} under [head] in the card gives {then}"


def _better_decoding(
    now: Overlap, model: Model, dataset: Dataset, pipeline: Pipeline, found: Sequence[DetectionRecord]
) -> tuple[str, Overlap] | None:
    """The change of the card that matches many more objects; None without one."""
    cards = dict(_other_cards(model.card))
    if not cards:
        return None
    entries = {entry.name: entry for entry in dataset.entries}
    sample = [r for r in found if r.name in entries][:: max(1, len(found) // IMAGES)][:IMAGES]
    machine = load_pipeline(pipeline, model)
    pairs: dict[str, list[tuple[Boxes, Detections]]] = {change: [] for change in cards}
    for record in sample:
        try:
            ready = machine.prepare(entries[record.name].load().data)
            raw = checked(machine.run(ready.tensor))
        except InputError:
            continue
        for change, card in list(cards.items()):
            try:
                read = by_card(raw, ready.frame, card)
            except InputError:  # outputs that cannot be read so
                del cards[change]
                continue
            if isinstance(read, Detections):
                pairs[change].append((record.truth, read))
    read_so = [(change, overlap(pairs[change])) for change in cards]
    better = [(c, o) for c, o in read_so if o.met >= max(WEAK, 2 * now.met) and o.mean >= 2 * now.mean]
    return max(better, key=lambda one: one[1].mean, default=None)


def _other_cards(card: Card) -> Iterator[tuple[str, Card]]:
    """The other box orders and units of the card's head, each as a change of the card."""
    shape = part("head", card.head.name).facts.get("options")
    known = get_type_hints(shape) if shape else {}
    given = dict(card.head.options)
    orders: list[Mapping[str, Any]] = [{}]
    if "columns" in given:
        orders += [{"columns": _reorder(given["columns"], order)} for order in ORDERS.values()]
    elif "form" in known:
        orders += [{"form": form} for form in get_args(known["form"])]
    units: list[Mapping[str, Any]] = [{}]
    if "normalised" in known:
        units.append({"normalised": not given.get("normalised", getattr(shape, "normalised", False))})
    for order, unit in itertools.product(orders, units):
        changes = {k: v for k, v in {**order, **unit}.items() if given.get(k) != v}
        if changes:
            words = ", ".join(f"{key} = {toml(value)}" for key, value in changes.items())
            yield words, dataclasses.replace(card, head=Head(card.head.name, {**given, **changes}))


def _reorder(columns: Sequence[str], order: Sequence[str]) -> tuple[str, ...]:
    """The columns with those of the box, wherever they are, in another order."""
    corners = set(itertools.chain(*ORDERS.values()))
    names = iter(order)
    return tuple(next(names) if column in corners else column for column in columns)


def _class_warning(found: Sequence[DetectionRecord], card: Card, alignment: Alignment) -> str:
    """A line if boxes match objects but their classes do not, with the numbering that fits; else empty."""
    got, wanted = _matched_classes(found, alignment)
    if len(got) < FEW:
        return ""
    agreed = float((got == wanted).mean())
    text = (
        f"the boxes match the ground truth but the classes do not ({agreed:.0%} of {len(got)} boxes that "
        f"match an object have its class, {len(found)} image{'s' * (len(found) != 1)})"
    )
    if agreed >= 0.1:
        return ""
    fits = [(float((numbers[got] == wanted).mean()), change) for change, numbers in _other_numberings(card)]
    share, change = max(fits, default=(0.0, ""))
    if share >= 0.5:
        return f"{text}; {change} gives {share:.0%}"
    return f"{text}; check the order of `classes` in the card" if len(got) >= 4 * FEW else ""


def _matched_classes(found: Sequence[DetectionRecord], alignment: Alignment) -> tuple[Ints, Ints]:
    """For each object that a box matches: the class of the box and the true one, as the model counts."""
    right = {int(place): i for i, place in enumerate(alignment.of_model) if place >= 0}
    got, wanted = [], []
    for record in found:
        truth, top = record.truth, record.detections
        order = _best(top, int((~truth.crowd).sum()))
        for row, true in zip(_overlaps(truth, top), truth.classes[~truth.crowd], strict=True):
            meets = np.flatnonzero(row >= IOU)
            place = int(alignment.of_data[true])
            if len(meets) and place >= 0:
                got.append(int(top.classes[order[meets[0]]]))
                wanted.append(right[place])
    return np.array(got, np.int64), np.array(wanted, np.int64)


def _other_numberings(card: Card) -> Iterator[tuple[str, Ints]]:
    """Other class numberings: the change of the card and, per class of the model, the class it is."""
    count = len(card.classes)
    offset = int(card.head.options.get("label_offset", 0))
    shape = part("head", card.head.name).facts.get("options")
    for step in (1, -1):
        change = f"reading output class i as class i {'−' if step > 0 else '+'} 1 of the card"
        if shape is not None and "label_offset" in get_type_hints(shape):
            change = f"label_offset = {offset + step} under [head] in the card"
        yield change, np.arange(count) - step
    for name, other in (("coco91", "coco80"), ("coco80", "coco91")):
        if card.classes == BUILT_IN[other]:
            places = {word: i for i, word in enumerate(card.classes)}
            named = [places.get(word, -1) for word in BUILT_IN[name]]
            yield f'classes = "{name}" in the card', np.array([*named, *[-1] * count][:count], np.int64)
