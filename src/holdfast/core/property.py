"""A property: a network, a set of inputs, and what must stay true of the outputs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import InputError
from holdfast.core.model import Network
from holdfast.core.threat import Box, Threat
from holdfast.core.types import Floats


@dataclass(frozen=True, eq=False)
class Rows:
    """A conjunction of linear constraints on the flat output y: matrix (m, k) @ y <= bound (m,).

    Where a specification ties inputs and outputs, `inputs` (m, n) adds inputs @ x to each row's left side,
    and `within` says for which part of the threat the conjunction is meant.
    """

    matrix: Floats
    bound: Floats
    inputs: Floats | None = None
    within: Box | None = None

    def __post_init__(self) -> None:
        matrix, bound = np.asarray(self.matrix, np.float64), np.asarray(self.bound, np.float64)
        if matrix.ndim != 2 or bound.shape != matrix.shape[:1]:
            raise InputError(f"Rows: expected (m, k) and (m,), got {matrix.shape} and {bound.shape}")
        if self.inputs is not None:
            inputs = np.asarray(self.inputs, np.float64)
            if inputs.ndim != 2 or inputs.shape[0] != matrix.shape[0]:
                raise InputError(f"Rows: expected inputs ({len(bound)}, n), got {inputs.shape}")
            object.__setattr__(self, "inputs", inputs)
        object.__setattr__(self, "matrix", matrix)
        object.__setattr__(self, "bound", bound)

    def slack(self, output: NDArray[np.floating], point: NDArray[np.floating] | None = None) -> float:
        """The largest inputs·x + matrix·y − bound: the constraints all hold when it is at most 0."""
        if self.matrix.shape[1] != output.size:
            raise InputError(f"Rows: expected {self.matrix.shape[1]} outputs, got {output.size}")
        left = self.matrix @ output.ravel().astype(np.float64)
        if self.inputs is not None:
            if point is None or self.inputs.shape[1] != point.size:
                got = "no input" if point is None else f"{point.size} inputs"
                raise InputError(f"Rows: expected {self.inputs.shape[1]} inputs, got {got}")
            left = left + self.inputs @ point.ravel().astype(np.float64)
        return float((left - self.bound).max()) if len(self.bound) else -np.inf

    def met_by(self, output: NDArray[np.floating], point: NDArray[np.floating] | None = None) -> bool:
        """Whether the point lies where the conjunction is meant and its output meets every constraint."""
        if self.within is not None and (point is None or self.within.excludes(point)):
            return False
        return self.slack(output, point) <= 0.0


@dataclass(frozen=True)
class Property:
    """No input of the threat may give an output in any of the unsafe sets; `note` tells how it was read."""

    model: Network
    threat: Threat
    unsafe: tuple[Rows, ...]
    note: str = ""

    def violated_by(self, output: NDArray[np.floating], point: NDArray[np.floating] | None = None) -> bool:
        """Whether this output (of this point) lies in one of the unsafe sets."""
        return any(rows.met_by(output, point) for rows in self.unsafe)
