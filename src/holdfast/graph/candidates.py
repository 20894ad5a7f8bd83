"""What heads share on the way out: activations, grids of cell centres, and the choice of candidates."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

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


def softmax(x: Tensor, axis: int = -1) -> Floats:
    """exp(x) over its sum along an axis, in double precision."""
    x = np.asarray(x, np.float64)
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return np.asarray(e / e.sum(axis=axis, keepdims=True), np.float64)


def bounded_exp(x: Tensor) -> Floats:
    """exp(x) in double precision, finite for every finite x."""
    return np.asarray(np.exp(np.minimum(np.asarray(x, np.float64), LARGEST_LOG)), np.float64)


def levels(size: Size, strides: Sequence[int], cells: int, slack: int = 1) -> list[tuple[int, int]] | None:
    """Rows and columns of each stride's map so that all maps have `cells` cells together; None if none fit.

    A network whose pooling rounds the other way has maps one larger or smaller, which `slack` allows; no cell
    moves by that.
    """
    choices = []
    for stride in strides:
        rows, columns = math.ceil(size.height / stride), math.ceil(size.width / stride)
        changes = sorted(range(-slack, slack + 1), key=abs)  # the expected size first
        choices.append([(rows + d, columns + d) for d in changes if min(rows, columns) + d > 0])
    for shapes in itertools.product(*choices):
        if sum(rows * columns for rows, columns in shapes) == cells:
            return list(shapes)
    return None


def grid(shapes: Sequence[tuple[int, int]], strides: Sequence[int]) -> tuple[Floats, Floats]:
    """Column and row (n, 2) of every cell, stride by stride and row by row, and the stride (n,) of each."""
    places, steps = [], []
    for (rows, columns), stride in zip(shapes, strides, strict=True):
        y, x = np.divmod(np.arange(rows * columns), columns)
        places.append(np.stack([x, y], axis=1).astype(np.float64))
        steps.append(np.full(rows * columns, float(stride)))
    return np.concatenate(places), np.concatenate(steps)


def nominal_stride(pixels: int, cells: int) -> int | None:
    """The power of two by which a map is smaller than the input, give or take one cell; else None."""
    stride = 2 ** round(math.log2(pixels / cells))
    return stride if abs(pixels / stride - cells) <= 1 else None


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
