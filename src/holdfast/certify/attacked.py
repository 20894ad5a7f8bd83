"""Attacks on the wrapped detector at certified and at other places: certified ≤ attacked, by experiment.

The black-box search of `holdfast attack` queries the wrapped detector itself, with every mask, and may paint
all pixels of one patch. Success at a certified place contradicts the theorem, so it is a bug in the proof or
in the defence.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.attack.random_search import QuerySession
from holdfast.attack.types import Limits, Method, Rule, Target
from holdfast.certify.certificate import AttackedPlace, ImageCertificate, Places, all_places
from holdfast.core.dataset import Entry
from holdfast.core.errors import UnsoundCertificate
from holdfast.core.fingerprint import generator
from holdfast.core.model import Model
from holdfast.core.pipeline import LoadedPipeline, Pipeline, load_pipeline
from holdfast.core.types import Boxes, Detections, Image, Ints
from holdfast.engine.cells import ItemWork, Setup
from holdfast.engine.pipelines import content_of
from holdfast.stages.defence import GREY, MaskDefence, detections_of, ioa
from holdfast.stages.masks import PatchSize

QUERIES = 30  # per place; each is a run of the model on the image and with every mask
TRIES = 200  # random places per place that is attacked


@dataclass(frozen=True)
class AttackItem:
    """An image and its certificate."""

    entry: Entry
    certificate: ImageCertificate

    @property
    def name(self) -> str:
        """The name of the image."""
        return self.entry.name


@dataclass(frozen=True)
class PlaceAttackWork(ItemWork[AttackItem, LoadedPipeline]):
    """Attacks on the wrapped model, at some places of each image."""

    model: Model
    pipeline: Pipeline  # with the defence
    defence: MaskDefence
    patch: PatchSize
    overlap: float
    places: int  # per image, as many certified as others
    of_model: tuple[int, ...]  # per class of the model its place among `names`
    names: tuple[str, ...]  # the classes of the certificates
    facts: Any  # all that can change a result, except the image

    def setups(self) -> list[Setup]:
        """Model, pipeline with defence, patch and the number of places."""
        search = [str(self.patch), self.overlap, self.places, QUERIES, self.of_model, self.names]
        return [Setup("certify attack", [search, str(self.defence), self.facts])]

    def contents(self, item: AttackItem) -> list[Any]:
        """Name and content of the image, and its certificate."""
        one = item.certificate
        gains = [[o.label, o.box, o.gains] for o in one.objects]
        return [[content_of(item.entry), list(one.size), one.masks, gains]]

    def open(self, threads: int) -> LoadedPipeline:
        """The wrapped model."""
        return load_pipeline(self.pipeline, self.model, threads)

    def compute_item(self, state: LoadedPipeline, item: AttackItem) -> list[list[Any]]:
        """The attacked places of an image: object, x, y, certified, hidden, queries."""
        image, proof = state.decode(item.entry.load().data), item.certificate
        side, rng = self.patch.side(proof.size), generator(0, "certify attack", item.name)
        judge = WrappedJudge(state, np.array(self.of_model), self.defence.score, self.overlap)
        rows = []
        for number, x, y, certified in sampled(proof, side, self.overlap, self.places, rng):
            one = proof.objects[number]
            target = Boxes(np.array([one.box]), np.array([self.names.index(one.label)]))
            result = attack_place(judge, image, target, (x, y, side), rng)
            if result is None and not certified:
                continue  # not reported without a patch
            hidden, queries = result or (True, 1)
            rows.append([number, x, y, certified, hidden, queries])
        return rows

    def use(self, item: AttackItem, values: Any) -> None:
        """Raise UnsoundCertificate for a certified place at which an attack succeeded."""
        side = self.patch.side(item.certificate.size)
        for one in places_of(item, side, values[0]):
            if one.certified and one.hidden:
                raise UnsoundCertificate(
                    f"{one.image}: {one.label} (object {one.number + 1}) is certified, but a patch of "
                    f"{side} px at ({one.x}, {one.y}) hides it from the wrapped detector: a certificate "
                    "is wrong. Do not use this certification; please report it with the model and the image."
                )


def places_of(item: AttackItem, side: int, rows: list[list[Any]]) -> list[AttackedPlace]:
    """What a cell holds."""
    labels = [one.label for one in item.certificate.objects]
    name = item.certificate.name
    return [
        AttackedPlace(
            name, number, labels[number], x=x, y=y, side=side,
            certified=certified, hidden=hidden, queries=queries,
        )
        for number, x, y, certified, hidden, queries in rows
    ]  # fmt: skip


@dataclass(frozen=True)
class WrappedJudge:
    """The detections of the wrapped model that keep an object from being hidden."""

    machine: LoadedPipeline
    of_model: Ints
    score: float
    overlap: float

    def __call__(self, image: Image, target: Boxes) -> Detections:
        """The part of the object in each reported box of its class that covers more than the overlap."""
        found = detections_of(self.machine, self.machine.prepare_pixels(image.copy()))
        covered = ioa(target.xyxy, found.boxes)[0]
        classes = self.of_model[found.classes]
        counts = (classes == target.classes[0]) & (found.scores > self.score) & (covered > self.overlap)
        low = np.maximum(found.boxes[:, :2], target.xyxy[:, :2])
        high = np.minimum(found.boxes[:, 2:], target.xyxy[:, 2:])
        parts = Detections(np.concatenate([low, high], axis=1), found.scores, classes)
        return parts.take(counts)


def attack_place(
    judge: WrappedJudge, image: Image, target: Boxes, place: tuple[int, int, int], rng: np.random.Generator
) -> tuple[bool, int] | None:
    """Whether a patch at x, y of that side hides the object, and the queries; None if it is not reported."""
    x, y, side = place
    if not len(judge(image, target)):
        return None
    grey = image.copy()
    grey[y : y + side, x : x + side] = GREY
    if not len(judge(grey, target)):
        return True, 2
    allowed = np.zeros(image.shape[:2], bool)
    allowed[y : y + side, x : x + side] = True
    # Every detection of the judge counts, so the IoU threshold of the search's rule is next to zero.
    method = Method(shrink=False, rule=Rule(score=judge.score, iou=1e-9))
    limits = Limits(pixels=side * side, steps=QUERIES - 2)
    before = Detections(np.zeros((0, 4)), np.zeros(0), np.zeros(0, np.int64))
    aim = Target(image, target, before)
    session = QuerySession(lambda painted: judge(painted, target), aim, method, limits, allowed, rng=rng)
    _, loss = session.improved(*session.started(limits.steps), limits.pixels, limits.steps)
    return loss == 0, session.queries + 2


def sampled(
    proof: ImageCertificate, side: int, overlap: float, count: int, rng: np.random.Generator
) -> Iterator[tuple[int, int, int, bool]]:
    """Random places of random objects: as many that are certified as others, as far as there are any.

    Half of the certified places are next to the vulnerable rectangle or in it, where a mistake of one pixel
    would be.
    """
    every = all_places(proof.size, side)
    if not proof.objects or not every.total:
        return
    for certified in (False, True):
        found = 0
        for attempt in range(TRIES * count):
            number = int(rng.integers(len(proof.objects)))
            zone = proof.vulnerable(number, side, overlap)
            if certified:
                near = zone.total and found % 2 and attempt < TRIES * count // 2
                zone = grown(zone, 1).within(every) if near else every
            if not zone.total:
                continue
            x, y = int(rng.integers(zone.left, zone.right)), int(rng.integers(zone.top, zone.bottom))
            if bool(proof.is_certified(number, [(x, y)], side, overlap)[0]) == certified:
                yield number, x, y, certified
                found += 1
            if found == count:
                break


def grown(places: Places, by: int) -> Places:
    """The rectangle with a margin of places around it."""
    return Places(places.left - by, places.top - by, places.right + by, places.bottom + by)
