"""What an engine is given, and what it gives back."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from holdfast.core.property import Budget
from holdfast.graph.ir import Array, Net

FLOAT32: np.dtype[Any] = np.dtype(np.float32)
LATE = 0.8  # seconds after which a pass under way is given up; engines end by themselves before


@dataclass(frozen=True, eq=False)
class Case:
    """One disjunct: unsafe is an input of the box with rows (m, k) @ y + inputs (m, n) @ x <= bound (m,).

    Inputs are the net's free ones. `lower` and `upper` are as the specification says (nearest float64); an
    engine that proves widens them by one ulp, a witness stays inside.
    """

    lower: Array
    upper: Array
    rows: Array
    bound: Array
    inputs: Array | None = None


@dataclass(frozen=True, eq=False)
class Problem:
    """A net, and the cases in which it is unsafe; it holds when no case can be met.

    `violates` replays free inputs (b, n) in ONNX Runtime on the original file and says which are real
    counterexamples: an engine may say "violated" only of a point that passed it. Points are moved to the
    nearest ones of `dtype`, the type of the network's input, inside the box.
    """

    net: Net
    cases: tuple[Case, ...]
    violates: Callable[[NDArray[Any]], NDArray[np.bool_]]
    dtype: np.dtype[Any] = FLOAT32


@dataclass(frozen=True)
class Answer:
    """What an engine found; `witness` (n,) are free inputs, `margin` the smallest one proven.

    `real_only` is set if it holds in real arithmetic but was not shown to for floating-point evaluations,
    `at_limit` if what is left open cannot be split any more: nothing but rounding is in the way.
    """

    status: Literal["holds", "violated", "unknown", "timeout"]
    engine: str
    witness: NDArray[Any] | None = None
    margin: float | None = None
    note: str = ""
    real_only: bool = False
    at_limit: bool = False


Tell: TypeAlias = Callable[[str, int, float], None]  # what is being done, open domains, best bound


def silent(what: str, domains: int, bound: float) -> None:
    """Progress that nobody wants to see."""


class OutOfTime(Exception):
    """The time was up in the middle of a pass over the network: nothing is known of what it would say."""


@dataclass(frozen=True)
class Clock:
    """How much may still be spent, and whom to tell how it goes."""

    budget: Budget
    started: float = field(default_factory=time.monotonic)
    tell: Tell = silent

    @property
    def left(self) -> float:
        """Seconds left; at most 0 when the time is up."""
        return self.started + self.budget.seconds - time.monotonic()

    def check(self) -> None:
        """Nothing; OutOfTime if the time was up a while ago: for the middle of work that takes long."""
        if self.left < -LATE:
            raise OutOfTime
