"""Maps of a benchmark's instance: what its file does, and what its description says."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from holdfast.core.types import Bools, Floats, Tensor
from holdfast.patchbench.positions.batches import in_batches
from holdfast.patchbench.positions.effect import Effect
from holdfast.patchbench.positions.files import Instance, kinds, open_network
from holdfast.patchbench.positions.settle import settle, ties
from holdfast.patchbench.positions.sweep import pasted, sweep
from holdfast.patchbench.positions.types import PositionMap


@dataclass(frozen=True, eq=False)
class FileMap:
    """The map of what a file does at every cell of its position inputs.

    `square` says whether the picture at every position is the clean one with the patch where the position
    says; then the map is over rows and columns of the picture, else over (first input, second input).
    """

    map: PositionMap
    square: bool


def file_map(instance: Instance, done: Effect, jobs: int = 1) -> FileMap:
    """Map what the file does; the picture at every cell is made by the file itself."""
    began, batches, told = time.perf_counter(), open_network(instance), instance.told
    (first, down), (second, across) = (
        np.unique(kinds(instance, free), return_inverse=True) for free in range(2)
    )
    places = list(itertools.product(first.tolist(), second.tolist()))

    def run(these: Sequence[tuple[int, int]]) -> list[Tensor]:
        pictures = [instance.picture_at(instance.point(place)) for place in these]
        same = [done.clean is not None and np.array_equal(picture, done.clean) for picture in pictures]
        square = [_is_described(instance, done, *made) for made in zip(these, pictures, strict=True)]
        return [np.array(same), np.array(square), *batches.run(np.concatenate(pictures), told)]

    same, square, *values = in_batches(run, places, jobs)
    settled = settle(*_read(values), instance.bar, lambda i: instance.exact(instance.point(places[i])))

    def over_cells(values: Tensor) -> Tensor:
        return values.reshape(len(first), len(second))[down][:, across]

    outputs, unchanged = over_cells(settled.outputs), int(over_cells(same).sum())
    rows, columns = (cells.middle.astype(np.float64) for cells in instance.cells)
    is_square = len(places) == outputs.size and bool(square.all())
    if is_square and done.order == "column, row":
        outputs, rows, columns = outputs.T, columns, rows
    how = "batches" if batches.many is not None and settled.believed else "one by one"
    made = PositionMap(
        outputs, rows, columns, instance.bar, clean_output(instance, done), unchanged, settled.replayed,
        settled.difference, how, time.perf_counter() - began,
    )  # fmt: skip
    return FileMap(made, is_square)


def _is_described(instance: Instance, done: Effect, place: tuple[int, int], picture: Tensor) -> bool:
    """Whether a picture is the clean one with the patch where the position says, and all of it inside."""
    if done.order is None or done.clean is None or done.content is None:
        return False
    spot = instance.point(place).astype(np.int64)
    spot = spot[::-1] if done.order == "column, row" else spot
    if (spot < 0).any() or (spot + done.content.shape[1:] > picture.shape[2:]).any():
        return False
    return np.array_equal(pasted(done.clean, done.content, spot[np.newaxis]), picture)


def described_map(instance: Instance, done: Effect, content: Tensor, jobs: int = 1) -> PositionMap:
    """Map a real square patch (c, k, k) at every place of the clean picture, in the file's network.

    Replays are run on the original file: with the picture that has the patch, at a position where the file
    itself changes nothing, if there is one; else in the part of it behind the patch.
    """
    if done.clean is None:
        raise ValueError("the file shows no picture without a patch")
    neutral = neutral_of(instance, done.clean)
    return sweep(
        open_network(instance), done.clean, content, _read,
        lambda picture: on_file(instance, picture, neutral), bar=instance.bar, told=instance.told, jobs=jobs,
    )  # fmt: skip


def on_file(instance: Instance, picture: Tensor, neutral: tuple[int, int] | None) -> float:
    """The output for a picture (1, …) as it is; by the original file, if at `neutral` it changes none."""
    if neutral is not None:
        return instance.exact(instance.point(neutral), instance.with_picture(picture))
    batches = open_network(instance)
    return float(batches.alone({**instance.told, batches.source: picture})[0].ravel()[0])


def clean_output(instance: Instance, done: Effect) -> float:
    """The output for the picture without a patch; NaN if the file never shows it."""
    if done.clean is None:
        return float("nan")
    return on_file(instance, done.clean, neutral_of(instance, done.clean))


def neutral_of(instance: Instance, clean: Tensor) -> tuple[int, int] | None:
    """A pair of cells at which the file hands on the picture as it was given; None if it never does."""
    count = instance.pixels
    if clean.size != count or not np.array_equal(clean.ravel(), instance.domain.template[:count]):
        return None  # the network reads another form of the picture
    ramp = np.linspace(0.2, 0.8, count, dtype=np.float32)
    flat = instance.with_picture(ramp)
    for place in itertools.product(*({0, len(cells) // 2, len(cells) - 1} for cells in instance.cells)):
        if np.array_equal(instance.picture_at(instance.point(place), flat).ravel(), ramp):
            return place[0], place[1]
    return None


def _read(values: Sequence[Tensor]) -> tuple[Floats, Bools]:
    """The file's output of every picture (n,), and where the class is nearly a tie.

    Without an ArgMax nothing is known of ties, and all outputs are doubtful.
    """
    if not values:
        return np.zeros(0), np.zeros(0, np.bool_)
    outputs, *scores = (np.asarray(value, np.float64) for value in values)
    doubtful = np.any([ties(one) for one in scores], axis=0) if scores else np.ones(len(outputs), np.bool_)
    return outputs[:, 0], doubtful


def black(patch: tuple[int, int], clean: Tensor) -> Tensor:
    """A black patch (c, k, k) for a picture whose values are 0 … 1."""
    return np.zeros((clean.shape[1], *patch), clean.dtype)
