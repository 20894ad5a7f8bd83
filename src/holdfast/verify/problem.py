"""What an engine is given, and what it gives back."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from holdfast.core.verdict import Budget
from holdfast.graph.ir import Array, Conv, Dense, Net

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


def same_box(cases: Sequence[Case]) -> list[list[int]]:
    """The cases' numbers grouped by equal boxes."""
    groups: dict[bytes, list[int]] = {}
    for number, case in enumerate(cases):
        groups.setdefault(case.lower.tobytes() + case.upper.tobytes(), []).append(number)
    return list(groups.values())


def stacked_rows(cases: Sequence[Case]) -> tuple[Array, Array, Array]:
    """Rows (c, m, k), input rows (c, m, n) and bounds (c, m) of cases; short ones repeat their first row."""
    most = max((len(case.bound) for case in cases), default=0) or 1
    outputs, inputs = (cases[0].rows.shape[1], len(cases[0].lower)) if cases else (0, 0)
    rows, over = np.zeros((len(cases), most, outputs)), np.zeros((len(cases), most, inputs))
    bound = np.ones((len(cases), most))  # 0 <= 1: a case without rows is met by any output
    for at, case in enumerate(cases):
        if count := len(case.bound):
            again = np.minimum(np.arange(most), count) % count
            rows[at], bound[at] = case.rows[again], case.bound[again]
            if case.inputs is not None:
                over[at] = case.inputs[again]
    return rows, over, bound


def products(net: Net) -> int:
    """Multiply-adds of one evaluation of a net."""
    total = 0
    for step in net.steps:
        if isinstance(step, Dense):
            total += step.weight.size
        elif isinstance(step, Conv):
            total += prod(step.shape) * prod(step.weight.shape[1:])
    return total


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
