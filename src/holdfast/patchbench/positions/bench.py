"""Maps of a benchmark's instance: what its file does, and what its description says."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from holdfast.core.types import Bools, Floats, Tensor
from holdfast.patchbench.positions.files import (
    Effect,
    Head,
    Instance,
    Network,
    axis_values,
    digest,
    kinds,
    open_network,
    pictures,
    told,
)
from holdfast.patchbench.positions.local import open_crops
from holdfast.patchbench.positions.settle import settle, ties
from holdfast.patchbench.positions.sweep import sweep
from holdfast.patchbench.positions.trunk import BATCH, Trunk, over, pasted
from holdfast.patchbench.positions.types import Bar, PositionMap


@dataclass(frozen=True, eq=False)
class FileMap:
    """The map of what a file does at every cell of its position inputs.

    `square` says whether the picture at every position is the clean one with the patch where the position
    says; then the map is over rows and columns of the picture, else over (first input, second input).
    `distinct` pictures were run.
    """

    map: PositionMap
    square: bool
    distinct: int


def file_map(instance: Instance, network: Network, done: Effect, jobs: int = 1) -> FileMap:
    """The exact map of what the file does: the picture at every cell is looked at, none is assumed."""
    trunk = open_network(instance, network)
    each = all(len(np.unique(kinds(instance, i))) == len(instance.cells[i]) for i in range(2))
    square = each and done.order is not None
    if square and all(_as_said(instance, done, *made) for made in pictures(instance)):
        found, count = _square_map(instance, network, done, jobs)
        return FileMap(found, True, count)
    return _cell_map(instance, trunk, done, jobs)


def _square_map(instance: Instance, network: Network, done: Effect, jobs: int) -> tuple[PositionMap, int]:
    """The map over the picture of a file that places a square, and how many positions change the picture."""
    if done.clean is None or done.content is None:
        raise ValueError("expected a file that places a square")
    began, turned = time.perf_counter(), done.order == "column, row"
    down, across = instance.cells[::-1] if turned else instance.cells

    def replay(spot: tuple[int, int]) -> float:
        return instance.exact(np.array(spot[::-1] if turned else spot, np.float32))

    whole = _swept(instance, network, done.clean, done.content, replay, jobs, instance.bar)
    rows, columns = axis_values(down), axis_values(across)
    part = np.ix_(rows.astype(np.int64), columns.astype(np.int64))
    changed = int((~whole.same[part]).sum())
    made = PositionMap(
        whole.outputs[part], rows, columns, instance.bar, whole.before, int(whole.same[part].sum()),
        whole.replayed, whole.difference, whole.how, time.perf_counter() - began,
    )  # fmt: skip
    return made, changed


def _cell_map(instance: Instance, trunk: Trunk, done: Effect, jobs: int) -> FileMap:
    """The map over both position inputs of a file that does something else with them."""
    began, given = time.perf_counter(), told(instance)
    seen, places, same = dict[bytes, int](), list[tuple[int, int]](), set[int]()
    which = np.zeros([len(cells) for cells in instance.cells], np.int64)

    def fresh() -> Iterator[Tensor]:
        for i, j, picture in pictures(instance):
            which[i, j] = seen.setdefault(digest([picture]), len(seen))
            if which[i, j] < len(places):
                continue
            places.append((i, j))
            if done.clean is not None and np.array_equal(picture, done.clean):
                same.add(int(which[i, j]))
            yield picture

    outputs, doubtful = _read(_mapped(lambda batch: trunk.run(batch, given), fresh(), jobs))
    middles = [cells.middle for cells in instance.cells]

    def replay(n: int) -> float:
        i, j = places[n]
        return instance.exact(np.array([middles[0][i], middles[1][j]], np.float32))

    settled = settle(outputs, doubtful, instance.bar, replay)
    which = which[kinds(instance, 0)][:, kinds(instance, 1)]
    how = "batches" if trunk.many is not None and settled.believed else "one by one"
    rows, columns = (axis_values(cells) for cells in instance.cells)
    made = PositionMap(
        settled.outputs[which], rows, columns, instance.bar, clean_output(instance, trunk, done),
        int(np.isin(which, list(same)).sum()), settled.replayed, settled.difference, how,
        time.perf_counter() - began,
    )  # fmt: skip
    return FileMap(made, False, len(places))


def described_map(
    instance: Instance, network: Network, done: Effect, content: Tensor, jobs: int = 1
) -> PositionMap:
    """The map of a real square patch (c, k, k) at every place of the clean picture, in the file's network.

    Replays are run on the original file: with the picture that has the patch, at a position where the file
    itself changes nothing, if there is one; else in the part of it behind the patch.
    """
    began, trunk, clean = time.perf_counter(), open_network(instance, network), done.clean
    if clean is None:
        raise ValueError("the file shows no picture without a patch")
    neutral = neutral_of(instance, clean)

    def replay(spot: tuple[int, int]) -> float:
        return on_file(instance, trunk, pasted(trunk, clean, content, np.array([spot])), neutral)

    found = _swept(instance, network, clean, content, replay, jobs, instance.bar)
    rows, columns = np.arange(float(len(found.same))), np.arange(float(found.same.shape[1]))
    return PositionMap(
        found.outputs, rows, columns, instance.bar, found.before, int(found.same.sum()), found.replayed,
        found.difference, found.how, time.perf_counter() - began,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Swept:
    """The outputs at all places (rows, columns) of the picture, settled."""

    outputs: Floats
    same: Bools  # where the patch changes nothing
    before: float
    replayed: int
    difference: float
    how: str


def _swept(
    instance: Instance, network: Network, clean: Tensor, content: Tensor,
    replay: Callable[[tuple[int, int]], float], jobs: int, bar: Bar,
) -> _Swept:  # fmt: skip
    trunk, given, size = open_network(instance, network), told(instance), (content.shape[1], content.shape[2])
    if size not in network.crops:
        network.crops[size] = open_crops(trunk, size, given)
    swept = sweep(trunk, network.crops[size], clean, content, given, jobs)
    before = on_file(instance, trunk, clean, neutral_of(instance, clean))
    whole: Floats = np.full(swept.changed.shape, before)
    if not len(swept.spots):
        return _Swept(whole, ~swept.changed, before, 0, 0.0, swept.how)
    outputs, doubtful = _read([swept.values])
    spots = [(row, column) for row, column in swept.spots.tolist()]
    settled = settle(outputs, doubtful, bar, lambda n: replay(spots[n]))
    whole[swept.changed] = settled.outputs
    how = swept.how if settled.believed else "one by one"
    return _Swept(whole, ~swept.changed, before, settled.replayed, settled.difference, how)


def on_file(instance: Instance, trunk: Trunk, picture: Tensor, neutral: tuple[int, int] | None) -> float:
    """The output for a picture (1, …) as it is; by the original file, if at `neutral` it changes none."""
    if neutral is None:
        return float(trunk.alone_run(picture, told(instance))[0].ravel()[0])
    whole = instance.domain.template.copy()
    whole[: picture.size] = picture.ravel()
    middles = [cells.middle[i] for cells, i in zip(instance.cells, neutral, strict=True)]
    return instance.exact(np.array(middles, np.float32), whole)


def clean_output(instance: Instance, trunk: Trunk, done: Effect) -> float:
    """The output for the picture without a patch; NaN if the file never shows it."""
    if done.clean is None:
        return float("nan")
    return on_file(instance, trunk, done.clean, neutral_of(instance, done.clean))


def neutral_of(instance: Instance, clean: Tensor) -> tuple[int, int] | None:
    """A pair of cells at which the file hands on the picture as it was given; None if it never does."""
    count = int(instance.domain.free.min())
    if clean.size != count or not np.array_equal(clean.ravel(), instance.domain.template[:count]):
        return None  # the network reads another form of the picture
    grey = instance.domain.template.copy()
    grey[:count] = np.linspace(0.2, 0.8, count, dtype=np.float32)
    head = Head(instance, grey)
    for place in itertools.product(*({0, len(cells) // 2, len(cells) - 1} for cells in instance.cells)):
        point = np.array(
            [cells.middle[i] for cells, i in zip(instance.cells, place, strict=True)], np.float32
        )
        if np.array_equal(head.at(point).ravel(), grey[:count]):
            return place[0], place[1]
    return None


def _as_said(instance: Instance, done: Effect, first: int, second: int, picture: Tensor) -> bool:
    """Whether a picture is the clean one with the patch where the position says, and all of it inside."""
    if done.clean is None or done.content is None:
        return False
    point = [int(cells.middle[i]) for cells, i in zip(instance.cells, (first, second), strict=True)]
    row, column = point[::-1] if done.order == "column, row" else point
    height, width = done.content.shape[1:]
    if min(row, column) < 0 or row + height > picture.shape[2] or column + width > picture.shape[3]:
        return False
    wanted = done.clean.copy()
    there = np.s_[0, :, row : row + height, column : column + width]
    wanted[there] = over(wanted[there], done.content)
    return np.array_equal(wanted, picture)


def _read(rows: list[list[Tensor]]) -> tuple[Floats, Bools]:
    """The file's output of every picture (n,), and where the class is nearly a tie.

    Without an ArgMax to look at, nothing is known of ties, and all are in doubt.
    """
    if not rows:
        return np.zeros(0), np.zeros(0, np.bool_)
    values = [
        np.concatenate([np.asarray(v, np.float64).reshape(len(v), -1) for v in part])
        for part in zip(*rows, strict=True)
    ]
    outputs = values[0][:, 0]
    if len(values) == 1:
        return outputs, np.ones(len(outputs), np.bool_)
    return outputs, np.any([ties(scores) for scores in values[1:]], axis=0)


def _mapped(
    run: Callable[[Tensor], list[Tensor]], singles: Iterator[Tensor], jobs: int
) -> list[list[Tensor]]:
    """The outputs of single pictures, run in batches; few of them are held at a time."""
    found: list[list[Tensor]] = []
    with ThreadPoolExecutor(max(jobs, 1)) as pool:
        while batches := list(_batches(itertools.islice(singles, 4 * BATCH * max(jobs, 1)))):
            found += pool.map(run, batches)
    return found


def _batches(singles: Iterator[Tensor]) -> Iterator[Tensor]:
    while batch := list(itertools.islice(singles, BATCH)):
        yield np.concatenate(batch)


def black(patch: tuple[int, int], clean: Tensor) -> Tensor:
    """A black patch (c, k, k) for a picture whose values are 0 … 1."""
    return np.zeros((clean.shape[1], *patch), clean.dtype)
