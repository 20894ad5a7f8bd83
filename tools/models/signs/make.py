"""From a recipe to a shipped model: train, export, write the card, score on held-out scenes."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from holdfast.core.model import Card, Model, Task
from holdfast.graph.card import write_card
from holdfast.train.export import export
from holdfast.train.loop import Say, fit
from models.signs import INPUTS
from models.signs.recipes import RECIPES, Recipe, shortened
from models.signs.score import held_out

TASKS: dict[str, Task] = {
    "signs-yolo": "detect",
    "signs-free": "detect",
    "signs-plain": "detect",
    "signs-single": "single",
    "signs-certified": "single",
    "signs-class": "classify",
    "signs-seg": "segment",
}


@dataclass(frozen=True)
class Made:
    """A model that was made, with its held-out figure."""

    model: Model
    figure: str
    value: float


@dataclass(frozen=True)
class Order:
    """What to make and where: seed of the weights and batches, folder of pools and checkpoints, how long."""

    name: str
    out: Path
    work: Path
    seed: int = 0
    fraction: float = 1.0
    held_out: int = 1000


def make(order: Order, say: Say) -> Made:
    """The model, trained to its end (a killed run goes on), written as .onnx and .toml, and scored."""
    recipe = RECIPES[order.name](order.work, order.seed)
    job = shortened(recipe.job, order.fraction)
    checkpoint = order.work / f"{order.name}-{job.key()}.pt"
    model = write(recipe, fit(job, checkpoint, say), order.out)
    figure, value = held_out(model, order.held_out)
    say(f"{order.name}: {figure} {value:.4f} on {order.held_out} held-out pictures")
    return Made(model, figure, value)


def write(recipe: Recipe, net: nn.Module, folder: Path) -> Model:
    """Write the network and its card into the folder."""
    name = recipe.job.name
    path = folder / f"{name}.onnx"
    wanted = INPUTS[name]
    export(net, (wanted.size.height, wanted.size.width), recipe.outputs, path)
    card = Card(TASKS[name], wanted, recipe.head, recipe.classes, score=0.01)
    write_card(card, path.with_suffix(".toml"))
    return Model(name, path, card, hashlib.sha256(path.read_bytes()).hexdigest())
