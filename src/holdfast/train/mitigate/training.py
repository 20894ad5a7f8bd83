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
BATCH: Final = 50  # images per inference batch


@dataclass(frozen=True)
class Training:
    """The settings that all rows share: initial weights, images, duration, folder.

    Trainings with the same `extra_choices`, if these include all that their rows need, share images and
    models.
    """

    model: Model
    data: Dataset
    folder: Path
    steps: int = 300
    batch: int = 64
    rate: float = 1e-3
    shift: int = 2
    jobs: int = 1  # processes, each with one thread
    extra_choices: tuple[Preprocessing, ...] = ()  # prepared even if no row needs them

    def tuning(self, row: TrainingRecipe) -> Tuning:
        """The tuning of the row."""
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
    """The trained model of each job, written to a folder with its card.

    A row is trained in one thread and is therefore reproducible on any machine.
    """

    training: Training
    choices: tuple[Preprocessing, ...]
    pictures: str  # the key of the images, on which the weights depend
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
        """The tuning of the row, and its seed."""
        return [[self.training.tuning(item.row), item.seed]]

    def is_valid(self, setup: int, data: bytes) -> bool:
        """Whether the model and its card exist and are those that were written."""
        cell = orjson.loads(data)
        files = {self.folder / name: digest for name, digest in cell["files"].items()}
        return all(path.is_file() and fingerprint.of_file(path) == digest for path, digest in files.items())

    def compute_item(self, state: None, item: TrainingJob) -> dict[str, Any]:
        """Train a model; an interrupted run resumes from its checkpoint."""
        training, row, say = self.training, item.row, self.say or (lambda text: None)
        pictures = pictures_for(training, training.data, self.choices, say)
        checkpoint = training.folder / CHECKPOINTS / f"{training.model.name}-{row.how}-{item.seed}.pt"
        name = f"{training.model.name}, {row.name}, seed {item.seed}:"
        tuning = training.tuning(row)
        with threads(1):  # parallel rows are faster, and one thread is reproducible
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


def train(training: Training, requested: Iterable[TrainingJob], say: Say) -> dict[TrainingJob, Model]:
    """Prepare the images, train the model of every job, and store each finished model."""
    jobs = tuple(dict.fromkeys(requested))
    choices = [choice for job in jobs for choice in job.row.choices]
    pictures = pictures_for(training, training.data, choices, say)
    in_process = training.jobs == 1 or len(jobs) < 2
    work = TrainWork(training, pictures.choices, pictures.key, say if in_process else None)
    store = FolderStore(training.folder / CELLS)
    missing, done = count_missing(work, jobs, store), 0
    if missing:
        say(f"{training.model.name}: training {missing} of {len(jobs)} rows")

    def step(rows: int, cached: int) -> None:
        nonlocal done
        done += rows - cached
        if rows > cached:
            say(f"{training.model.name}: trained {done} of {missing} rows")

    cells = run(work, jobs, store, jobs=training.jobs, progress=step).read()
    models = {job: cell["model"] for job, cell in zip(jobs, cells, strict=True)}
    return {job: load_model(work.folder / name) for job, name in models.items()}


def places_of(model: Model, data: Dataset) -> tuple[int, ...] | None:
    """For each class of the data its index in the model; None if the data has no class names."""
    return align(model.card.classes, data.classes).places() if data.classes else None


def pictures_for(
    training: Training, data: Dataset, choices: Sequence[Preprocessing], say: Say
) -> PreparedImages:
    """The preprocessed images of a dataset under each choice and those of `extra_choices`."""
    model, choices = training.model, tuple(dict.fromkeys((*training.extra_choices, *choices)))
    return prepare_images(model, data, choices, training.folder, training.jobs, say, places_of(model, data))


@dataclass(frozen=True)
class CorrectWork(ItemWork[Model, None]):
    """The images that each model classifies correctly."""

    pictures: PreparedImages

    def setups(self) -> list[Setup]:
        """The pictures and their classes."""
        return [Setup("train", ["right", self.pictures.key, self.pictures.labels])]

    def contents(self, item: Model) -> list[Any]:
        """The model and its card."""
        return [[item.sha256, item.card]]

    def compute_item(self, state: None, item: Model) -> Any:
        """One or zero per choice and picture."""
        predicted = np.stack([predicted_classes(item, images) for images in self.pictures.images])
        return (predicted == self.pictures.labels).astype(int).tolist()


def correct_predictions(model: Model, pictures: PreparedImages, folder: Path) -> NDArray[np.bool_]:
    """Whether each image is classified correctly under each choice, (choices, n); cached in `folder`."""
    (cell,) = run(CorrectWork(pictures), [model], FolderStore(folder / CELLS)).read()
    return np.array(cell, bool)


def predicted_classes(model: Model, images: NDArray[np.uint8]) -> NDArray[np.int64]:
    """The predicted class (n,) of each image (n, h, w, 3) before normalisation."""
    infer, options = onnxruntime(model, 1), model.card.head.options
    step = 1 if isinstance(inspect(model.path).inputs[0].shape[0], int) else BATCH  # a fixed batch
    classes = []
    for start in range(0, len(images), step):
        tensor = np.stack([normalise(image, model.card.input) for image in images[start : start + step]])
        outputs = checked(infer(tensor))
        names = options.get("outputs") or (next(iter(outputs)),)
        scores = outputs[str(names[0])]
        classes.append(scores.reshape(len(scores), -1)[:, int(options.get("skip", 0)) :].argmax(1))
    return np.concatenate(classes).astype(np.int64)
