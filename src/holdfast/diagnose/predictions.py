"""Diagnosis of a target from its predictions alone: which mistakes reproduce its boxes and scores."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from holdfast.core.errors import HoldfastError, InputError
from holdfast.core.model import Model
from holdfast.core.pipeline import Frame, Pipeline, frame_of, load_pipeline, pipeline_of
from holdfast.core.registry import part
from holdfast.core.types import Detections, Image, Size, Tensor
from holdfast.diagnose.cause import Cause, Comparison
from holdfast.diagnose.causes import causes_of
from holdfast.diagnose.fit import Fit, Reading
from holdfast.diagnose.mistakes import Change, preparation_changes
from holdfast.diagnose.no_detections import USUAL, NoDetections, ScoreLeft
from holdfast.diagnose.predicted import (
    FORMS,
    UNITS,
    FileDetections,
    PredictionDiagnosis,
    Ranked,
    agreement,
    as_xyxy,
    in_image,
)
from holdfast.diagnose.preparation import Preparation, Target, tensor, trained
from holdfast.evaluate.difference import matched_pairs
from holdfast.graph.card import BUILT_IN
from holdfast.graph.nms import nms
from holdfast.metrics.boxes import iou

FLOOR = 0.02  # detections with a lower score are not compared, unless all are weak
WEAK = 0.2  # highest score of a file below which all its detections are weak
EQUAL = 0.998  # agreement at which no mistake of the preparation is sought
REPRODUCED = 0.95  # agreement from which the predictions are explained
GAIN = 0.01  # least rise of the agreement that names a cause
SHARE = 0.1  # least share of the missing agreement that a cause explains
# Category ids of COCO, which have gaps, by the place of the class.
COCO_CLASSES = [k for k, name in enumerate(BUILT_IN["coco91"]) if not name.startswith("unused")]
NMS_LEVELS = (0.3, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.9)
MOST_IMAGES = 16


@dataclass(frozen=True)
class _Setting:
    """What the target is assumed to do after the network."""

    form: str = "xywh"
    unit: str = "pixels"
    classes: Mapping[int, int] = field(default_factory=dict)  # category id -> class
    nms_iou: float | None = None  # None: the card's
    nms: str = "class-wise"
    score: float = 0.0
    undone: str = "own"  # "trained": boxes are mapped back by the training geometry


def diagnose_predictions(
    model: Model,
    entries: Sequence[tuple[str, bytes]],
    target: Mapping[str, FileDetections],
    *,
    classes: Mapping[int, int] | None = None,
    train: Pipeline | None = None,
) -> PredictionDiagnosis:
    """Rank mistakes by how well they reproduce the predictions; `classes` maps category ids to classes."""
    if model.card.task != "detect":
        raise InputError(f"--predictions: expected a detector, {model.name} is for {model.card.task}")
    pairs = [(data, target[name]) for name, data in entries if name in target][:MOST_IMAGES]
    if not pairs:
        raise InputError("--predictions: expected detections of the images, got none")
    mapping = dict(classes) if classes else {k + 1: k for k in range(len(model.card.classes))}
    search = _Search(model, train or pipeline_of(model.card), pairs)
    return search.run(_Setting(classes=mapping))


class _Search:
    """One model on the images of a target, under changed preparations and post-processings."""

    def __init__(
        self, model: Model, pipeline: Pipeline, pairs: Sequence[tuple[bytes, FileDetections]]
    ) -> None:
        self.model, self.pipeline = model, pipeline
        self.machine = load_pipeline(pipeline, model)
        spec = model.card.input
        blank = np.zeros((3, spec.size.height, spec.size.width))
        self.targets = [Target(data, blank) for data, _ in pairs]
        self.found = [found for _, found in pairs]
        top = max((float(found.scores.max(initial=0.0)) for found in self.found), default=0.0)
        weak = 0.0 < top < WEAK
        self.floor = top / 10 if weak else FLOOR  # detections with a lower score are not compared
        self.scale = top if weak else 1.0  # in which differences of scores are measured
        self.raw: dict[tuple[int, str], Detections] = {}
        self.plain = [
            trained(spec, pipeline, self._size(target, pipeline.decode), 3) for target in self.targets
        ]

    def _size(self, target: Target, decode: Any) -> Size:
        pixels: Image = target.decoded(str(decode), str(self.pipeline.colour))
        return Size(pixels.shape[1], pixels.shape[0])

    def run(self, setting: _Setting) -> PredictionDiagnosis:
        """Format and classes first, then thresholds, then up to two changes of the preparation."""
        if not any(len(found.scores) for found in self.found):
            return self._without_detections()
        changes: list[Change] = []
        before = self.agreement(changes, setting)
        causes: list[Cause] = []
        setting = self._format(changes, setting, causes)
        setting = self._classes(changes, setting, causes)
        setting = self._thresholds(changes, setting)
        ranking: list[Ranked] = []
        while len(changes) < 2 and (now := self.agreement(changes, setting)) < EQUAL:
            scored = self._scored(changes, setting)
            ranking = ranking or [Ranked(self._cause([change]), score) for score, change, _ in scored]
            score, change, undone = scored[0]
            if score < now + max(GAIN, SHARE * (1 - now)):
                break
            changes, setting = [*changes, change], replace(setting, undone=undone)
            setting = self._thresholds(changes, setting)
        if changes:  # classes and format may be clearer now
            setting = self._classes(changes, setting, causes)
        causes += [self._cause([change]) for change in changes]
        causes += self._threshold_causes(changes, setting)
        return self._diagnosis(causes, ranking, before, self.agreement(changes, setting))

    def _diagnosis(
        self, causes: Sequence[Cause], ranking: Sequence[Ranked], before: float, after: float
    ) -> PredictionDiagnosis:
        detections = sum(len(one.scores) for one in self.found)
        return PredictionDiagnosis(
            causes=tuple(causes),
            explained=after >= REPRODUCED and detections > 0,
            before=before,
            after=after,
            ranking=tuple(sorted(ranking, key=lambda one: -one.agreement)[:10]),
            images=len(self.found),
            detections=detections,
        )

    def _without_detections(self) -> PredictionDiagnosis:
        """The mistakes after which the model detects nothing either."""
        own = self._best_scores([])
        seen = [place for place, score in enumerate(own) if score >= USUAL]
        left, tried = [], 0
        for change in self._further([]) if seen else ():
            with suppress(HoldfastError):
                score = max(self._best_scores([change])[place] for place in seen)
                tried += 1
                if score < USUAL:
                    left.append(ScoreLeft(self._cause([change]), score))
        left.sort(key=lambda one: round(one.score, 2))  # of equals the commonest first, as they are listed
        best = [own[place] for place in seen] or [0.0]
        nothing = NoDetections(len(seen), min(best), max(best), tried, tuple(left))
        return replace(self._diagnosis([], [], 0.0, 0.0), nothing=nothing)

    def _best_scores(self, changes: Sequence[Change]) -> list[float]:
        """The highest score of each image."""
        rows = [self._candidates(place, changes, 0.0) for place in range(len(self.found))]
        return [float(found.scores.max(initial=0.0)) for found in rows]

    def _further(self, changes: Sequence[Change]) -> Iterator[Change]:
        """The mistakes that change the input and are of another kind than those that are made already."""
        kinds = {change.kind for change in changes}
        for change in preparation_changes(self.model.card.input, self.pipeline):
            if change.kind not in kinds and self._prepared(0, [change]) != self.plain[0]:
                yield change

    def agreement(self, changes: Sequence[Change], setting: _Setting) -> float:
        """The mean agreement over the images."""
        values = [
            agreement(self._read(place, setting), self._own(place, changes, setting), self.scale)
            for place in range(len(self.found))
        ]
        return float(np.mean(values))

    def _read(self, place: int, setting: _Setting) -> Detections:
        """The target's detections of one image under a reading of its file."""
        found, frame = self.found[place], self._frame(place)
        boxes = in_image(as_xyxy(found.numbers, setting.form), setting.unit, frame)
        classes = np.array([setting.classes.get(int(c), -1) for c in found.categories], np.int64)
        read = Detections(boxes, found.scores, classes)
        return read.take(read.scores >= self.floor)

    def _own(self, place: int, changes: Sequence[Change], setting: _Setting) -> Detections:
        """The model's detections of one image if the changes are made."""
        found, card = self._raw(place, changes), self.model.card
        threshold = card.nms_iou if setting.nms_iou is None else setting.nms_iou
        suppress = part("head", card.head.name).facts.get("nms", True) or setting.nms_iou is not None
        if suppress and setting.nms != "none":
            labels = found.classes if setting.nms == "class-wise" else np.zeros_like(found.classes)
            keep = nms(found.boxes, found.scores, labels, threshold, max_detections=card.max_detections)
        else:
            keep = np.argsort(-found.scores, kind="stable")[: card.max_detections]
        found = found.take(keep)
        frame = self._frame(place)
        if setting.undone == "own":
            prep = self._prepared(place, changes)
            at, size = prep.placement.rounded(), frame.original
            x, y = at.width / size.width, at.height / size.height
            frame = replace(frame, scale_x=x, scale_y=y, offset_x=int(at.left), offset_y=int(at.top))
        shown = Detections(frame.to_original(found.boxes), found.scores, found.classes)
        return shown.take(shown.scores >= max(self.floor, setting.score))

    def _frame(self, place: int) -> Frame:
        return frame_of(self._size(self.targets[place], self.pipeline.decode), self.model.card.input)

    def _prepared(self, place: int, changes: Sequence[Change]) -> Preparation:
        prep = self.plain[place]
        for change in changes:
            prep = change.apply(prep, self._size(self.targets[place], prep.decode), self.model.card.input)
        return prep

    def _raw(self, place: int, changes: Sequence[Change]) -> Detections:
        """The decoded candidates in pixels of the network input; kept, because a network is slow."""
        key = place, " + ".join(change.name for change in changes)
        if key not in self.raw:
            self.raw[key] = self._candidates(place, changes, self.floor)
        return self.raw[key]

    def _candidates(self, place: int, changes: Sequence[Change], least: float) -> Detections:
        """The decoded candidates from a score on."""
        planes = tensor(self.targets[place], self._prepared(place, changes)).astype(np.float32)
        spec, card = self.model.card.input, self.model.card
        array: Tensor = planes if spec.layout == "nchw" else planes.transpose(1, 2, 0)
        raw = self.machine.run(np.ascontiguousarray(array[np.newaxis].astype(spec.dtype)))
        found: Detections = part("head", card.head.name).function(
            raw, replace(card, score=min(card.score, least))
        )
        return found.take(found.scores >= least)

    def _cause(self, changes: Sequence[Change]) -> Cause:
        """The words for a change, on the first image."""
        target, spec = self.targets[0], self.model.card.input
        fit = Fit(Reading(spec.layout, target.planes), self._prepared(0, changes), target, 0.0)
        causes = causes_of(Comparison(spec, spec.dtype, fit, self.plain[0], exif=1))
        return (
            causes[0] if causes else Cause("preparation", f"The target changes the input: {changes[0].name}.")
        )

    def _scored(self, changes: list[Change], setting: _Setting) -> list[tuple[float, Change, str]]:
        """The agreement with each further change, the best first."""
        scored = []
        for change in self._further(changes):
            ways = ("own", "trained") if change.kind == "geometry" else (setting.undone,)
            for undone in ways:
                try:
                    score = self.agreement([*changes, change], replace(setting, undone=undone))
                except HoldfastError:
                    continue
                scored.append((score, change, undone))
        return sorted(scored, key=lambda one: -one[0])

    def _format(self, changes: list[Change], setting: _Setting, causes: list[Cause]) -> _Setting:
        """The reading of the four numbers whose boxes overlap most with the model's."""

        def overlap(form: str, unit: str) -> float:
            values = []
            for place in range(len(self.found)):
                read = self._read(place, replace(setting, form=form, unit=unit))
                own = self._own(place, changes, setting)
                if len(read) and len(own):
                    values.append(float(iou(read.boxes, own.boxes).max(axis=1).mean()))
            return float(np.mean(values)) if values else 0.0

        scores = {(form, unit): overlap(form, unit) for form in FORMS for unit in UNITS}
        usual = scores[FORMS[0], UNITS[0]]
        (form, unit), best = max(scores.items(), key=lambda item: item[1])
        if best < usual + 0.1:
            return setting
        if form != setting.form:
            causes.append(Cause("box format", f"The boxes are {form}; COCO results are xywh.", "Write xywh."))
        if unit.endswith("the network input"):
            causes.append(
                Cause(
                    "letterbox",
                    f"The boxes are in {unit}: the resize and the letterbox are not undone.",
                    "Map the boxes back to the image.",
                )
            )
        elif unit != setting.unit:
            causes.append(
                Cause("box format", f"The boxes are {unit}; COCO results are pixels.", "Scale them.")
            )
        return replace(setting, form=form, unit=unit)

    def _classes(self, changes: list[Change], setting: _Setting, causes: list[Cause]) -> _Setting:
        """The map from category ids to classes that agrees with the model's classes of the same boxes."""
        votes = self._votes(changes, setting)
        total = sum(votes.values())
        if total < 3:
            return setting
        count = len(self.model.card.classes)

        def share(mapping: Mapping[int, int]) -> float:
            return sum(n for (c, k), n in votes.items() if mapping.get(c) == k) / total

        offsets = {
            shift: {c: k + shift for c, k in setting.classes.items() if 0 <= k + shift < count}
            | ({min(setting.classes) - 1: 0} if shift == 1 else {})
            for shift in (-1, 1)
        }
        shift = max(offsets, key=lambda one: share(offsets[one]))
        gaps = {number: k for k, number in enumerate(COCO_CLASSES)}  # equal for the first eleven classes
        known = max(share(setting.classes) + 0.05, share(offsets[shift]))
        if count == len(gaps) and share(gaps) > max(0.6, known):
            text = "The category ids are COCO's, from 1 to 90 with gaps; the model's classes have no gaps."
            causes.append(Cause("class order", text, "Number the classes without gaps."))
            return replace(setting, classes=gaps)
        if share(setting.classes) > 0.6:
            return setting
        if share(offsets[shift]) > 0.6:
            way = "too high" if shift < 0 else "too low"
            causes.append(
                Cause("class offset", f"The category ids are {way} by one.", "Correct the offset of the ids.")
            )
            return replace(setting, classes=offsets[shift])
        for order, places in (("reversed", range(count)[::-1]), ("alphabetical", self._alphabetical())):
            ordered = {c: places[k] for c, k in setting.classes.items()}
            if share(ordered) > 0.6:
                text = f"The target numbers the classes in {order} order."
                causes.append(Cause("class order", text, "Use the model's order."))
                return replace(setting, classes=ordered)
        majority: dict[int, int] = {}
        for (category, kind), _ in sorted(votes.items(), key=lambda item: item[1]):
            majority[category] = kind
        if share(majority) > 0.6 and len(set(majority.values())) == len(majority):
            names = self.model.card.classes
            wrong = [c for c, k in majority.items() if setting.classes.get(c) != k]
            text = ", ".join(f"{c} is {names[majority[c]]}" for c in sorted(wrong)[:4])
            causes.append(
                Cause(
                    "class order", f"The order of the classes differs: id {text}.", "Use the model's order."
                )
            )
            return replace(setting, classes={**setting.classes, **majority})
        return setting

    def _alphabetical(self) -> list[int]:
        names = self.model.card.classes
        return sorted(range(len(names)), key=lambda k: names[k].lower())

    def _votes(self, changes: list[Change], setting: _Setting) -> Counter[tuple[int, int]]:
        """How often a category id of the target meets a class of the model on the same box."""
        votes: Counter[tuple[int, int]] = Counter()
        for place, found in enumerate(self.found):
            read, own = self._read(place, setting), self._own(place, changes, setting)
            ids = found.categories[found.scores >= self.floor]
            blank = np.zeros(len(read), np.int64), np.zeros(len(own), np.int64)
            for i, j in matched_pairs(replace(read, classes=blank[0]), replace(own, classes=blank[1])):
                if min(read.scores[i], own.scores[j]) >= 0.2:
                    votes[int(ids[i]), int(own.classes[j])] += 1
        return votes

    def _thresholds(self, changes: list[Change], setting: _Setting) -> _Setting:
        """The score threshold from the lowest score, and the kind and threshold of NMS that agree best."""
        lowest = min(float(found.scores.min()) for found in self.found if len(found.scores))
        setting = replace(setting, score=lowest if lowest > self.floor else 0.0)
        options = [replace(setting, nms_iou=None, nms="class-wise"), *self._nms_options(setting)]
        scores = [self.agreement(changes, option) for option in options]
        best = int(np.argmax(scores))
        gap = max(GAIN, SHARE * (1 - scores[0]))
        return options[best] if scores[best] >= scores[0] + gap else options[0]

    def _nms_options(self, setting: _Setting) -> Iterator[_Setting]:
        for level in NMS_LEVELS:
            yield replace(setting, nms_iou=level, nms="class-wise")
            yield replace(setting, nms_iou=level, nms="class-agnostic")
        yield replace(setting, nms_iou=1.0, nms="none")

    def _threshold_causes(self, changes: list[Change], setting: _Setting) -> Iterator[Cause]:
        card = self.model.card
        if setting.nms_iou is not None:
            fed = (
                "applies no NMS, as an end-to-end head does"
                if setting.nms == "none"
                else f"applies {setting.nms} NMS at IoU {setting.nms_iou:g}"
            )
            yield Cause("NMS threshold", f"The target {fed}; the model's card says {card.nms_iou:g}.")
        hidden = self.agreement(changes, setting) - self.agreement(changes, replace(setting, score=0.0))
        if setting.score > max(2 * card.score, FLOOR) and hidden > GAIN:
            yield Cause(
                "score threshold",
                f"The target drops detections below a score of {setting.score:.2g}; the card's threshold is "
                f"{card.score:g}.",
                "Lower the threshold to measure mAP.",
            )
