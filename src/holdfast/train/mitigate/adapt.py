"""Models with and without TENT under noise of decoder, resize and colour: the paper's Table 6."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from holdfast.core.dataset import Dataset
from holdfast.core.errors import InputError
from holdfast.core.model import Model
from holdfast.stages.families import ReplaceStage, family, options
from holdfast.train.mitigate.training import places_of, right
from holdfast.train.pictures import Choice, Say, pictures_of
from holdfast.train.tune import normalised, skipped, tent, trainable_of

FAMILIES: Final = ("decode", "resize", "colour")
CLEAN: Final = "clean"
STAGES: Final = ("decode", "resize", "colour", "fit")  # what a choice names


@dataclass(frozen=True)
class Adaptation:
    """How TENT is run: images a batch, learning rate of Adam, steps a batch, the order of the images."""

    batch: int = 100
    rate: float = 1e-3
    steps: int = 1
    seed: int = 0


@dataclass(frozen=True)
class Drop:
    """One option: what it costs in points, to the clean accuracy without TENT; without TENT and with it."""

    family: str
    option: str
    without: float
    adapted: float


@dataclass(frozen=True)
class Adapted:
    """A model on clean images without TENT and with it, in percent, and under each option."""

    model: str
    data: str
    images: int
    clean: float
    clean_adapted: float
    drops: tuple[Drop, ...]
    how: Adaptation = field(default_factory=Adaptation)

    def of(self, name: str) -> tuple[Drop, ...]:
        """The options of a family."""
        return tuple(drop for drop in self.drops if drop.family == name)


def adapt(
    model: Model, data: Dataset, folder: Path, how: Adaptation, say: Say, jobs: int = 1,
    over: tuple[str, ...] = FAMILIES,
) -> Adapted:  # fmt: skip
    """The model with and without TENT, its weights as in the file before each option."""
    if how.batch < 2:
        raise InputError(f"batch: expected 2 images or more, whose statistics TENT takes, got {how.batch}")
    usual = Choice(model.card.decode, model.card.resize)
    asked = {(CLEAN, CLEAN): usual, **dict(noises(usual, over))}
    shown = pictures_of(model, data, tuple(asked.values()), folder, jobs, say, places_of(model, data))
    kept = distinct(shown.images)
    without = 100 * right(model, shown, folder).mean(1)
    order = np.random.default_rng(how.seed).permutation(len(shown))
    rows = [np.sort(part) for part in np.array_split(order, max(1, len(order) // how.batch))]
    labels = shown.labels[np.concatenate(rows)]
    names = list(asked)
    adapted = {}
    for place in kept:
        batches = (normalised(shown.images[place][part], model.card) for part in rows)
        said = tent(trainable_of(model), batches, how.rate, how.steps, skipped(model))
        adapted[place] = 100 * float((said == labels).mean())
        option = "=".join(names[place]) if place else CLEAN
        say(f"{model.name}: {option}: {without[place]:.2f}, with TENT {adapted[place]:.2f}")
    drops = tuple(
        Drop(*names[place], float(without[0] - without[place]), float(without[0] - adapted[place]))
        for place in kept
        if place
    )
    clean = {"clean": float(without[0]), "clean_adapted": adapted[0]}
    return Adapted(model.name, data.name, len(shown), **clean, drops=drops, how=how)


def noises(usual: Choice, over: tuple[str, ...]) -> Iterator[tuple[tuple[str, str], Choice]]:
    """(family, option) and the choice it makes of the usual one, of all that run by default and are there.

    `over` holds families, or FAMILY=OPTION.
    """
    for word in over:
        name, _, picked = word.partition("=")
        for one in options(family(name)):
            exchange = one.noise
            if not isinstance(exchange, ReplaceStage) or exchange.kind not in STAGES:
                continue
            made = dataclasses.replace(usual, **{exchange.kind: exchange.name})
            wanted = one.name == picked if picked else one.default
            if wanted and not one.missing and "classify" in one.tasks and made != usual:
                yield (name, one.name), made


def distinct(images: NDArray[np.uint8]) -> tuple[int, ...]:
    """The places of choices (choices, n, h, w, 3) whose pictures no earlier choice has, all of them alike."""
    kept: list[int] = []
    for place in range(len(images)):
        if not any(np.array_equal(images[place], images[other]) for other in kept):
            kept.append(place)
    return tuple(kept)


def as_plain(found: Adapted) -> dict[str, Any]:
    """The table's numbers as JSON values."""
    return {"holdfast": 1, "kind": "tent", **dataclasses.asdict(found)}
