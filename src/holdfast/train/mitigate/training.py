"""Rows trained from the same weights, in one process or several; what is finished is kept and not redone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from holdfast.core import fingerprint
from holdfast.core.dataset import Dataset
from holdfast.core.model import Model
from holdfast.core.sources import code_of
from holdfast.engine.workers import answers, workers
from holdfast.evaluate.classes import align
from holdfast.graph.card import card_text
from holdfast.graph.kept import Made, is_kept, kept
from holdfast.graph.load import load_model
from holdfast.train.mitigate.rows import PGD_STEPS, Row, choices_of

if TYPE_CHECKING:
    from holdfast.train.pictures import Pictures
    from holdfast.train.shown import Choice
    from holdfast.train.tune import Tuning

Say = Callable[[str], None]
MODELS: Final = "trained"
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
class Work:
    """The work of a process: orders of one training, and the choices that its pictures are made for."""

    training: Training
    choices: tuple[Choice, ...]
    pictures: str  # the key of the pictures: part of what decides the weights
    modules: tuple[str, ...] = ()  # what a worker process must load first: nothing
    files: tuple[Path, ...] = ()

    def path(self, order: Order) -> Path:
        """Where the trained model is kept: by how it is trained, its seed and a hash of what decides it."""
        return self._stem(order).with_name(f"{self._stem(order).name}.onnx")

    def is_trained(self, order: Order) -> bool:
        """Whether the trained model is there, whole and of this order."""
        return is_kept(self._stem(order), self.key(order))

    def keep(self, order: Order, make: Callable[[], Made]) -> None:
        """Make the trained model and its card unless they are there."""
        kept(self._stem(order), self.key(order), make)

    def key(self, order: Order) -> str:
        """A hash of all that decides the weights."""
        training = self.training
        given = [training.model.sha256, training.model.card, self.pictures]
        return fingerprint.of([*given, training.tuning(order.row), order.seed, code_of("train")])

    def _stem(self, order: Order) -> Path:
        name = f"{self.training.model.name}-{order.row.how}-{order.seed}-{self.key(order)[:8]}"
        return self.training.folder / MODELS / name

    def on(self, threads: int) -> Work:
        """The same work: a row is trained by one thread, and so the same anywhere."""
        return self

    def work(self, state: None, shard: Sequence[Order]) -> tuple[None, None, tuple[int, int]]:
        """Train the models of the orders."""
        for order in shard:
            train_one(self, order, lambda text: None)
        return None, None, (len(shard), 0)


def orders(rows: Sequence[Row], seeds: Sequence[int]) -> tuple[Order, ...]:
    """Every row from every seed, seed by seed."""
    return tuple(Order(row, seed) for seed in seeds for row in rows)


def train(training: Training, asked: Iterable[Order], say: Say) -> dict[Order, Model]:
    """The trained model of every order; the pictures are made first, and each finished model is kept."""
    wanted = tuple(dict.fromkeys(asked))
    choices = choices_of((*training.seen, *(pair for order in wanted for pair in order.row.seen)))
    made = pictures_for(training, training.data, choices, say)
    work = Work(training, made.choices, made.key)
    by_path = {work.path(order): order for order in wanted}  # rows that differ in their names alone are one
    waiting = [order for order in by_path.values() if not work.is_trained(order)]
    if waiting:
        say(f"{training.model.name}: {len(waiting)} of {len(by_path)} rows are to be trained")
    for done, order in enumerate(_trained(work, waiting, say), 1):
        say(f"{training.model.name}: {order.row.name}, seed {order.seed}: trained ({done} of {len(waiting)})")
    return {order: load_model(work.path(order)) for order in wanted}


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


def _trained(work: Work, orders: Sequence[Order], say: Say) -> Iterator[Order]:
    """Each order when its model is on disk; the processes end with this one, however it ends."""
    if work.training.jobs == 1 or len(orders) < 2:
        for order in orders:
            train_one(work, order, say)
            yield order
        return
    with workers(work, min(work.training.jobs, len(orders))) as staff:
        for place, _, _ in answers(staff, [(order,) for order in orders]):
            yield orders[place]


def train_one(work: Work, order: Order, say: Say) -> None:
    """Train the model and write it and its card to disk; a killed run continues from its checkpoint."""
    import torch

    from holdfast.train.tune import tune

    torch.set_num_threads(1)  # rows side by side are faster, and the same anywhere
    training, row = work.training, order.row
    pictures = pictures_for(training, training.data, work.choices, say)
    checkpoint = training.folder / CHECKPOINTS / f"{training.model.name}-{row.how}-{order.seed}.pt"
    told = f"{training.model.name}, {row.name}, seed {order.seed}:"

    def make() -> Made:
        proto = tune(training.model, pictures, training.tuning(row), order.seed, checkpoint, say, name=told)
        decode, resize = row.seen[0]
        card = dataclasses.replace(training.model.card, decode=decode, resize=resize)
        return Made({".onnx": proto.SerializeToString(), ".toml": card_text(card).encode()}, {})

    work.keep(order, make)
