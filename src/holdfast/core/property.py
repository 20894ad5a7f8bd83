"""Properties and verdicts: a network, a set of inputs, constraints on the outputs, and the verdict.

An attack searches the set for a counterexample, a verifier proves that there is none. No violation counts
without a replay.
"""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import InputError
from holdfast.core.model import Network
from holdfast.core.result import Result
from holdfast.core.types import Floats, Tensor


@runtime_checkable
class Threat(Protocol):
    """A set of inputs with a membership test that gives the reason for points outside."""

    def excludes(self, point: NDArray[np.floating]) -> str:
        """Why the point is not in the set; empty if it is."""
        ...


@dataclass(frozen=True, eq=False)
class InputBox:
    """All inputs between `lower` and `upper`, end points included."""

    lower: Floats
    upper: Floats

    def __post_init__(self) -> None:
        lower, upper = (np.asarray(v, np.float64) for v in (self.lower, self.upper))
        if lower.shape != upper.shape:
            raise InputError(f"InputBox: expected bounds of one shape, got {lower.shape} and {upper.shape}")
        if not (lower <= upper).all():
            at = np.argwhere(~(lower <= upper))[0].tolist()
            raise InputError(f"InputBox: expected lower <= upper, got {lower[*at]} > {upper[*at]} at {at}")
        object.__setattr__(self, "lower", lower)
        object.__setattr__(self, "upper", upper)

    def excludes(self, point: NDArray[np.floating]) -> str:
        """Why the point is outside the box; empty if it is inside."""
        if point.shape != self.lower.shape:
            return f"shape {point.shape} is not {self.lower.shape}"
        inside = (self.lower <= point) & (point <= self.upper)
        if inside.all():
            return ""
        at = np.argwhere(~inside)[0].tolist()
        return f"value {point[*at]!r} at {at} is outside [{self.lower[*at]!r}, {self.upper[*at]!r}]"


def linf_ball(centre: Floats, radius: float, low: float = -np.inf, high: float = np.inf) -> InputBox:
    """All inputs whose every value is within `radius` of the centre's and inside [low, high]."""
    centre = np.asarray(centre, np.float64)
    return InputBox(np.clip(centre - radius, low, high), np.clip(centre + radius, low, high))


@dataclass(frozen=True, eq=False)
class PatchAnywhere:
    """An image (c, h, w) with one rectangle, anywhere inside, filled with values of [low, high]."""

    image: Floats
    height: int
    width: int
    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        image = np.asarray(self.image, np.float64)
        if image.ndim != 3 or not (0 < self.height <= image.shape[1] and 0 < self.width <= image.shape[2]):
            raise InputError(
                f"PatchAnywhere: expected a patch inside an image (c, h, w), got "
                f"{self.height}×{self.width} in {image.shape}"
            )
        object.__setattr__(self, "image", image)

    def excludes(self, point: NDArray[np.floating]) -> str:
        """Why the point is not the image with one such patch; empty if it is."""
        if point.shape != self.image.shape:
            return f"shape {point.shape} is not {self.image.shape}"
        # The network gets the image in the point's precision: 0.1 in float32 is not 0.1 in float64.
        changed = point != self.image.astype(point.dtype)
        if not changed.any():
            return ""
        rows, columns = (np.flatnonzero(changed.any(axis=axes)) for axes in ((0, 2), (0, 1)))
        height, width = int(np.ptp(rows)) + 1, int(np.ptp(columns)) + 1
        if height > self.height or width > self.width:
            return f"changed extent {height}×{width} is larger than {self.height}×{self.width}"
        values = point[changed]
        if not ((self.low <= values) & (values <= self.high)).all():
            return f"patch values {values.min()}..{values.max()} leave [{self.low}, {self.high}]"
        return ""


@dataclass(frozen=True, eq=False)
class LinearConstraints:
    """A conjunction of linear constraints on the flat output y: matrix (m, k) @ y <= bound (m,).

    If a specification constrains inputs and outputs jointly, `inputs` (m, n) adds inputs @ x to each row's
    left side. `within` restricts the conjunction to a part of the threat.
    """

    matrix: Floats
    bound: Floats
    inputs: Floats | None = None
    within: InputBox | None = None

    def __post_init__(self) -> None:
        matrix, bound = np.asarray(self.matrix, np.float64), np.asarray(self.bound, np.float64)
        if matrix.ndim != 2 or bound.shape != matrix.shape[:1]:
            raise InputError(
                f"LinearConstraints: expected (m, k) and (m,), got {matrix.shape} and {bound.shape}"
            )
        if self.inputs is not None:
            inputs = np.asarray(self.inputs, np.float64)
            if inputs.ndim != 2 or inputs.shape[0] != matrix.shape[0]:
                raise InputError(f"LinearConstraints: expected inputs ({len(bound)}, n), got {inputs.shape}")
            object.__setattr__(self, "inputs", inputs)
        object.__setattr__(self, "matrix", matrix)
        object.__setattr__(self, "bound", bound)

    def slack(self, output: NDArray[np.floating], point: NDArray[np.floating] | None = None) -> float:
        """The largest inputs·x + matrix·y − bound; all constraints hold if it is at most 0."""
        if self.matrix.shape[1] != output.size:
            raise InputError(f"LinearConstraints: expected {self.matrix.shape[1]} outputs, got {output.size}")
        values = self.matrix @ output.ravel().astype(np.float64)
        if self.inputs is not None:
            if point is None or self.inputs.shape[1] != point.size:
                got = "no input" if point is None else f"{point.size} inputs"
                raise InputError(f"LinearConstraints: expected {self.inputs.shape[1]} inputs, got {got}")
            values = values + self.inputs @ point.ravel().astype(np.float64)
        return float((values - self.bound).max()) if len(self.bound) else -np.inf

    def met_by(self, output: NDArray[np.floating], point: NDArray[np.floating] | None = None) -> bool:
        """Whether the point lies in `within` and its output meets every constraint."""
        if self.within is not None and (point is None or self.within.excludes(point)):
            return False
        return self.slack(output, point) <= 0.0


@dataclass(frozen=True)
class Property:
    """No input of the threat may give an output in any of the unsafe sets; `note` documents its reading."""

    model: Network
    threat: Threat
    unsafe: tuple[LinearConstraints, ...]
    note: str = ""

    def violated_by(self, output: NDArray[np.floating], point: NDArray[np.floating] | None = None) -> bool:
        """Whether this output (of this point) lies in one of the unsafe sets."""
        return any(rows.met_by(output, point) for rows in self.unsafe)


Run: TypeAlias = Callable[[Tensor], Mapping[str, Any]]  # the network: a point -> its outputs by name
Status: TypeAlias = Literal["holds", "violated", "unknown", "timeout", "error"]


@dataclass(frozen=True)
class Budget:
    """Limits of a search."""

    seconds: float = 60.0
    memory_bytes: int = 8 << 30
    jobs: int = 1
    seed: int = 0


@dataclass(frozen=True)
class Replay:
    """The result of running a witness in ONNX Runtime on the user's original file."""

    output: NDArray[np.floating]
    violated: bool
    why_not: str = ""


@dataclass(frozen=True, repr=False)
class Verdict(Result):
    """The result of an attack or a verifier; an attack can never return `holds`.

    `real_only` restricts `holds` to real arithmetic: the rounding of an evaluation in the network's own
    floating-point type may exceed the margin.
    """

    status: Status
    engine: str
    seconds: float
    witness: NDArray[np.floating] | None = None
    replay: Replay | None = None
    bound: float | None = None
    note: str = ""
    real_only: bool = False

    def __post_init__(self) -> None:
        if self.status == "violated" and self.witness is None:
            raise InputError("Verdict: expected a counterexample with 'violated', got none")

    def to_dict(self) -> dict[str, Any]:
        """The verdict as plain values; for a violation with the counterexample and its outputs."""
        facts = {"status": self.status, "engine": self.engine, "seconds": self.seconds, "margin": self.bound}
        facts |= {"real_arithmetic_only": self.real_only, "note": self.note}
        if self.status == "violated" and self.witness is not None and self.replay is not None:
            facts["witness"] = self.witness.ravel().tolist()
            facts["outputs"] = self.replay.output.tolist()
        return facts

    def _summary(self) -> str:
        note = f"; {self.note}" if self.note else ""
        return f"{self.status} ({self.engine}, {self.seconds:.2f} s){note}"

    def _rows(self) -> list[dict[str, Any]]:
        return [{k: v for k, v in self.to_dict().items() if k not in ("witness", "outputs")}]


def confirm(
    question: Property, verdict: Verdict, run: Run, dtype: np.dtype[Any] | type = np.float32
) -> Verdict:
    """The verdict, confirmed by a replay of its witness with `run` (ONNX Runtime on the original file).

    `dtype` is the type of the network's input, in which the witness must be representable. A violation whose
    witness is outside the threat, or that does not replay, becomes `unknown`; an exception becomes `error`,
    never `holds`.
    """
    if verdict.status != "violated" or verdict.witness is None:
        return verdict
    try:
        replay = _replay(question, np.asarray(verdict.witness), run, np.dtype(dtype))
    except Exception as problem:  # noqa: BLE001 - onnxruntime's errors have no common class
        return dataclasses.replace(verdict, status="error", note=f"replay failed: {problem}")
    if replay.violated:
        return dataclasses.replace(verdict, replay=replay)
    note = f"counterexample did not replay: {replay.why_not}"
    return dataclasses.replace(verdict, status="unknown", replay=replay, note=note)


def _replay(question: Property, witness: NDArray[Any], run: Run, dtype: np.dtype[Any]) -> Replay:
    point = witness.astype(dtype)
    if not np.array_equal(point.astype(np.float64), witness.astype(np.float64)):
        return Replay(np.zeros(0), False, f"its values are not representable in {dtype.name}")
    outside = question.threat.excludes(point)
    if outside:
        return Replay(np.zeros(0), False, outside)
    outputs = run(point)
    output = np.concatenate([np.asarray(v, np.float64).ravel() for v in outputs.values()])
    if not np.isfinite(output).all():
        return Replay(output, False, "the outputs are not finite")
    violated = question.violated_by(output, point)
    return Replay(output, violated, "" if violated else "the outputs are safe")
