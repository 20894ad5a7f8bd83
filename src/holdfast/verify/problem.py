"""Inputs and results of an engine: free inputs, cases, problem, result and deadline."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import InputError, ModelError
from holdfast.core.property import Budget, InputBox, Property
from holdfast.core.types import Floats
from holdfast.graph.inspect import inputs_of, read_proto
from holdfast.graph.ir import Activation, Array, Conv, Dense, Net, Product

FLOAT32: np.dtype[Any] = np.dtype(np.float32)
DType: TypeAlias = np.dtype[Any] | type
LATE = 0.8  # seconds after the deadline at which a running pass is aborted; engines normally end earlier


@dataclass(frozen=True, eq=False)
class InputDomain:
    """The free inputs (n,) by their flat places; `template` is the whole flat input with the fixed ones set.

    `box` is the one around all cases. The template has the floating-point type of the network's input; a
    free input has at least two numbers of that type in it.
    """

    box: InputBox
    free: NDArray[np.int64]
    template: NDArray[np.floating]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The floating-point type of the network's input."""
        return self.template.dtype

    def whole(self, points: NDArray[Any]) -> NDArray[Any]:
        """Free inputs (b, n) as network inputs (b, *shape), rounded to its type without leaving the box."""
        full = np.repeat(self.template[None], len(points), axis=0)
        low, high = self.within(None)
        with np.errstate(over="ignore"):
            near = np.asarray(points).astype(self.dtype)
        inside = np.clip(near, *ends_of(low, high, self.dtype))
        full[:, self.free] = np.where((low <= points) & (points <= high), inside, near)
        return full.reshape(-1, *self.box.lower.shape)

    def within(self, box: InputBox | None) -> tuple[Floats, Floats]:
        """The bounds of the free inputs in a case's own box, or in all if it has none."""
        box = box or self.box
        return box.lower.ravel()[self.free], box.upper.ravel()[self.free]


def domain_of(question: Property) -> InputDomain:
    """The free inputs of a property whose threat is a box."""
    box = question.threat
    if not isinstance(box, InputBox):
        raise InputError(f"expected a property over a box of inputs, got {type(box).__name__}")
    if not (np.isfinite(box.lower).all() and np.isfinite(box.upper).all()):
        raise InputError("expected finite bounds of every input, got an infinite one")
    dtype = input_type(read_proto(question.model.path), question.model.path)
    first, last = ends_of(box.lower.ravel(), box.upper.ravel(), dtype)
    if (first > last).any():
        at = int(np.flatnonzero(first > last)[0])
        low, high = box.lower.flat[at], box.upper.flat[at]
        raise InputError(f"expected a {dtype.name} between the bounds of input {at}, got [{low!r}, {high!r}]")
    return InputDomain(box, np.flatnonzero(first < last), first)


def input_type(proto: Any, where: Path) -> np.dtype[Any]:
    """The floating-point type of a network's only input; raise ModelError for any other type."""
    inputs = inputs_of(proto)
    if len(inputs) != 1 or inputs[0].dtype not in ("float16", "float32", "float64"):
        names = ", ".join(f"{tensor.name} ({tensor.dtype})" for tensor in inputs)
        raise ModelError(
            f"{where}: expected one input of float16, float32 or float64, got {names or 'none'}; "
            "a property over other inputs cannot be verified"
        )
    return np.dtype(inputs[0].dtype)


def first_float(values: Floats, dtype: DType = np.float32) -> NDArray[Any]:
    """The smallest number of a floating-point type that is not below each value."""
    with np.errstate(over="ignore"):
        near = values.astype(dtype)
        above = np.nextafter(near, np.asarray(np.inf, dtype))
    return np.where(near.astype(np.float64) < values, above, near)


def last_float(values: Floats, dtype: DType = np.float32) -> NDArray[Any]:
    """The largest number of a floating-point type that is not above each value."""
    return -first_float(-values, dtype)


def ends_of(lower: Floats, upper: Floats, dtype: DType = np.float32) -> tuple[NDArray[Any], NDArray[Any]]:
    """The smallest and the largest number of a floating-point type between each two; crossed if none is."""
    return first_float(lower, dtype), last_float(upper, dtype)


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

    def ends(self, dtype: DType) -> tuple[NDArray[Any], NDArray[Any]]:
        """The corners of the points of a floating-point type in the box; it has none if they cross."""
        return ends_of(self.lower, self.upper, dtype)


def same_box(cases: Sequence[Case]) -> list[list[int]]:
    """The cases' numbers grouped by equal boxes."""
    groups: dict[bytes, list[int]] = {}
    for number, case in enumerate(cases):
        groups.setdefault(case.lower.tobytes() + case.upper.tobytes(), []).append(number)
    return list(groups.values())


def stacked_rows(cases: Sequence[Case]) -> tuple[Array, Array | None, Array]:
    """Rows (c, m, k), input rows (c, m, n) if any, bounds (c, m); short cases repeat their first row."""
    most = max((len(case.bound) for case in cases), default=0) or 1
    outputs, inputs = (cases[0].rows.shape[1], len(cases[0].lower)) if cases else (0, 0)
    rows, bound = np.zeros((len(cases), most, outputs)), np.ones((len(cases), most))
    over = np.zeros((len(cases), most, inputs)) if any(c.inputs is not None for c in cases) else None
    for at, case in enumerate(cases):
        if count := len(case.bound):  # else 0 <= 1: a case without rows is met by any output
            again = np.minimum(np.arange(most), count) % count
            rows[at], bound[at] = case.rows[again], case.bound[again]
            if over is not None and case.inputs is not None:
                over[at] = case.inputs[again]
    return rows, over, bound


def relus_only(net: Net) -> bool:
    """Whether a net has only linear steps and relus."""
    curves = [step for step in net.steps if isinstance(step, Activation | Product)]
    return all(isinstance(step, Activation) and step.curve in ("relu", "leaky") for step in curves)


def narrowest(lower: Array, upper: Array) -> Array:
    """The widths (n,) below which the inputs of a box are not split any more."""
    return 1e-9 * (upper - lower) + 1e-14 * np.maximum(np.abs(lower), np.abs(upper)) + 1e-300


def products(net: Net) -> int:
    """Multiply-adds of one evaluation of a net."""
    dense = sum(step.weight.size for step in net.steps if isinstance(step, Dense))
    convolutions = [step for step in net.steps if isinstance(step, Conv)]
    return dense + sum(prod(step.shape) * prod(step.weight.shape[1:]) for step in convolutions)


@dataclass(frozen=True, eq=False)
class VerificationProblem:
    """A net and its unsafe cases; the property holds if no case can be met.

    `violates` replays free inputs (b, n) in ONNX Runtime on the original file and says which are real
    counterexamples; an engine may report "violated" only for a point that passes it. Points are moved to the
    nearest ones of `dtype`, the type of the network's input, inside the box.
    """

    net: Net
    cases: tuple[Case, ...]
    violates: Callable[[NDArray[Any]], NDArray[np.bool_]]
    dtype: np.dtype[Any] = FLOAT32

    def witness(self, points: NDArray[Any]) -> NDArray[Any] | None:
        """The first of free inputs (b, n) that is a real counterexample."""
        real = np.flatnonzero(self.violates(points))
        return points[real[0]].copy() if len(real) else None


@dataclass(frozen=True)
class EngineResult:
    """The result of an engine; `witness` (n,) are free inputs, `margin` the smallest one proven.

    `real_only` is set if the property is proven for real arithmetic but not for floating-point evaluation,
    `at_limit` if the open domains cannot be split further, so that only rounding prevents a proof.
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
    """No-op progress callback."""


class OutOfTime(Exception):
    """The deadline passed during a pass over the network, which therefore has no result."""


@dataclass(frozen=True)
class Deadline:
    """The remaining time of a verification, and the callback for its progress."""

    budget: Budget
    started: float = field(default_factory=time.monotonic)
    tell: Tell = silent

    @property
    def left(self) -> float:
        """Remaining seconds; at most 0 after the deadline."""
        return self.started + self.budget.seconds - time.monotonic()

    def check(self) -> None:
        """Raise OutOfTime if the deadline passed more than LATE seconds ago; for use within long passes."""
        if self.left < -LATE:
            raise OutOfTime
