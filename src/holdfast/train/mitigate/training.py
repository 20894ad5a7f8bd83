"""Rows trained from the same weights, in one process or several; what is finished is kept and not redone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import orjson

from holdfast.core import fingerprint
from holdfast.core.dataset import Dataset
from holdfast.core.model import Model
from holdfast.engine.cells import ItemWork, Setup, count_missing, run
from holdfast.engine.store import Store, write_atomic
from holdfast.evaluate.classes import align
from holdfast.graph.card import card_text
from holdfast.graph.load import load_model
from holdfast.train.mitigate.rows import PGD_STEPS, Row, choices_of

if TYPE_CHECKING:
    from holdfast.train.pictures import Pictures
    from holdfast.train.shown import Choice
    from holdfast.train.tune import Tuning

Say = Callable[[str], None]
MODELS: Final = "trained"
CELLS: Final = "cells"
CHECKPOINTS: Final = "checkpoints"


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
    seen: tuple[tuple[str, str], ...] = ()  # pairs that pictures are made for even if no row needs them

    def tuning(self, row: Row) -> Tuning:
        """How the row is trained."""
        from holdfast.train.tune import Tuning

        return Tuning(
            self.steps, self.batch, self.rate, row.choices, row.augment, row.adversarial, self.shift,
            adversarial_steps=PGD_STEPS,
        )  # fmt: skip


@dataclass(frozen=True)
class Order:
    """A row to be trained from a seed."""

    row: Row
    seed: int


Trained: TypeAlias = Mapping[Order, Model]


@dataclass(frozen=True)
class TrainWork(ItemWork[Order, None]):
    """The trained model of each order, written to a folder with its card.

    A row is trained by one thread, and so gives the same model anywhere.
    """

    training: Training
    choices: tuple[Choice, ...]
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

    def contents(self, item: Order) -> list[Any]:
        """How the row is trained, and its seed."""
        return [[self.training.tuning(item.row), item.seed]]

    def open(self, threads: int) -> None:
        """Open nothing: pictures are opened for each row."""

    def is_valid(self, setup: int, data: bytes) -> bool:
        """Whether the model and its card are there, and are those that were written."""
        cell = orjson.loads(data)
        files = {self.folder / name: digest for name, digest in cell["files"].items()}
        return all(path.is_file() and fingerprint.of_file(path) == digest for path, digest in files.items())

    def compute_item(self, state: None, item: Order) -> dict[str, Any]:
        """Train a model; a killed run continues from its checkpoint."""
        from holdfast.train.loop import threads
        from holdfast.train.tune import tune

        training, row, say = self.training, item.row, self.say or _silent
        pictures = pictures_for(training, training.data, self.choices, say)
        checkpoint = training.folder / CHECKPOINTS / f"{training.model.name}-{row.how}-{item.seed}.pt"
        name = f"{training.model.name}, {row.name}, seed {item.seed}:"
        tuning = training.tuning(row)
        with threads(1):  # rows side by side are faster, and the same anywhere
            proto = tune(training.model, pictures, tuning, item.seed, checkpoint, say, name=name)
        decode, resize = row.seen[0]
        card = dataclasses.replace(training.model.card, decode=decode, resize=resize)
        contents = {".onnx": proto.SerializeToString(), ".toml": card_text(card).encode()}
        digest = fingerprint.of([self.setups()[0].name, *self.contents(item)])[:8]
        stem = f"{training.model.name}-{row.how}-{item.seed}-{digest}"
        for suffix, data in contents.items():
            write_atomic(self.folder / f"{stem}{suffix}", data)
        files = {f"{stem}{suffix}": fingerprint.of_bytes(data) for suffix, data in contents.items()}
        return {"model": f"{stem}.onnx", "files": files}


def orders(rows: Sequence[Row], seeds: Sequence[int]) -> tuple[Order, ...]:
    """Every row from every seed, seed by seed."""
    return tuple(Order(row, seed) for seed in seeds for row in rows)


def train(training: Training, asked: Iterable[Order], say: Say) -> dict[Order, Model]:
    """The trained model of every order; the pictures come first, and each finished model is stored."""
    wanted = tuple(dict.fromkeys(asked))
    choices = choices_of((*training.seen, *(pair for order in wanted for pair in order.row.seen)))
    pictures = pictures_for(training, training.data, choices, say)
    alone = training.jobs == 1 or len(wanted) < 2
    work = TrainWork(training, pictures.choices, pictures.key, say if alone else None)
    store = Store(training.folder / CELLS)
    missing, done = count_missing(work, wanted, store), 0
    if missing:
        say(f"{training.model.name}: {missing} of {len(wanted)} rows are to be trained")

    def step(rows: int, found: int) -> None:
        nonlocal done
        done += rows - found
        if rows > found:
            say(f"{training.model.name}: trained {done} of {missing}")

    cells = run(work, wanted, store, jobs=training.jobs, progress=step).read()
    models = {order: cell["model"] for order, cell in zip(wanted, cells, strict=True)}
    return {order: load_model(work.folder / name) for order, name in models.items()}


def places_of(model: Model, data: Dataset) -> tuple[int, ...] | None:
    """For each class of the data its place among the model's; None if the data does not name its classes."""
    if not data.classes:
        return None
    return align(model.card.classes, data.classes).places()


def pictures_for(training: Training, data: Dataset, choices: Sequence[Choice], say: Say) -> Pictures:
    """The pictures of a data set as the network is shown them under each choice."""
    from holdfast.train.pictures import pictures_of

    return pictures_of(
        training.model, data, choices, training.folder, training.jobs, say, places_of(training.model, data)
    )  # fmt: skip


def _silent(text: str) -> None:
    return None
