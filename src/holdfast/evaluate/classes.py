"""How a model's outputs correspond to the ground truth.

A class of the model corresponds to a class of the dataset by name, else by number. A wrong box order, unit or
class list in the card gives an AP near zero. Therefore the boxes are compared with the ground truth
regardless of class; if they do not overlap, other ways to decode the same outputs are tried on some images.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args, get_type_hints

import numpy as np

from holdfast.core.dataset import Dataset
from holdfast.core.errors import DataError, InputError, UnknownName
from holdfast.core.model import Card, Head, Model, Task
from holdfast.core.pipeline import Pipeline, checked, load_pipeline
from holdfast.core.registry import part
from holdfast.core.types import Boxes, Detections, Floats, Ints, plain_name
from holdfast.engine.records import ClassificationRecord, DetectionRecord, FailedImage, Record
from holdfast.graph.card import BUILT_IN, toml
from holdfast.graph.nms import ious
from holdfast.stages.post import by_card


@dataclass(frozen=True, eq=False)
class Alignment:
    """`names` of the evaluated classes; per class of the model and of the data its place there, or −1."""

    names: tuple[str, ...]
    of_model: Ints
    of_data: Ints
    note: str = ""

    def places(self) -> tuple[int, ...]:
        """For each class of the data its place among the model's."""
        return tuple(int(np.flatnonzero(self.of_model == place)[0]) for place in self.of_data)

    def to_plain(self) -> dict[str, Any]:
        """The alignment as JSON values."""
        places = {"of_model": self.of_model.tolist(), "of_data": self.of_data.tolist()}
        return {"names": list(self.names), **places, "note": self.note}

    @staticmethod
    def from_plain(plain: dict[str, Any]) -> Alignment:
        """The alignment that `to_plain` wrote."""
        of_model, of_data = (np.array(plain[k], np.int64) for k in ("of_model", "of_data"))
        return Alignment(tuple(plain["names"]), of_model, of_data, plain["note"])


def align(
    model: tuple[str, ...], data: tuple[str, ...], *, common: bool = False, renames: Mapping[str, str] = {}
) -> Alignment:
    """The classes to evaluate; DataError if some class of the data is unknown to the model.

    Names are compared without case, spaces, hyphens and underscores. `renames` maps names of the data to
    names of the model; several mapped to one are evaluated as that one. With `common` only the classes both
    know are evaluated.
    """
    for old, new in renames.items():
        if old not in data:
            raise UnknownName("class of the dataset", old, data)
        if new not in model:
            raise UnknownName("class of the model", new, model)
    places = _places([renames.get(name, name) for name in data], model)
    if all(i >= 0 for i in places) or (common and any(i >= 0 for i in places)):
        return _by_name(model, data, places)
    if not renames and len(model) == len(data) and (_has_numbers_only(model) or _has_numbers_only(data)):
        same = np.arange(len(data))
        named = model if _has_numbers_only(data) else data
        return Alignment(named, same, same, "classes matched by number: model or dataset has no class names")
    missing = [name for name, i in zip(data, places, strict=True) if i < 0]
    shared = len(data) - len(missing)
    use_common = f"--classes common to evaluate the {shared} common classes, " if shared else ""
    raise DataError(
        f"class mismatch: the dataset has {len(data)} classes, the model {len(model)}; the model does not "
        f"have {_join_names(missing)}. Use {use_common}--map 'data name=model name', or correct the card "
        f"(the model has {_join_names(list(model))})"
    )


def _places(names: list[str], model: tuple[str, ...]) -> list[int]:
    """Per name its place in the model, exactly or else in plain letters if only one is meant; else −1."""
    exact = {name: i for i, name in enumerate(model)}
    plain: dict[str, list[int]] = {}
    for i, name in enumerate(model):
        plain.setdefault(plain_name(name), []).append(i)
    alike = [plain.get(plain_name(name), []) for name in names]
    return [exact.get(name, at[0] if len(at) == 1 else -1) for name, at in zip(names, alike, strict=True)]


def _by_name(model: tuple[str, ...], data: tuple[str, ...], places: list[int]) -> Alignment:
    known = list(dict.fromkeys(place for place in places if place >= 0))  # in the data's order
    of_model = np.full(len(model), -1)
    of_model[known] = np.arange(len(known))
    of_data = np.array([of_model[place] if place >= 0 else -1 for place in places], np.int64)
    times, last = Counter(places), {place: i for i, place in enumerate(places)}
    names = tuple(data[last[place]] if times[place] == 1 else model[place] for place in known)
    skipped, joined = times[-1], [model[place] for place in known if times[place] > 1]
    notes = [f"skipped {skipped} classes of the dataset that the model does not have"] if skipped else []
    if joined:
        notes.append(f"several classes of the dataset map to one class of the model: {_join_names(joined)}")
    return Alignment(names, of_model, of_data, "; ".join(notes))


def _has_numbers_only(names: tuple[str, ...]) -> bool:
    return all(name.isdigit() for name in names)


def _join_names(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def realign(records: Iterable[Record], alignment: Alignment, task: Task = "detect") -> tuple[Record, ...]:
    """The records with the numbers of the evaluated classes, without failures and other classes."""
    evaluated = tuple(r for r in (_realign_record(r, alignment) for r in records) if r is not None)
    if task != "single":
        return evaluated
    # An image whose only object is of a skipped class does not count.
    return tuple(r for r in evaluated if not (isinstance(r, DetectionRecord) and len(r.truth) == 0))


def _realign_record(record: Record, alignment: Alignment) -> Record | None:
    if isinstance(record, FailedImage):
        return None
    if isinstance(record, DetectionRecord):
        t, d = record.truth, record.detections
        _check(record.name, t.classes, alignment.of_data, "the dataset")
        _check(record.name, d.classes, alignment.of_model, "the model")
        true, predicted = alignment.of_data[t.classes], alignment.of_model[d.classes]
        is_true, is_predicted = true >= 0, predicted >= 0
        columns = {f.name: getattr(t, f.name)[is_true] for f in dataclasses.fields(t)}
        truth = Boxes(**{**columns, "classes": true[is_true]})
        detections = replace(d.take(is_predicted), classes=predicted[is_predicted])
        return replace(record, truth=truth, detections=detections)
    if isinstance(record, ClassificationRecord):
        _check(record.name, np.array([record.label]), alignment.of_data, "the dataset")
        label, top = int(alignment.of_data[record.label]), alignment.of_model[record.top]
        return replace(record, label=label, top=top) if label >= 0 else None
    return record


def _check(name: str, classes: Ints, places: Ints, whose: str) -> None:
    if classes.size and not 0 <= classes.min() <= classes.max() < len(places):
        wrong = classes[(classes < 0) | (classes >= len(places))][0]
        raise DataError(f"{name}: got class {wrong} of {whose}, expected 0 to {len(places) - 1}")


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
    def matched(self) -> float:
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
    labelled = [r for r in records if isinstance(r, DetectionRecord) and (~r.truth.crowd).any()]
    if not any(len(r.detections) for r in labelled):
        return ()
    line = _box_warning(model, dataset, pipeline, labelled) or _class_warning(labelled, model.card, alignment)
    return (line,) if line else ()


def overlap(pairs: Sequence[tuple[Boxes, Detections]]) -> Overlap:
    """How well the highest-scored boxes of each image overlap its objects; crowds are skipped."""
    best = [_overlaps(*pair)[1].max(axis=1, initial=0.0) for pair in pairs]
    return Overlap(np.concatenate([np.zeros(0), *best]), len(best))


def _overlaps(truth: Boxes, detections: Detections) -> tuple[Ints, Floats]:
    """Twice as many boxes as objects, or ten, of the highest scores (m,); IoU (n, m) of objects and these."""
    objects = truth.xyxy[~truth.crowd]
    best = np.argsort(-detections.scores, kind="stable")[: max(10, 2 * len(objects))]
    return best, ious(objects, detections.boxes[best])


def _box_warning(
    model: Model, dataset: Dataset, pipeline: Pipeline, records: Sequence[DetectionRecord]
) -> str:
    now = overlap([(r.truth, r.detections) for r in records])
    if now.matched >= WEAK:
        return ""
    other = _better_decoding(now, model, dataset, pipeline, records)
    if other is None and (now.matched >= DOUBTFUL or len(now.values) < FEW):
        return ""
    text = f"the boxes hardly overlap the ground truth ({now}): the card may decode the outputs wrongly"
    if other is None:
        return f"{text}; check the head, its box order and units, and the input policy in the card"
    return f"{text}; {other[0]} under [head] in the card gives {other[1]}"


def _better_decoding(
    now: Overlap, model: Model, dataset: Dataset, pipeline: Pipeline, records: Sequence[DetectionRecord]
) -> tuple[str, Overlap] | None:
    """The change of the card that matches many more objects; None without one."""
    cards = dict(other_cards(model.card))
    if not cards:
        return None
    entries = {entry.name: entry for entry in dataset.entries}
    sample = [r for r in records if r.name in entries][:: max(1, len(records) // IMAGES)][:IMAGES]
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
                prediction = by_card(raw, ready.frame, card)
            except InputError:  # outputs that cannot be decoded so
                del cards[change]
                continue
            if isinstance(prediction, Detections):
                pairs[change].append((record.truth, prediction))
    least = max(WEAK, 2 * now.matched)
    overlaps = [(change, overlap(pairs[change])) for change in cards]
    better = [(change, o) for change, o in overlaps if o.matched >= least and o.mean >= 2 * now.mean]
    return max(better, key=lambda pair: pair[1].mean, default=None)


def other_cards(card: Card) -> Iterator[tuple[str, Card]]:
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


def _class_warning(records: Sequence[DetectionRecord], card: Card, alignment: Alignment) -> str:
    """A line if boxes match objects but their classes do not, with the numbering that fits; else empty."""
    predicted, true = _matched_classes(records, alignment)
    agreed = float((predicted == true).mean()) if len(predicted) >= FEW else 1.0
    if agreed >= 0.1:
        return ""
    text = (
        f"the boxes match the ground truth but the classes do not ({agreed:.0%} of {len(predicted)} boxes "
        f"that match an object have its class, {len(records)} image{'s' * (len(records) != 1)})"
    )
    fits = [
        (float((numbers[predicted] == true).mean()), change) for change, numbers in _other_numberings(card)
    ]
    share, change = max(fits, default=(0.0, ""))
    if share >= 0.5:
        return f"{text}; {change} gives {share:.0%}"
    return f"{text}; check the order of `classes` in the card" if len(predicted) >= 4 * FEW else ""


def _matched_classes(records: Sequence[DetectionRecord], alignment: Alignment) -> tuple[Ints, Ints]:
    """For each object that a box matches: the class of the box and the true one, as the model counts."""
    of_evaluated = {int(place): i for i, place in enumerate(alignment.of_model) if place >= 0}
    pairs = []
    for record in records:
        truth, detections = record.truth, record.detections
        best, overlaps = _overlaps(truth, detections)
        for row, true in zip(overlaps, truth.classes[~truth.crowd], strict=True):
            matches, place = np.flatnonzero(row >= IOU), int(alignment.of_data[true])
            if len(matches) and place >= 0:
                pairs.append((detections.classes[best[matches[0]]], of_evaluated[place]))
    predicted, true = np.array(pairs, np.int64).reshape(-1, 2).T
    return predicted, true


def met_objects(record: DetectionRecord, of_model: Ints, of_data: Ints) -> list[bool]:
    """For each object of an evaluated class: whether one of the best boxes has its class and matches it."""
    truth, found = record.truth, record.detections
    best, overlaps = _overlaps(truth, found)
    classes = of_model[found.classes[best]]
    true = of_data[truth.classes[~truth.crowd]]
    return [
        bool(((row >= IOU) & (classes == t)).any()) for row, t in zip(overlaps, true, strict=True) if t >= 0
    ]


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
