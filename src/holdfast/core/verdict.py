"""Verdicts, and the replay without which no violation counts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import InputError
from holdfast.core.property import Property
from holdfast.core.types import Tensor

Status: TypeAlias = Literal["holds", "violated", "unknown", "timeout", "error"]


@dataclass(frozen=True)
class Budget:
    """What a search may spend."""

    seconds: float = 60.0
    memory_bytes: int = 8 << 30
    jobs: int = 1
    seed: int = 0


@dataclass(frozen=True)
class Replay:
    """What ONNX Runtime said of a witness on the user's original file."""

    output: NDArray[np.floating]
    violated: bool
    why_not: str = ""


@dataclass(frozen=True)
class Verdict:
    """The answer of an attack or a verifier; an attack can never say `holds`.

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
            raise InputError("Verdict: expected a witness with 'violated', got none")


def settle(
    question: Property,
    verdict: Verdict,
    run: Callable[[Tensor], Mapping[str, Any]],
    dtype: np.dtype[Any] | type = np.float32,
) -> Verdict:
    """The verdict after its witness was replayed by `run` (ONNX Runtime on the original file).

    `dtype` is the type of the network's input, in which the witness must be representable. A violation whose
    witness is outside the threat, or that does not replay, becomes `unknown`; an exception on the way becomes
    `error`, never `holds`.
    """
    if verdict.status != "violated" or verdict.witness is None:
        return verdict
    try:
        replay = _replay(question, np.asarray(verdict.witness), run, np.dtype(dtype))
    except Exception as problem:  # noqa: BLE001 - onnxruntime's errors have no common class
        return dataclasses.replace(verdict, status="error", note=f"replay failed: {problem}")
    if replay.violated:
        return dataclasses.replace(verdict, replay=replay)
    note = f"witness did not replay: {replay.why_not}"
    return dataclasses.replace(verdict, status="unknown", replay=replay, note=note)


def _replay(
    question: Property,
    witness: NDArray[Any],
    run: Callable[[Tensor], Mapping[str, Any]],
    dtype: np.dtype[Any],
) -> Replay:
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
