"""Rows trained from the same weights, and their correct predictions; finished work is cached."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import orjson
from numpy.typing import NDArray

from holdfast.core import fingerprint
from holdfast.core.dataset import Dataset
from holdfast.core.model import Model
from holdfast.core.pipeline import checked
from holdfast.engine.cells import ItemWork, Setup, count_missing, run
from holdfast.engine.store import FolderStore, write_atomic
from holdfast.evaluate.classes import align
from holdfast.graph.card import card_text
from holdfast.graph.inspect import inspect
from holdfast.graph.load import load_model
from holdfast.stages.infer import onnxruntime
from holdfast.stages.normalise import card as normalise
from holdfast.train.loop import threads
from holdfast.train.mitigate.rows import PGD_STEPS, TrainingRecipe
from holdfast.train.pictures import PreparedImages, Preprocessing, Say, prepare_images
from holdfast.train.tune import Tuning, tune

MODELS: Final = "trained"
CELLS: Final = "cells"
CHECKPOINTS: Final = "checkpoints"
BATCH: Final = 50  # images that are judged at once


@dataclass(frozen=True)
class Training:
    """What every row has in common: the weights it starts from, the images, how long, where it is kept.

    Trainings with the same `seen`, which hold all that their rows need, share pictures and models.
    """

    model: Model
    data: Dataset
    folder: Path
    steps: int = 300
    batch: int = 64
    rate: float = 1e-3
    shift: int = 2
    jobs: int = 1  # processes, each with one thread
    seen: tuple[Preprocessing, ...] = ()  # that pictures are made for even if no row needs them

    def tuning(self, row: TrainingRecipe) -> Tuning:
        """How the row is trained."""
        return Tuning(
            self.steps,
            self.batch,
            self.rate,
            mix=tuple(dict.fromkeys(row.choices)),
            augment=row.augment,
            adversarial=row.adversarial,
            shift=self.shift,
            adversarial_steps=PGD_STEPS,
        )


@dataclass(frozen=True)
class TrainingJob:
    """A row to be trained from a seed."""

    row: TrainingRecipe
    seed: int


TrainedModels: TypeAlias = Mapping[TrainingJob, Model]


@dataclass(frozen=True)
class TrainWork(ItemWork[TrainingJob, None]):
    """The trained model of each order, written to a folder with its card.

    A row is trained by one thread, and so gives the same model anywhere.
    """

    training: Training
    choices: tuple[Preprocessing, ...]
    pictures: str  # the key of the pictures: part of what decides the weights
    say: Say | None = None  # for training in this process

    @property
    def folder(self) -> Path:
        """Where trained models are written."""
        return self.training.folder / MODELS

    def setups(self) -> list[Setup]:
        """The model and the pictures."""
        training = self.training
        return [Setup("train", ["row", training.model.sha256, training.model.card, self.pictures])]

    def contents(self, item: TrainingJob) -> list[Any]:
        """How the row is trained, and its seed."""
        return [[self.training.tuning(item.row), item.seed]]

    def is_valid(self, setup: int, data: bytes) -> bool:
        """Whether the model and its card are there, and are those that were written."""
        cell = orjson.loads(data)
        files = {self.folder / name: digest for name, digest in cell["files"].items()}
        return all(path.is_file() and fingerprint.of_file(path) == digest for path, digest in files.items())

    def compute_item(self, state: None, item: TrainingJob) -> dict[str, Any]:
        """Train a model; a killed run continues from its checkpoint."""
        training, row, say = self.training, item.row, self.say or (lambda text: None)
        pictures = pictures_for(training, training.data, self.choices, say)
        checkpoint = training.folder / CHECKPOINTS / f"{training.model.name}-{row.how}-{item.seed}.pt"
        name = f"{training.model.name}, {row.name}, seed {item.seed}:"
        tuning = training.tuning(row)
        with threads(1):  # rows side by side are faster, and the same anywhere
            proto = tune(training.model, pictures, tuning, item.seed, checkpoint, say, name=name)
        first = row.choices[0]
        card = dataclasses.replace(training.model.card, decode=first.decode, resize=first.resize)
        contents = {".onnx": proto.SerializeToString(), ".toml": card_text(card).encode()}
        digest = fingerprint.of([self.setups()[0].name, *self.contents(item)])[:8]
        stem = f"{training.model.name}-{row.how}-{item.seed}-{digest}"
        for suffix, data in contents.items():
            write_atomic(self.folder / f"{stem}{suffix}", data)
        files = {f"{stem}{suffix}": fingerprint.of_bytes(data) for suffix, data in contents.items()}
        return {"model": f"{stem}.onnx", "files": files}


def training_jobs(rows: Sequence[TrainingRecipe], seeds: Sequence[int]) -> tuple[TrainingJob, ...]:
    """Every row from every seed, seed by seed."""
    return tuple(TrainingJob(row, seed) for seed in seeds for row in rows)


def train(training: Training, asked: Iterable[TrainingJob], say: Say) -> dict[TrainingJob, Model]:
    """The trained model of every order; the pictures come first, and each finished model is stored."""
    wanted = tuple(dict.fromkeys(asked))
    choices = [choice for order in wanted for choice in order.row.choices]
    pictures = pictures_for(training, training.data, choices, say)
    alone = training.jobs == 1 or len(wanted) < 2
    work = TrainWork(training, pictures.choices, pictures.key, say if alone else None)
    store = FolderStore(training.folder / CELLS)
    missing, done = count_missing(work, wanted, store), 0
    if missing:
        say(f"{training.model.name}: training {missing} of {len(wanted)} rows")

    def step(rows: int, found: int) -> None:
        nonlocal done
        done += rows - found
        if rows > found:
            say(f"{training.model.name}: trained {done} of {missing} rows")

    cells = run(work, wanted, store, jobs=training.jobs, progress=step).read()
    models = {order: cell["model"] for order, cell in zip(wanted, cells, strict=True)}
    return {order: load_model(work.folder / name) for order, name in models.items()}


def places_of(model: Model, data: Dataset) -> tuple[int, ...] | None:
    """For each class of the data its place among the model's; None if the data does not name its classes."""
    return align(model.card.classes, data.classes).places() if data.classes else None


def pictures_for(
    training: Training, data: Dataset, choices: Sequence[Preprocessing], say: Say
) -> PreparedImages:
    """The images of a dataset under each choice and those of `seen`, as the network gets them."""
    model, choices = training.model, tuple(dict.fromkeys((*training.seen, *choices)))
    return prepare_images(model, data, choices, training.folder, training.jobs, say, places_of(model, data))


@dataclass(frozen=True)
class CorrectWork(ItemWork[Model, None]):
    """Which pictures each model classifies right."""

    pictures: PreparedImages

    def setups(self) -> list[Setup]:
        """The pictures and their classes."""
        return [Setup("train", ["right", self.pictures.key, self.pictures.labels])]

    def contents(self, item: Model) -> list[Any]:
        """The model and its card."""
        return [[item.sha256, item.card]]

    def compute_item(self, state: None, item: Model) -> Any:
        """One or zero per choice and picture."""
        said = np.stack([predicted_classes(item, images) for images in self.pictures.images])
        return (said == self.pictures.labels).astype(int).tolist()


def correct_predictions(model: Model, pictures: PreparedImages, folder: Path) -> NDArray[np.bool_]:
    """Right or wrong (choices, n) of every picture under every choice; stored in `folder`, not run again."""
    (cell,) = run(CorrectWork(pictures), [model], FolderStore(folder / CELLS)).read()
    return np.array(cell, bool)


def predicted_classes(model: Model, images: NDArray[np.uint8]) -> NDArray[np.int64]:
    """The class (n,) the model says of each picture (n, h, w, 3), as it is before normalisation."""
    infer, options = onnxruntime(model, 1), model.card.head.options
    step = 1 if isinstance(inspect(model.path).inputs[0].shape[0], int) else BATCH  # a batch that is fixed
    said = []
    for at in range(0, len(images), step):
        tensor = np.stack([normalise(image, model.card.input) for image in images[at : at + step]])
        found = checked(infer(tensor))
        names = options.get("outputs") or (next(iter(found)),)
        scores = found[str(names[0])]
        said.append(scores.reshape(len(scores), -1)[:, int(options.get("skip", 0)) :].argmax(1))
    return np.concatenate(said).astype(np.int64)
