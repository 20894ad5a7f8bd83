"""Double masking: a classifier that recovers its answer from an image with one patch (PatchCleanser)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from holdfast.core.errors import InputError, ModelError
from holdfast.core.pipeline import LoadedPipeline
from holdfast.core.types import Floats, Image, Ints, Prediction, Scores
from holdfast.stages.defence import Where, count_of, masked, masked_size, settings_of, where_of
from holdfast.stages.masks import PatchSize, SquareMasks

KEYS = ("squares", "patch", "widen", "where")
DEFAULTS = {"squares": "6", "widen": "0"}


@dataclass(frozen=True)
class DoubleMasking:
    """A classifier that sees the image with one mask of a set, and with two where the answers differ.

    If all answers agree, that is the answer. Otherwise it is the answer of a mask of the minority that stays
    the same under every second mask, and else the answer of the majority.
    """

    squares: SquareMasks = field(default_factory=lambda: SquareMasks(PatchSize(share=0.02), 6))
    where: Where = "scene"

    @classmethod
    def parse(cls, text: str) -> DoubleMasking:
        """The defence of a text such as squares=6,patch=2%; the rest is the default."""
        given = settings_of(text, KEYS)
        patch = PatchSize.parse(given.get("patch", "2%"))
        numbers = {name: count_of(name, given.get(name, plain)) for name, plain in DEFAULTS.items()}
        if not numbers["squares"]:
            raise InputError("expected squares of at least 1, got 0")
        return cls(SquareMasks(patch, numbers["squares"], numbers["widen"]), where_of(given))

    def __str__(self) -> str:
        """The text that `parse` reads."""
        own = self.squares
        return f"squares={own.per_axis},patch={own.patch.text},widen={own.widen},where={self.where}"

    def __call__(self, machine: LoadedPipeline, pixels: Image) -> Prediction:
        """The mean scores of the masks that give the answer."""
        views = MaskedViews(self, machine, pixels)
        answer = decide(views)
        agreeing = [row for row in views.first if int(np.argmax(row)) == answer]
        return Scores(np.mean(agreeing, axis=0))


@dataclass(frozen=True)
class MaskedViews:
    """The scores of one image with one mask and with two; each is computed when it is first needed."""

    defence: DoubleMasking
    machine: LoadedPipeline
    pixels: Image
    known: dict[tuple[int, ...], Floats] = field(default_factory=dict)

    @property
    def passes(self) -> int:
        """How many masked images were run."""
        return len(self.known)

    @cached_property
    def masks(self) -> Ints:
        """The masks (n, 4)."""
        return self.defence.squares.masks(masked_size(self.machine, self.pixels, self.defence.where))

    @cached_property
    def first(self) -> list[Floats]:
        """The scores with each mask."""
        return [self._scores(n) for n in range(len(self.masks))]

    @property
    def labels(self) -> list[int]:
        """The answer with each mask."""
        return [int(np.argmax(row)) for row in self.first]

    def second(self, number: int) -> Iterator[int]:
        """The answers with this mask and every other one."""
        for other in range(len(self.masks)):
            if other != number:
                yield int(np.argmax(self._scores(number, other)))

    def pairs(self) -> Iterator[int]:
        """The answers with every two masks."""
        count = len(self.masks)
        for i in range(count):
            for j in range(i + 1, count):
                yield int(np.argmax(self._scores(i, j)))

    def _scores(self, *numbers: int) -> Floats:
        key = tuple(sorted(numbers))
        if key not in self.known:
            pair = self.masks[list(key)][np.newaxis]
            (prepared,) = masked(self.machine, self.pixels, pair, self.defence.where)
            prediction = self.machine.predict(prepared)
            if not isinstance(prediction, Scores):
                raise ModelError(f"{self.machine.model.name}: expected a classifier")
            self.known[key] = prediction.values
        return self.known[key]


def decide(views: MaskedViews) -> int:
    """The answer of double masking."""
    labels = views.labels
    most = majority(labels)
    for number, label in enumerate(labels):
        if label != most and all(answer == label for answer in views.second(number)):
            return label
    return most


def majority(labels: Sequence[int]) -> int:
    """The most frequent label, of equally frequent ones the smallest."""
    counts = Counter(labels)
    return min(counts, key=lambda label: (-counts[label], label))


def all_pairs_agree(views: MaskedViews) -> bool:
    """Whether every mask and every pair of masks gives one answer: then no patch changes it."""
    labels = set(views.labels)
    if len(labels) > 1:
        return False
    return all(answer in labels for answer in views.pairs())
