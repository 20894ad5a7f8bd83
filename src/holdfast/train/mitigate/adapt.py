"""Models with and without TENT under decode, resize and colour noise: the paper's Table 6."""

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
from holdfast.train.mitigate.training import correct_predictions, places_of
from holdfast.train.pictures import Preprocessing, Say, prepare_images
from holdfast.train.tune import normalise_images, skipped_outputs, tent, trainable_of

FAMILIES: Final = ("decode", "resize", "colour")
CLEAN: Final = "clean"
STAGES: Final = ("decode", "resize", "colour", "fit")  # what a choice names


@dataclass(frozen=True)
class Adaptation:
    """How TENT runs: images per batch, learning rate of Adam, steps per batch, seed of the image order."""

    batch: int = 100
    rate: float = 1e-3
    steps: int = 1
    seed: int = 0


@dataclass(frozen=True)
class TentLoss:
    """One option: points lost against the clean accuracy without TENT, without TENT and with it."""

    family: str
    option: str
    points_lost: float
    points_lost_tent: float


@dataclass(frozen=True)
class TentResult:
    """A model on clean images without TENT and with it, in percent, and under each option."""

    model: str
    data: str
    images: int
    clean: float
    clean_adapted: float
    drops: tuple[TentLoss, ...]
    how: Adaptation = field(default_factory=Adaptation)

    def of(self, name: str) -> tuple[TentLoss, ...]:
        """The options of a family."""
        return tuple(drop for drop in self.drops if drop.family == name)


def adapt(
    model: Model, data: Dataset, folder: Path, how: Adaptation, say: Say, jobs: int = 1,
    over: tuple[str, ...] = FAMILIES,
) -> TentResult:  # fmt: skip
    """The model with and without TENT; each option starts from the weights of the file."""
    if how.batch < 2:
        raise InputError(f"batch: expected 2 or more images per batch for TENT, got {how.batch}")
    usual = Preprocessing(model.card.decode, model.card.resize)
    asked = {(CLEAN, CLEAN): usual, **dict(noises(usual, over))}
    shown = prepare_images(model, data, tuple(asked.values()), folder, jobs, say, places_of(model, data))
    kept = distinct_choices(shown.images)
    without = 100 * correct_predictions(model, shown, folder).mean(1)
    order = np.random.default_rng(how.seed).permutation(len(shown))
    rows = [np.sort(part) for part in np.array_split(order, max(1, len(order) // how.batch))]
    labels = shown.labels[np.concatenate(rows)]
    names = list(asked)
    adapted = {}
    for place in kept:
        batches = (normalise_images(shown.images[place][part], model.card) for part in rows)
        said = tent(trainable_of(model), batches, how.rate, how.steps, skipped_outputs(model))
        adapted[place] = 100 * float((said == labels).mean())
        option = "=".join(names[place]) if place else CLEAN
        say(f"{model.name}: {option}: top-1 {without[place]:.2f}%, with TENT {adapted[place]:.2f}%")
    drops = tuple(
        TentLoss(*names[place], float(without[0] - without[place]), float(without[0] - adapted[place]))
        for place in kept
        if place
    )
    clean = {"clean": float(without[0]), "clean_adapted": adapted[0]}
    return TentResult(model.name, data.name, len(shown), **clean, drops=drops, how=how)


def noises(usual: Preprocessing, over: tuple[str, ...]) -> Iterator[tuple[tuple[str, str], Preprocessing]]:
    """(family, option) and the preprocessing it gives, for all options that run by default and are installed.

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


def distinct_choices(images: NDArray[np.uint8]) -> tuple[int, ...]:
    """The indices of choices (choices, n, h, w, 3) whose images differ from those of all earlier ones."""
    kept: list[int] = []
    for place in range(len(images)):
        if not any(np.array_equal(images[place], images[other]) for other in kept):
            kept.append(place)
    return tuple(kept)


def as_plain(found: TentResult) -> dict[str, Any]:
    """The result as JSON values."""
    return {"holdfast": 1, "kind": "tent", **dataclasses.asdict(found)}
