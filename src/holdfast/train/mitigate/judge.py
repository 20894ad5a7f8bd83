"""Which images a trained model gets right under each choice of decoder and resize, run in ONNX Runtime."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from holdfast.core.model import Model
from holdfast.core.pipeline import checked
from holdfast.core.types import Tensor
from holdfast.engine.cells import ItemWork, Setup, run
from holdfast.engine.store import Store
from holdfast.graph.inspect import inspect
from holdfast.stages.infer import onnxruntime
from holdfast.stages.normalise import card as normalise

if TYPE_CHECKING:
    from holdfast.train.pictures import Pictures

BATCH: Final = 50
CELLS: Final = "cells"


@dataclass(frozen=True)
class RightWork(ItemWork[Model, None]):
    """Which pictures each model classifies right."""

    pictures: Pictures

    def setups(self) -> list[Setup]:
        """The pictures and their classes."""
        return [Setup("train", ["right", self.pictures.key, self.pictures.labels])]

    def contents(self, item: Model) -> list[Any]:
        """The model and its card."""
        return [[item.sha256, item.card]]

    def open(self, threads: int) -> None:
        """Open nothing: each model is opened for itself."""

    def compute_item(self, state: None, item: Model) -> str:
        """A bit per choice and picture."""
        said = np.stack([answers(item, images) for images in self.pictures.images])
        return base64.b64encode(np.packbits(said == self.pictures.labels).tobytes()).decode("ascii")


def right(model: Model, pictures: Pictures, folder: Path) -> NDArray[np.bool_]:
    """Right or wrong (choices, n) of every picture under every choice; stored in `folder`, not run again."""
    (packed,) = run(RightWork(pictures), [model], Store(folder / CELLS)).read()
    shape = (len(pictures.choices), len(pictures))
    bits = np.unpackbits(np.frombuffer(base64.b64decode(packed), np.uint8), count=shape[0] * shape[1])
    return bits.reshape(shape).astype(bool)


def answers(model: Model, images: NDArray[np.uint8]) -> NDArray[np.int64]:
    """The class (n,) the model says of each picture (n, h, w, 3), as it is before normalisation."""
    run = onnxruntime(model, 1)
    skip = int(model.card.head.options.get("skip", 0))
    step = BATCH if _any_batch(model) else 1
    said = []
    for at in range(0, len(images), step):
        tensor = np.stack([normalise(image, model.card.input) for image in images[at : at + step]])
        said.append(_scores(run(tensor), model)[:, skip:].argmax(1))
    return np.concatenate(said).astype(np.int64)


def _any_batch(model: Model) -> bool:
    """Whether the file takes any number of images at once."""
    return not isinstance(inspect(model.path).inputs[0].shape[0], int)


def _scores(found: Mapping[str, Tensor], model: Model) -> Tensor:
    """The scores (n, k) of a batch, from the output the card names or the first."""
    names = model.card.head.options.get("outputs") or (next(iter(found)),)
    scores = checked(found)[str(names[0])]
    return scores.reshape(len(scores), -1)
