"""A net and the cases of one box as blocks of memory for the kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from holdfast.graph.ir import Array
from holdfast.verify.domain import first_float, last_float
from holdfast.verify.lowdim.layers import Layers
from holdfast.verify.lowdim.linear import Layer
from holdfast.verify.lowdim.tables import (
    BEST_VALUE,
    KINDS,
    MARGIN,
    RANDOM,
    TARGET,
    TOP,
    WANTED,
    WORST,
    Blocks,
    Sizes,
    shapes,
    views,
)
from holdfast.verify.problem import Case
from holdfast.verify.rounding import EXTRA, gamma

U = 2.0**-53
MERGED = 16  # roundings that a weight may have had when the net was read: folded scales and the like
SURE = 2e-4  # a bound above this is not improved any more: float32 runtimes differ by less
WORK = 1 << 28  # products for the forms of one box, at most; more symbols are pooled
PHASES = 1024  # rows of fixed phases in a program, at most
CUTS = 32  # room for cuts
DEPTH = 64  # boxes on a new stack


def net_blocks(layers: Layers, cases: Sequence[Case]) -> tuple[Array, ...]:
    """The first blocks: the net, its last layer giving the rows of the cases."""
    rows = np.concatenate([case.rows for case in cases])
    bound = np.concatenate([case.bound for case in cases])
    ties = [np.zeros((len(c.bound), len(c.lower))) if c.inputs is None else c.inputs for c in cases]
    tied = any(case.inputs is not None for case in cases)
    parts: list[Layer] = [*layers.hidden, layers.rows(rows, np.concatenate(ties) if tied else None, bound)]
    sizes = [parts[0].weight.shape[1], *(len(part.bias) for part in parts)]
    first = np.cumsum([0, *sizes[1:]])
    at = np.cumsum([0, *(part.weight.size for part in parts)])
    matrix = [
        np.concatenate([part.weight.ravel() for part in parts]),
        np.concatenate([part.weight.T.ravel() for part in parts]),
        np.concatenate([part.size.T.ravel() for part in parts]),
    ]
    bias = [
        np.concatenate([getattr(part, name) for part in parts]) for name in ("bias", "bias_size", "slope")
    ]
    unit = [
        2.0 * U * (max(part.weight.shape) + part.terms + MERGED + 8)
        + gamma(part.weight.shape[1] + part.terms + EXTRA, layers.roundoff)
        for part in parts
    ]
    start = np.cumsum([0, *(len(case.bound) for case in cases)])
    made = (np.array([sizes, first, at]), np.array(matrix), np.array(bias), np.array(unit), start)
    return tuple(np.ascontiguousarray(block, kind) for block, kind in zip(made, KINDS, strict=False))


def blocks_of(
    net: tuple[Array, ...],
    cases: Sequence[Case],
    seed: int,
    depth: int = DEPTH,
    dtype: np.dtype[Any] | type = np.float32,
) -> Blocks:
    """Blocks for one thread, with an empty stack; witnesses are of the input's type."""
    shape, matrix, bias, unit, start = net
    inputs, hidden, weights = int(shape[0, 0]), int(shape[1, -2]), max(matrix.shape[1], 1)
    symbols = inputs + max(1, min(hidden, max(16, WORK // weights)))
    rows = 2 * int(np.diff(start).max()) + min(hidden, PHASES) + CUTS
    sizes = Sizes(
        layers=len(unit),
        weights=matrix.shape[1],
        neurons=bias.shape[1],
        cases=len(start) - 1,
        inputs=inputs,
        widest=int(shape[0].max()),
        symbols=symbols,
        rows=rows,
        depth=depth,
    )
    made = [np.zeros(shape, kind) for shape, kind in zip(shapes(sizes), KINDS, strict=True)]
    blocks = Blocks(*net, *made[len(net) :])  # type: ignore[arg-type]
    _set_limits(blocks, cases[0], seed, dtype)
    return blocks


def _set_limits(blocks: Blocks, case: Case, seed: int, dtype: np.dtype[Any] | type) -> None:
    """Set where witnesses may lie and how far boxes are split."""
    stack = views(blocks)[3]
    ends = first_float(case.lower, dtype), last_float(case.upper, dtype)
    low, high = (end.astype(np.float64) for end in ends)
    possible = bool((low <= high).all())
    stack.lower32[:] = low if possible else case.lower
    stack.upper32[:] = high if possible else case.upper
    size = np.maximum(np.abs(case.lower), np.abs(case.upper))
    stack.floor[:] = 1e-9 * (case.upper - case.lower) + 1e-14 * size + 1e-300
    for place in (MARGIN, WORST, BEST_VALUE):
        blocks.real[place] = np.inf
    blocks.real[WANTED] = 0.0 if possible else -np.inf
    blocks.real[TARGET] = SURE
    blocks.whole[TOP] = -1
    blocks.whole[RANDOM] = 1 + seed % 2147483645


def put_box(blocks: Blocks, case: Case) -> None:
    """Nothing; the whole box of the cases on the stack, one unit in the last place wider."""
    stack = views(blocks)[3]
    blocks.whole[TOP] = top = int(blocks.whole[TOP]) + 1
    stack.lower[top] = np.nextafter(case.lower, -np.inf)
    stack.upper[top] = np.nextafter(case.upper, np.inf)
    stack.phase[top] = 0
    stack.alive[top] = 1


def deeper(blocks: Blocks) -> Blocks:
    """The same blocks with room for twice as many boxes on the stack."""
    grown = {name: np.concatenate([block, np.zeros_like(block)]) for name, block in _stacked(blocks).items()}
    return blocks._replace(**grown)


def move_half(giver: Blocks, taker: Blocks) -> None:
    """Nothing; the lower half of one stack is on another that was empty: the larger boxes, mostly."""
    held = int(giver.whole[TOP]) + 1
    count = held // 2
    for name, block in _stacked(giver).items():
        other = getattr(taker, name)
        other[:count] = block[:count]
        block[: held - count] = block[count:held].copy()
    giver.whole[TOP], taker.whole[TOP] = held - count - 1, count - 1


def _stacked(blocks: Blocks) -> dict[str, Array]:
    return {name: getattr(blocks, name) for name in ("lower", "upper", "phase", "alive")}
