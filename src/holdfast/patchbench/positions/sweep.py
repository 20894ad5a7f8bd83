"""A patch at every position of one picture: the pictures, and the map of their outputs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from holdfast.core.types import Bools, Floats, Ints, Tensor
from holdfast.patchbench.positions.batches import Batches, Values, in_batches
from holdfast.patchbench.positions.settle import settle
from holdfast.patchbench.positions.types import Bar, PositionMap

# Raw outputs (n, m) each -> the map's outputs (n,), and where they are doubtful.
Read = Callable[[list[Tensor]], tuple[Floats, Bools]]


def over(under: Tensor, content: Tensor) -> Tensor:
    """Lay a patch over what is under it; where a masked array is masked, the picture shows through."""
    return np.where(np.ma.getmaskarray(content), under, np.ma.getdata(content))


def pasted(clean: Tensor, content: Tensor, spots: Ints, last: bool = False) -> Tensor:
    """Lay a patch over a picture (1, …), once for each position (n, 2) of its top left corner; (n, …).

    The patch is (c, k, k), or (k, k, c) if the channels are the last axis.
    """
    made = np.repeat(clean, len(spots), axis=0)
    height, width = content.shape[:2] if last else content.shape[1:]
    for picture, (row, column) in zip(made, spots.tolist(), strict=True):
        square = slice(row, row + height), slice(column, column + width)
        there = (*square, slice(None)) if last else (slice(None), *square)
        picture[there] = over(picture[there], content)
    return made


def changing(clean: Tensor, content: Tensor, last: bool = False) -> Bools:
    """For every position (rows, columns) of the patch whether it changes the picture."""
    if last:
        clean, content = clean.transpose(0, 3, 1, 2), content.transpose(2, 0, 1)
    views = np.lib.stride_tricks.sliding_window_view(clean[0], content.shape[1:], (1, 2))
    data, seen = np.ma.getdata(content), ~np.ma.getmaskarray(content)
    differs = (views != data[:, np.newaxis, np.newaxis]) & seen[:, np.newaxis, np.newaxis]
    return np.asarray(differs.any(axis=(0, 3, 4)))


def sweep(
    batches: Batches, clean: Tensor, content: Tensor, read: Read, replay: Callable[[Tensor], float], *,
    bar: Bar, told: Values | None = None, last: bool = False, jobs: int = 1,
) -> PositionMap:  # fmt: skip
    """Map a patch at every position of a picture (1, …).

    The patch is laid over the tensor as it is, so both must be normalised. Positions at which it changes
    nothing have the output of the clean picture. `replay` gives the output of one picture (1, …) by the
    user's file.
    """
    began = time.perf_counter()
    changed = changing(clean, content, last)
    spots = np.argwhere(changed)

    def run(number: Sequence[int]) -> list[Tensor]:
        return batches.run(pasted(clean, content, spots[number], last), told or {})

    outputs, doubtful = read(in_batches(run, range(len(spots)), jobs))
    before = replay(clean)
    settled = settle(outputs, doubtful, bar, lambda i: replay(pasted(clean, content, spots[[i]], last)))
    whole: Floats = np.full(changed.shape, before)
    whole[changed] = settled.outputs
    rows, columns = (np.arange(float(size)) for size in whole.shape)
    how = "batches" if batches.many is not None and settled.believed else "one by one"
    return PositionMap(
        whole, rows, columns, bar, before, int((~changed).sum()), settled.replayed, settled.difference, how,
        time.perf_counter() - began,
    )  # fmt: skip
