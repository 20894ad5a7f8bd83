"""Other readings of a detector's outputs and input, tried on a few labelled images.

A reading is a card in which the box order, the unit, the class list or the range of pixels differs. A guess
that meets no object is replaced by the reading that does; a card that the user wrote is never replaced.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, get_type_hints

import numpy as np

from holdfast.core.dataset import Dataset, Entry
from holdfast.core.errors import CardError, InputError, ModelError
from holdfast.core.model import Card, Colour, Head, Input, Model
from holdfast.core.pipeline import Frame, checked, load_pipeline, pipeline_of
from holdfast.core.registry import part
from holdfast.core.types import Boxes, Detections, Sample, Tensor
from holdfast.engine.records import DetectionRecord
from holdfast.evaluate.classes import FEW, Alignment, align, met_objects, other_cards, overlap, realign
from holdfast.evaluate.score import Settings, score_records
from holdfast.graph.card import BUILT_IN, numbered, toml
from holdfast.graph.inspect import inspect
from holdfast.metrics.rules import RULES
from holdfast.report.tables import Table
from holdfast.stages.post import by_card

IMAGES = 8  # labelled images that are tried
NEAR_ZERO = 0.05  # AP at or below which other readings are tried
BETTER = 0.1  # AP from which another reading replaces a guess, if it is also FACTOR times that of the guess
FACTOR = 4.0
MET = 0.2  # share of objects met by a box of their class from which a guess is not doubted
APART = 0.1  # mean best IoU below which boxes have nothing to do with the objects
MANY = 8  # objects from which this is an error, not bad luck
LOWEST = 0.01  # score below which boxes are not tried
ANY = numbered(1000)  # class names for any label
UNIT: dict[str, Any] = {"scale": 1 / 255, "mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}
BYTES: dict[str, Any] = {**UNIT, "scale": 1.0}
IMAGENET: dict[str, Any] = {**UNIT, "mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
Outputs: TypeAlias = tuple[Sample, Frame, Mapping[str, Tensor]]


@dataclass(frozen=True)
class Reading:
    """A card, and the AP at IoU 0.5 that it gives on the images tried."""

    card: Card
    ap: float
    boxes: float  # the same for boxes of any class
    overlap: float  # mean IoU of the best box of any class for each object
    problem: str = ""  # why the outputs cannot be read so


@dataclass(frozen=True)
class ReadingCheck:
    """The readings of a model on some labelled images, the given card first."""

    model: Model
    readings: tuple[Reading, ...]
    images: int
    objects: int

    @property
    def given(self) -> Reading:
        """The reading of the given card."""
        return self.readings[0]

    @property
    def best(self) -> Reading:
        """The reading of the highest AP; of equal ones the given one."""
        return max(self.readings, key=lambda reading: reading.ap)

    @property
    def is_wrong(self) -> bool:
        """Whether another reading meets the ground truth and the given one does not."""
        return self.given.ap <= NEAR_ZERO and self.best.ap >= max(BETTER, FACTOR * self.given.ap)

    def sentence(self) -> str:
        """The two readings and their AP."""
        few = ", an indication" if self.images < 20 else ""
        given, best = self.given.card, self.best.card
        old, new = words(given, best), words(best, given)
        was = "0.00 (it cannot be read so)" if self.given.problem else f"{self.given.ap:.2f}"
        return f"read as {old} AP50 is {was}; as {new} it is {self.best.ap:.2f} ({self.images} images{few})"

    def conclusion(self) -> str:
        """What to do, in one line."""
        if self.is_wrong:
            return f"{self.sentence()}; write in the card: {card_lines(self.given.card, self.best.card)}"
        few = ", an indication" if self.images < 20 else ""
        number = f"AP50 {self.given.ap:.2f}, {self.objects} objects in {self.images} images{few}"
        if self.given.ap > NEAR_ZERO:
            return f"the reading meets the ground truth ({number}); no other reading is better by far"
        return f"no reading meets the ground truth ({number}); check head, size and policy in the card"

    def to_dict(self) -> dict[str, Any]:
        """The readings as plain values, for JSON."""
        rows = [_plain(self.given.card, reading) for reading in self.readings]
        counts = {"images": self.images, "objects": self.objects, "wrong": self.is_wrong}
        return {"readings": rows, "best": _plain(self.given.card, self.best), **counts}


def _plain(given: Card, reading: Reading) -> dict[str, Any]:
    scores = {"ap50": reading.ap, "boxes_ap50": reading.boxes, "mean_best_iou": reading.overlap}
    return {"change": card_lines(given, reading.card), **scores, "problem": reading.problem}


def table(check: ReadingCheck, top: int = 5) -> Table:
    """The given reading and the best others."""
    others = sorted(check.readings[1:], key=lambda r: (-r.ap, -r.boxes))[:top]
    rows = [
        (
            card_lines(check.given.card, r.card) or "as given",
            f"{r.ap:.4f}",
            f"{r.boxes:.4f}",
            f"{r.overlap:.2f}",
        )
        for r in (check.given, *others)
    ]
    return Table(("reading", "AP50", "AP50 of any class", "mean best IoU"), rows)


def settled(model: Model, dataset: Dataset, *, renames: Mapping[str, str] = {}) -> Model:
    """The model as it is, or with the reading that meets the ground truth in place of a guess that does not.

    Raise CardError if the boxes of a guessed reading are nowhere near the objects and no other reading helps.
    """
    if not model.guessed or model.card.task != "detect" or dataset.task not in ("detect", "single"):
        return model
    trial = _Trial(model, dataset, renames)
    if trial.is_plausible():
        return model
    check = trial.check()
    name = model.path.name
    if check.is_wrong:
        lines = card_lines(model.card, check.best.card)
        advice = f"using that; write a card to fix it (`holdfast model card {name}`): {lines}"
        reason = f"reading: {check.sentence()}: {advice}"
        return replace(model, card=check.best.card, guessed=(*model.guessed, reason))
    if check.given.ap == 0 and check.given.overlap < APART and check.objects >= MANY:
        raise CardError(_nowhere(check))
    return model


def check_readings(
    model: Model, dataset: Dataset, *, renames: Mapping[str, str] = {}, images: int = IMAGES
) -> ReadingCheck:
    """All plausible readings of a detector on some images of a labelled dataset."""
    if model.card.task != "detect":
        raise InputError(f"{model.name}: expected a detector, got a model for task {model.card.task!r}")
    return _Trial(model, dataset, renames, images).check()


def _nowhere(check: ReadingCheck) -> str:
    """The error of a guess that no reading saves."""
    model, card = check.model, check.model.card
    outputs = ", ".join(str(t) for t in inspect(model.path).outputs)
    count = f"{check.objects} objects in {check.images} images"
    tried = f"guessed as head {card.head.name!r}, the boxes meet none of {count}"
    others = f"and {len(check.readings) - 1} other readings meet none either"
    write = (
        f"write a card (`holdfast model card {model.path.name}`) with the right name and options under [head]"
    )
    return (
        f"{model.path}: outputs {outputs}: {tried}, {others}; {write}, colour, scale and policy under [input]"
    )


class _Trial:
    """Some labelled images and the opened model."""

    def __init__(
        self, model: Model, dataset: Dataset, renames: Mapping[str, str], images: int = IMAGES
    ) -> None:
        self.model, self.renames = model, renames
        self.machine = load_pipeline(pipeline_of(model.card), model)
        self.names = dataset.classes or numbered(len(model.card.classes))
        self.samples = list(itertools.islice(_labelled(dataset.entries), images))

    def run(self, card: Card, samples: Sequence[Sample]) -> list[Outputs]:
        """The outputs for each image, prepared as this card says."""
        machine, done = replace(self.machine, model=replace(self.model, card=card)), []
        for sample in samples:
            try:
                ready = machine.prepare(sample.data)
                done.append((sample, ready.frame, checked(machine.run(ready.tensor))))
            except (CardError, ModelError):
                raise
            except InputError:  # an unreadable image, or outputs that are not finite
                continue
        return done

    def is_plausible(self) -> bool:
        """Whether boxes of the right class meet objects; it looks at no more images than it needs."""
        met: list[bool] = []
        for sample in self.samples:
            for outputs in self.run(self.model.card, [sample]):
                try:
                    records = _records([outputs], self.model.card)
                    found = self._align(self.model.card)
                except InputError:  # labels beyond the classes; other classes than the data has
                    return False
                met += met_objects(records[0], found.of_model, found.of_data)
            if len(met) >= FEW and np.mean(met) >= MET:
                return True
        return not met

    def _align(self, card: Card) -> Alignment:
        return align(card.classes, self.names, common=True, renames=self.renames)

    def check(self) -> ReadingCheck:
        """Box orders and units for each preprocessing, and then the class lists for the best of these."""
        given, tried = self.model.card, []
        for prepared in _preparations(given):
            outputs = self.run(prepared, self.samples)
            cards = (prepared, *(card for _, card in other_cards(prepared)))
            tried += [(self._read(outputs, card), outputs) for card in cards]
        best, outputs = max(tried, key=lambda pair: pair[0].boxes)
        more = (self._read(outputs, card) for card in _numberings(best.card))
        objects = sum(int((~s.truth.crowd).sum()) for s in self.samples if isinstance(s.truth, Boxes))
        readings = (*(reading for reading, _ in tried), *more)
        return ReadingCheck(self.model, readings, len(self.samples), objects)

    def _read(self, outputs: Sequence[Outputs], card: Card) -> Reading:
        """What this card makes of the outputs."""
        try:
            anything = _records(outputs, _for_any_label(card))
        except InputError as problem:
            return Reading(card, 0.0, 0.0, 0.0, str(problem))
        plain = [_without_classes(record) for record in anything]
        boxes = _ap(plain, ("object",))
        near = overlap([(r.truth, r.detections) for r in anything]).mean
        try:
            found = self._align(card)
            ap = _ap(realign(_records(outputs, card), found), found.names) if boxes else 0.0
        except InputError as problem:
            return Reading(card, 0.0, boxes, near, str(problem))
        return Reading(card, ap, boxes, near)


def _labelled(entries: Sequence[Entry]) -> Iterator[Sample]:
    """Images with objects, from all parts of the dataset."""
    steps = max(1, len(entries) // (4 * IMAGES))
    for entry in itertools.chain(*(entries[start::steps] for start in range(steps))):
        try:
            sample = entry.load()
        except InputError:  # the evaluation names it
            continue
        if isinstance(sample.truth, Boxes) and (~sample.truth.crowd).any():
            yield sample


def _records(outputs: Sequence[Outputs], card: Card) -> list[DetectionRecord]:
    """The records of these outputs; low scores are dropped, as a wrong reading may have very many."""
    quick = replace(card, score=max(card.score, LOWEST))
    records = []
    for sample, frame, raw in outputs:
        prediction = by_card(raw, frame, quick)
        if isinstance(prediction, Detections) and isinstance(sample.truth, Boxes):
            records.append(DetectionRecord(sample.name, frame.original, sample.truth, prediction))
    return records


def _without_classes(record: DetectionRecord) -> DetectionRecord:
    truth, found = record.truth, record.detections
    return replace(
        record,
        truth=replace(truth, classes=np.zeros_like(truth.classes)),
        detections=replace(found, classes=np.zeros_like(found.classes)),
    )


def _ap(records: Sequence[Any], classes: tuple[str, ...]) -> float:
    """AP at IoU 0.5, all points."""
    scored = score_records(records, "detect", classes, Settings(RULES["voc"]))["metrics"]["mAP"]
    return float(scored or 0.0)


def _has(card: Card, option: str) -> bool:
    """Whether the card's head has this option."""
    shape = part("head", card.head.name).facts.get("options")
    return shape is not None and option in get_type_hints(shape)


def _for_any_label(card: Card) -> Card:
    """The card for boxes of any class: heads that give labels check them against the list of classes."""
    if not _has(card, "label_offset"):
        return card
    return replace(card, classes=ANY, head=Head(card.head.name, {**card.head.options, "label_offset": 0}))


def _preparations(card: Card) -> Iterator[Card]:
    """The card, and the same with the channels swapped and other ranges of values."""
    image = card.input
    ranges = [{}] if image.dtype == "uint8" else [{}, UNIT, BYTES, IMAGENET]
    colours = [image.colour] if image.colour == "grey" else [image.colour, _swapped(image.colour)]
    known: set[Input] = set()
    for values, colour in itertools.product(ranges, colours):
        other = replace(image, colour=colour, **values)
        if image.channels == 1 and values is IMAGENET:
            continue
        if other not in known:
            known.add(other)
            yield replace(card, input=other)


def _swapped(colour: Colour) -> Colour:
    return "rgb" if colour == "bgr" else "bgr"


def _numberings(card: Card) -> Iterator[Card]:
    """The card with other class lists: 80 or 91 classes of COCO, and numbers that are off by one."""
    names = card.classes
    coco = [BUILT_IN[n] for n in ("coco80", "coco91")] if names in BUILT_IN.values() else []
    if _has(card, "label_offset"):
        now = int(card.head.options.get("label_offset", 0))
        for classes, offset in itertools.product(dict.fromkeys((names, *coco)), (0, 1, -1)):
            if (classes, offset) != (names, now):
                head = Head(card.head.name, {**card.head.options, "label_offset": offset})
                yield replace(card, classes=classes, head=head)
        return
    for classes in (*(c for c in coco if len(c) == len(names) and c != names),):
        yield replace(card, classes=classes)
    yield replace(card, classes=("unused", *names[:-1]))
    yield replace(card, classes=(*names[1:], "unused"))


def differences(old: Card, new: Card) -> dict[str, dict[str, Any]]:
    """The fields of the new card that differ from the old one's, by section."""
    image = {f.name: getattr(new.input, f.name) for f in dataclasses.fields(Input)}
    image = {k: v for k, v in image.items() if getattr(old.input, k) != v}
    head = {k: v for k, v in new.head.options.items() if old.head.options.get(k, _default(old, k)) != v}
    built_in = next((name for name, known in BUILT_IN.items() if known == new.classes), None)
    classes = {"classes": built_in or new.classes} if new.classes != old.classes else {}
    return {"": classes, "input": image, "head": head}


def _default(card: Card, option: str) -> Any:
    return getattr(part("head", card.head.name).facts.get("options"), option, None)


def card_lines(old: Card, new: Card) -> str:
    """What to change in the old card to get the new one."""
    parts = []
    for section, values in differences(old, new).items():
        if shift := _shift(old, new) if section == "" else "":
            parts.append(shift)
            continue
        lines = ", ".join(f"{k} = {toml(v, scale=k == 'scale')}" for k, v in values.items())
        parts += [f"{lines} under [{section}]" if section else lines] if lines else []
    return "; ".join(parts)


def _shift(old: Card, new: Card) -> str:
    """How to write the classes of the new card if they are those of the old one, off by one."""
    if new.classes == ("unused", *old.classes[:-1]) and len(old.classes) > 1:
        return f'classes = ["unused", then the present ones without {old.classes[-1]!r}]'
    if new.classes == (*old.classes[1:], "unused") and len(old.classes) > 1:
        return f'classes = [the present ones without {old.classes[0]!r}, then "unused"]'
    return ""


def words(card: Card, other: Card) -> str:
    """The card in a few words, as far as it differs from the other one."""
    both = (*differences(other, card).values(), *differences(card, other).values())
    changed = {key for values in both for key in values}
    image, options = card.input, card.head.options
    texts = []
    if changed & {"form", "normalised", "columns"}:
        corners = [str(c) for c in options.get("columns", ()) if c not in ("score", "label", "-", "angle")]
        texts += ["".join(corners)] if corners else [str(_option(card, "form"))] if _has(card, "form") else []
        texts += (
            ["normalised" if _option(card, "normalised") else "pixels"] if _has(card, "normalised") else []
        )
    if "colour" in changed:
        texts.append(image.colour.upper())
    if changed & {"scale", "mean", "std"}:
        level = "values 0..1" if image.scale == 1 / 255 else f"values times {image.scale:g}"
        level = "values 0..255" if image.scale == 1 else level
        texts.append(f"{level} less mean" if any(image.mean) else level)
    if "classes" in changed:
        named = next((name for name, known in BUILT_IN.items() if known == card.classes), "")
        texts.append(f"classes {named or ' '.join(card.classes[:3]) + ' ...'}")
    if "label_offset" in changed:
        texts.append(f"label_offset {_option(card, 'label_offset')}")
    return " ".join(texts) or "given"


def _option(card: Card, name: str) -> Any:
    return card.head.options.get(name, _default(card, name))
