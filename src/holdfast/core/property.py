"""A property: a model, a set of inputs, and what must stay true of the outputs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import InputError
from holdfast.core.model import Model
from holdfast.core.threat import Threat
from holdfast.core.types import Floats


@dataclass(frozen=True, eq=False)
class Rows:
    """A conjunction of linear constraints on the flat output y: matrix (m, k) @ y <= bound (m,)."""

    matrix: Floats
    bound: Floats

    def __post_init__(self) -> None:
        matrix, bound = np.asarray(self.matrix, np.float64), np.asarray(self.bound, np.float64)
        if matrix.ndim != 2 or bound.shape != matrix.shape[:1]:
            raise InputError(f"Rows: expected (m, k) and (m,), got {matrix.shape} and {bound.shape}")
        object.__setattr__(self, "matrix", matrix)
        object.__setattr__(self, "bound", bound)

    def slack(self, output: NDArray[np.floating]) -> float:
        """The largest matrix·y − bound: the constraints all hold when it is at most 0."""
        if self.matrix.shape[1] != output.size:
            raise InputError(f"Rows: expected {self.matrix.shape[1]} outputs, got {output.size}")
        if not len(self.bound):
            return -np.inf
        return float((self.matrix @ output.ravel().astype(np.float64) - self.bound).max())


@dataclass(frozen=True)
class Property:
    """No input of the threat may give an output in any of the unsafe sets."""

    model: Model
    threat: Threat
    unsafe: tuple[Rows, ...]

    def violated_by(self, output: NDArray[np.floating]) -> bool:
        """Whether this output lies in one of the unsafe sets."""
        return any(rows.slack(output) <= 0.0 for rows in self.unsafe)
