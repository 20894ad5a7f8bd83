"""Models with and without TENT under decode, resize and colour noise: the paper's Table 6."""

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from holdfast.core.dataset import Dataset
from holdfast.core.errors import InputError
from holdfast.core.model import Model
from holdfast.graph.lower import load_complete_proto
from holdfast.report.tables import many
from holdfast.stages.families import ReplaceStage, family, options
from holdfast.train.mitigate.training import correct_predictions, places_of
from holdfast.train.onnx.restore import folded_convolutions, restore_batch_norm
from holdfast.train.pictures import Preprocessing, Say, prepare_images
from holdfast.train.tune import normalise_images, skipped_outputs, tent, trainable_of

FAMILIES: Final = ("decode", "resize", "colour")
CLEAN: Final = "clean"
CLEAN_BATCHES: Final = 5  # from which means and variances of folded normalisation are taken
STAGES: Final = ("decode", "resize", "colour", "fit")  # the stages of a preprocessing


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
    notes: tuple[str, ...] = ()  # which normalisation was restored

    def of(self, name: str) -> tuple[TentLoss, ...]:
        """The options of a family."""
        return tuple(drop for drop in self.drops if drop.family == name)


def adapt(
    model: Model, data: Dataset, folder: Path, how: Adaptation, say: Say, jobs: int = 1,
    over: tuple[str, ...] = FAMILIES,
) -> TentResult:  # fmt: skip
    """Measure the model with and without TENT; each option starts from the weights of the file."""
    if how.batch < 2:
        raise InputError(f"batch: expected 2 or more images per batch for TENT, got {how.batch}")
    check_restorable(model)
    default = Preprocessing(model.card.decode, model.card.resize)
    variants = {(CLEAN, CLEAN): default, **dict(noises(default, over))}
    choices, places = tuple(variants.values()), places_of(model, data)
    pictures = prepare_images(model, data, choices, folder, jobs, say, places)
    distinct = distinct_choices(pictures.images)
    accuracy = 100 * correct_predictions(model, pictures, folder).mean(1)
    order = np.random.default_rng(how.seed).permutation(len(pictures))
    rows = [np.sort(part) for part in np.array_split(order, max(1, len(order) // how.batch))]
    labels = pictures.labels[np.concatenate(rows)]
    names = list(variants)
    adapted = {}
    proto, notes = adaptable(model, (pictures.images[0][part] for part in rows[:CLEAN_BATCHES]))
    for note in notes:
        say(f"{model.name}: {note}")
    for index in distinct:
        batches = (normalise_images(pictures.images[index][part], model.card) for part in rows)
        predicted = tent(
            trainable_of(model, own=True, proto=proto), batches, how.rate, how.steps, skipped_outputs(model)
        )
        adapted[index] = 100 * float((predicted == labels).mean())
        option = "=".join(names[index]) if index else CLEAN
        say(f"{model.name}: {option}: top-1 {accuracy[index]:.2f}%, with TENT {adapted[index]:.2f}%")
    clean = float(accuracy[0])
    drops = tuple(
        TentLoss(*names[index], clean - float(accuracy[index]), clean - adapted[index])
        for index in distinct[1:]  # the first one is the clean one
    )
    known: dict[str, Any] = {"drops": drops, "how": how, "notes": notes}
    return TentResult(model.name, data.name, len(pictures), clean, adapted[0], **known)


def check_restorable(model: Model) -> None:
    """Raise InputError, with the nodes, if the model has no normalisation and none can be restored."""
    if trainable_of(model, own=True).normalisations:
        return
    folded, others = folded_convolutions(load_complete_proto(model.path))
    if not folded:
        why = "; ".join(others[:5]) or "the graph has no Conv"
        raise InputError(
            f"TENT adapts the scale and bias of normalisation layers, and {model.name} has none, nor a "
            f"convolution that one may have been folded into ({why})"
        )


def adaptable(model: Model, images: Iterable[NDArray[np.uint8]]) -> tuple[Any, tuple[str, ...]]:
    """The graph that TENT adapts, None for that of the file, and notes on what was restored in it.

    `images` are prepared clean images (b, h, w, 3), for means and variances of folded normalisation.
    """
    if trainable_of(model, own=True).normalisations:
        return None, ()
    batches = (normalise_images(part, model.card).numpy() for part in images)
    proto, names = restore_batch_norm(load_complete_proto(model.path), batches)
    listed = ", ".join(names[:5]) + (" …" if len(names) > 5 else "")
    note = "batch normalisation restored behind convolutions, with means and variances of clean images"
    return proto, (f"{note}: {many(len(names), 'node')} ({listed})",)


def noises(default: Preprocessing, over: tuple[str, ...]) -> Iterator[tuple[tuple[str, str], Preprocessing]]:
    """Yield (family, option) and its preprocessing, for all installed options that run by default.

    `over` contains families, or FAMILY=OPTION.
    """
    for word in over:
        name, _, option_name = word.partition("=")
        for option in options(family(name)):
            replacement = option.noise
            if not isinstance(replacement, ReplaceStage) or replacement.kind not in STAGES:
                continue
            variant = dataclasses.replace(default, **{replacement.kind: replacement.name})
            selected = option.name == option_name if option_name else option.default
            if selected and not option.missing and "classify" in option.tasks and variant != default:
                yield (name, option.name), variant


def distinct_choices(images: NDArray[np.uint8]) -> tuple[int, ...]:
    """The indices of choices (choices, n, h, w, 3) whose images differ from those of all earlier ones."""
    distinct: list[int] = []
    for index in range(len(images)):
        if not any(np.array_equal(images[index], images[other]) for other in distinct):
            distinct.append(index)
    return tuple(distinct)


def as_plain(result: TentResult) -> dict[str, Any]:
    """The result as JSON values."""
    return {"holdfast": 1, "kind": "tent", **dataclasses.asdict(result)}
