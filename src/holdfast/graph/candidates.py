"""What heads share on the way out: activations, grids of cell centres, and the choice of candidates."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from holdfast.core.types import Floats, Ints, Size, Tensor

LARGEST_LOG = 40.0  # exp of more than this is no box size; keeps an adversarial output finite


def sigmoid(x: Tensor) -> Floats:
    """1 / (1 + exp(-x)) in double precision, without overflow."""
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * np.asarray(x, np.float64))), np.float64)


def logit(p: float) -> float:
    """The x whose sigmoid is p, a hair below so that no candidate at the threshold is lost."""
    if p <= 0.0:
        return -math.inf
    if p >= 1.0:
        return 15.0  # float32 outputs from here on have a sigmoid that rounds to 1
    return math.log(p / (1.0 - p)) - 1e-5


def softmax(x: Tensor) -> Floats:
    """exp(x) over its sum along the last axis, in double precision."""
    x = np.asarray(x, np.float64)
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return np.asarray(e / e.sum(axis=-1, keepdims=True), np.float64)


def bounded_exp(x: Tensor) -> Floats:
    """exp(x) in double precision, finite for every finite x."""
    return np.asarray(np.exp(np.minimum(np.asarray(x, np.float64), LARGEST_LOG)), np.float64)


@lru_cache(maxsize=256)
def levels(
    size: Size, strides: tuple[int, ...], cells: int, slack: int = 1
) -> tuple[tuple[int, int], ...] | None:
    """Rows and columns of each stride's map so that all maps have `cells` cells together; None if none fit.

    A network whose pools round the other way has maps up to `slack` larger or smaller, each one made of the
    one before; no cell moves by that. None, too, if more than one such row of maps fits.
    """
    expected = [[math.ceil(side / s) for s in strides] for side in (size.height, size.width)]
    if sum(r * c for r, c in zip(*expected, strict=True)) == cells:
        return tuple(zip(*expected, strict=True))
    rows, columns = (_chains(side, strides, slack) for side in expected)
    square = size.height == size.width  # then so are its maps
    fitting = []
    for r, c in zip(rows, rows, strict=True) if square else itertools.product(rows, columns):
        if sum(a * b for a, b in zip(r, c, strict=True)) == cells:
            apart = [a - b for a, b in zip((*r, *c), (*expected[0], *expected[1]), strict=True)]
            if min(apart) >= 0 or max(apart) <= 0:  # all pools round the same way
                fitting.append(tuple(zip(r, c, strict=True)))
    return fitting[0] if len(fitting) == 1 else None


def _chains(expected: Sequence[int], strides: Sequence[int], slack: int) -> list[tuple[int, ...]]:
    """The sizes along one side that the maps may have together, finest first, in the order of the strides."""
    order = sorted(range(len(strides)), key=lambda i: strides[i])
    chains: list[tuple[int, ...]] = [()]
    for at, i in enumerate(order):
        allowed = [expected[i] + d for d in range(-slack, slack + 1) if expected[i] + d > 0]
        factor, rest = divmod(strides[i], strides[order[at - 1]]) if at else (0, 0)
        chains = [
            (*chain, n)
            for chain in chains
            for n in allowed
            if not at or rest or chain[-1] // factor <= n <= chain[-1] // factor + 1
        ]
    return [tuple(chain[order.index(i)] for i in range(len(strides))) for chain in chains]


def grid(shapes: Sequence[tuple[int, int]], strides: Sequence[int]) -> tuple[Floats, Floats]:
    """Column and row (n, 2) of every cell, stride by stride and row by row, and the stride (n,) of each."""
    places, steps = [], []
    for (rows, columns), stride in zip(shapes, strides, strict=True):
        y, x = np.divmod(np.arange(rows * columns), columns)
        places.append(np.stack([x, y], axis=1).astype(np.float64))
        steps.append(np.full(rows * columns, float(stride)))
    return np.concatenate(places), np.concatenate(steps)


def nominal_stride(pixels: int, cells: int) -> int | None:
    """The power of two by which a map is smaller than the input; None if there is none, or more than one.

    A map may have a cell more or less than that says, if no other power of two says it exactly.
    """
    powers = [2**i for i in range(pixels.bit_length())]
    whole = [s for s in powers if cells in (pixels // s, -(-pixels // s))]
    near = whole or [s for s in powers if abs(pixels / s - cells) <= 1]
    return near[0] if len(near) == 1 else None


def above(scores: NDArray[np.floating], least: float, every: bool) -> tuple[Ints, Ints, Floats]:
    """Row, class and score of candidates in (n, k): all that reach `least`, or only the best of a row."""
    if every:
        rows, classes = np.nonzero(scores >= least)
    elif scores.shape[0] == 0:
        rows, classes = np.zeros(0, np.int64), np.zeros(0, np.int64)
    else:
        best = scores.argmax(axis=1)
        rows = np.flatnonzero(scores[np.arange(len(scores)), best] >= least)
        classes = best[rows]
    return rows, classes, scores[rows, classes].astype(np.float64)


def from_centres(centres: Floats, sides: Floats) -> Floats:
    """Boxes (n, 4) xyxy from centres (n, 2) and sides (n, 2)."""
    return np.concatenate([centres - 0.5 * sides, centres + 0.5 * sides], axis=1)


def upright_sides(sides: Floats, angles: Floats) -> Floats:
    """Sides (n, 2) of the smallest upright boxes around boxes rotated by angles (n,) in radians."""
    cos, sin = np.abs(np.cos(angles)), np.abs(np.sin(angles))
    width, height = sides[:, 0], sides[:, 1]
    return np.stack([width * cos + height * sin, width * sin + height * cos], axis=1)
