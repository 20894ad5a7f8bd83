"""A specification as cases: boxes of inputs, each with linear rows that an unsafe output meets."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from holdfast.core.types import Floats


@dataclass(frozen=True, eq=False)
class Disjunct:
    """Inputs of [lower, upper] (n,) with rows (m, k) @ y + inputs (m, n) @ x <= bound (m,) are unsafe.

    `inputs` is None when no row names an input. Where `strict` (m,) is set the row was written with < or >.
    Cases of one specification share their arrays where they are equal.
    """

    lower: Floats
    upper: Floats
    rows: Floats
    bound: Floats
    strict: NDArray[np.bool_]
    inputs: Floats | None = None

    def __eq__(self, other: object) -> bool:
        """Whether the other says the same, number by number."""
        if not isinstance(other, Disjunct):
            return NotImplemented
        pairs = (
            (self.lower, other.lower),
            (self.upper, other.upper),
            (self.rows, other.rows),
            (self.bound, other.bound),
            (self.strict, other.strict),
        )
        if (self.inputs is None) != (other.inputs is None):
            return False
        if self.inputs is not None and not np.array_equal(self.inputs, other.inputs):  # type: ignore[arg-type]
            return False
        return all(a is b or np.array_equal(a, b) for a, b in pairs)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True)
class Spec:
    """What VNN-LIB asks: whether an input of one of the cases has an output that meets all rows of the case.

    `notes` tell what was dropped on the way, such as a case whose box is empty.
    """

    inputs: int
    outputs: int
    cases: tuple[Disjunct, ...]
    notes: tuple[str, ...] = field(default=(), compare=False)
