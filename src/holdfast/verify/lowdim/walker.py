"""One thread's share of the search: its stack of open boxes, and the kernel that works on it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from holdfast.graph.ir import Array
from holdfast.verify.lowdim.load import kernel
from holdfast.verify.lowdim.pack import blocks_of, deeper, move_half
from holdfast.verify.lowdim.tables import (
    BEST_VALUE,
    CLIMBS,
    FULL,
    MARGIN,
    MOST,
    SEEN,
    SYMBOLS,
    TARGET,
    TOP,
    WANTED,
    WORST,
    Blocks,
    views,
)
from holdfast.verify.problem import Case

FIRST, USUAL = 32, 512  # boxes at a time, in the beginning and later
# So many symbols for each climb, in the beginning and later: a box with 40 takes about as long as a climb.
EARLY, SYMBOLS_A_CLIMB = 1 << 19, (80, 400)
PATIENCE = 0.15  # seconds a call of the kernel may take, about


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
        """Nothing; a point as bad as the last one is no longer worth a pause."""
        real = self.blocks.real
        real[WANTED] = min(real[WANTED], 2.0 * real[BEST_VALUE] - 1e-9)

    def share(self, other: Walker) -> None:
        """Nothing; half of the stack went to another walker that had none."""
        while len(other.blocks.lower) < self.open + 2:
            other.blocks = deeper(other.blocks)
        move_half(self.blocks, other.blocks)
