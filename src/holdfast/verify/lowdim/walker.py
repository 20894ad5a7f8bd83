"""One thread's share of the search: its stack of open boxes, and the kernel that works on it."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.core.errors import MissingExtra
from holdfast.graph.ir import Array
from holdfast.verify.lowdim.layers import Layer, Layers
from holdfast.verify.lowdim.tables import (
    BEST_VALUE,
    CLIMBS,
    FULL,
    KINDS,
    MARGIN,
    MOST,
    RANDOM,
    SEEN,
    SYMBOLS,
    TARGET,
    TOP,
    WANTED,
    WORST,
    Blocks,
    Sizes,
    shapes,
    views,
)
from holdfast.verify.problem import Case, first_float, last_float
from holdfast.verify.rounding import EXTRA, MERGED, UNIT, gamma

_SMALLEST = Sizes(1, 1, 1, 1, 1, 1, 1, 1, 1)
SURE = 2e-4  # a bound above this is not improved any more: float32 runtimes differ by less
WORK = 1 << 28  # products for the forms of one box, at most; more symbols are pooled
PHASES = 1024  # rows of fixed phases in a program, at most
CUTS = 32  # room for cuts
DEPTH = 64  # boxes on a new stack
FIRST, USUAL = 32, 512  # boxes at a time, in the beginning and later
# So many symbols for each climb, in the beginning and later: a box with 40 takes about as long as a climb.
EARLY, SYMBOLS_A_CLIMB = 1 << 19, (80, 400)
PATIENCE = 0.15  # seconds a call of the kernel may take, about


@cache
def kernel() -> Any:
    """The compiled walk: `Blocks` in, the reason why it paused out. Compiling takes half a minute."""
    walk = _walk()
    walk.compile(_signature())
    return walk


def ready() -> bool:
    """Whether compiled kernels are in memory or in the cache."""
    walk = _walk()
    return bool(walk.overloads) or walk._cache.load_overload(_signature(), walk.targetctx) is not None


@cache
def _walk() -> Any:
    try:
        from holdfast.verify.lowdim.walk import cached_walk
    except ImportError as missing:
        raise MissingExtra("a proof", "numba", "verify") from missing
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return cached_walk(digest.hexdigest())


@cache
def _signature() -> tuple[Any]:
    """The argument types of the walk."""
    from numba import typeof

    blocks = (np.zeros(shape, kind) for shape, kind in zip(shapes(_SMALLEST), KINDS, strict=True))
    return (typeof(Blocks(*blocks)),)


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
        2.0 * UNIT * (max(part.weight.shape) + part.terms + MERGED + 8)
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
    """Put the whole box of the cases on the stack, one unit in the last place wider."""
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
    """Move the lower half of one stack, mostly the larger boxes, to another that is empty."""
    held = int(giver.whole[TOP]) + 1
    count = held // 2
    for name, block in _stacked(giver).items():
        other = getattr(taker, name)
        other[:count] = block[:count]
        block[: held - count] = block[count:held].copy()
    giver.whole[TOP], taker.whole[TOP] = held - count - 1, count - 1


def _stacked(blocks: Blocks) -> dict[str, Array]:
    return {name: getattr(blocks, name) for name in ("lower", "upper", "phase", "alive")}


class Walker:
    """A stack of open boxes and what was met on the way; `walk` works on it."""

    def __init__(
        self,
        net: tuple[Array, ...],
        cases: Sequence[Case],
        target: float,
        seed: int,
        dtype: np.dtype[Any] | type = np.float32,
    ) -> None:
        self.blocks: Blocks = blocks_of(net, cases, seed, dtype=dtype)
        self.blocks.real[TARGET] = target
        self.boxes = FIRST
        self._kernel = kernel()

    def walk(self, climbs: int) -> int:
        """Why the kernel paused, after some climbs and boxes."""
        whole, real = self.blocks.whole, self.blocks.real
        whole[MOST], whole[CLIMBS] = self.boxes, climbs
        real[WORST], real[BEST_VALUE] = np.inf, np.inf
        began, before = time.monotonic(), int(whole[SEEN])
        code = self._kernel(self.blocks)
        while code == FULL:
            self.blocks = deeper(self.blocks)
            whole[CLIMBS] = 0
            code = self._kernel(self.blocks)
        took = time.monotonic() - began
        if took > PATIENCE:
            self.boxes = max(1, self.boxes // 2)
        elif whole[SEEN] - before == self.boxes < USUAL and took < PATIENCE / 4:
            self.boxes *= 2
        return int(code)

    def fair_climbs(self) -> int:
        """How many climbs to make with the next boxes: a third of the time at first, less later."""
        symbols, seen = int(self.blocks.whole[SYMBOLS]), max(self.seen, 1)
        return 1 + self.boxes * symbols // seen // SYMBOLS_A_CLIMB[symbols > EARLY]

    @property
    def open(self) -> int:
        """How many boxes are on the stack."""
        return int(self.blocks.whole[TOP]) + 1

    @property
    def seen(self) -> int:
        """How many boxes were looked at."""
        return int(self.blocks.whole[SEEN])

    @property
    def margin(self) -> float:
        """The smallest bound a box was settled by."""
        return float(self.blocks.real[MARGIN])

    @property
    def worst(self) -> float:
        """The lowest bound of a box that was not settled, in the last walk."""
        return float(self.blocks.real[WORST])

    def point(self) -> Array:
        """The best point of the last walk, or that of the leaf it ended at."""
        return views(self.blocks)[3].point.copy()

    def refuse(self) -> None:
        """Do not pause again at a point as bad as the last one."""
        real = self.blocks.real
        real[WANTED] = min(real[WANTED], 2.0 * real[BEST_VALUE] - 1e-9)

    def share(self, other: Walker) -> None:
        """Give half of the stack to another walker that has none."""
        while len(other.blocks.lower) < self.open + 2:
            other.blocks = deeper(other.blocks)
        move_half(self.blocks, other.blocks)
