"""Maps of positions: what a single-object detector says with the patch at each place."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from holdfast.core.errors import InputError
from holdfast.core.types import Bools, Floats


@dataclass(frozen=True)
class Bar:
    """Which outputs are unsafe: those up to the threshold, or, if `strict`, those below it."""

    threshold: float = 0.5
    strict: bool = False

    def unsafe(self, outputs: Floats) -> Bools:
        """Where an output is unsafe; one that is no number is."""
        safe = outputs >= self.threshold if self.strict else outputs > self.threshold
        return np.asarray(~safe)

    def __str__(self) -> str:
        return f"unsafe where output {'<' if self.strict else '≤'} {self.threshold:g}"


@dataclass(frozen=True, eq=False)
class PositionMap:
    """The output iou × equal for every position of the patch's top left corner, (rows, columns).

    `rows` and `columns` are the positions along both directions. `replayed` of them were run one by one on
    the user's file, and their outputs are those; `difference` is the largest by which the fast way was off.
    """

    outputs: Floats
    rows: Floats
    columns: Floats
    bar: Bar
    clean: float
    unchanged: int  # positions at which the picture stays as it is
    replayed: int
    difference: float
    how: str
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.outputs.shape != (len(self.rows), len(self.columns)):
            wanted = len(self.rows), len(self.columns)
            raise InputError(f"PositionMap.outputs: expected {wanted}, got {self.outputs.shape}")

    @property
    def unsafe(self) -> Bools:
        """Where (rows, columns) the output is unsafe."""
        return self.bar.unsafe(self.outputs)

    @property
    def robust(self) -> float:
        """The share of positions that are safe: the robust area."""
        return float(1.0 - self.unsafe.mean())

    @property
    def where(self) -> tuple[int, int]:
        """Row and column, as places in the map, of the smallest output; the first of equal ones."""
        flat = int(np.argmin(np.where(np.isnan(self.outputs), -np.inf, self.outputs)))
        return divmod(flat, len(self.columns))

    @property
    def minimum(self) -> float:
        """The smallest output."""
        return float(self.outputs[self.where])

    @property
    def status(self) -> str:
        """The verdict over all positions: violated (sat) if any is unsafe, else holds (unsat)."""
        return "violated" if self.unsafe.any() else "holds"
