"""ONNX Runtime on the user's original file: what it says of points, and which violate a property."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import InputError, ModelError
from holdfast.core.property import Property
from holdfast.core.types import Floats, Tensor
from holdfast.graph.inspect import condense, runtime
from holdfast.verify.domain import Domain
from holdfast.verify.problem import Case

_INPUTS = {"tensor(float)": np.float32, "tensor(double)": np.float64}
_AT_A_TIME = 1 << 23  # comparisons with boxes
_LOOKED_AT_AGAIN = 64  # hits of one batch that are run once more by themselves


@dataclass(frozen=True, eq=False)
class Runner:
    """A session on the original file; `batched` says whether it takes many points at a time."""

    session: Any
    name: str
    dtype: Any
    batched: bool

    def run(self, point: Tensor) -> Mapping[str, Any]:
        """Every output of one whole input, by name."""
        names = [output.name for output in self.session.get_outputs()]
        return dict(zip(names, self.session.run(names, {self.name: point.astype(self.dtype)}), strict=True))

    def outputs(self, points: Tensor) -> Floats:
        """The flat outputs (b, k) of whole inputs (b, *shape)."""
        if self.batched and len(points) > 1:
            found = self.session.run(
                None, {self.name: points.reshape(-1, *points.shape[2:]).astype(self.dtype)}
            )
            return np.concatenate([np.asarray(v, np.float64).reshape(len(points), -1) for v in found], axis=1)
        return np.stack([_flat(self.run(point)) for point in points]) if len(points) else np.zeros((0, 0))


def _flat(outputs: Mapping[str, Any]) -> Floats:
    return np.concatenate([np.asarray(v, np.float64).ravel() for v in outputs.values()])


def session_of(model: bytes | Path, threads: int = 1) -> Any:
    """An ONNX Runtime session that says nothing on its own and keeps to so many threads."""
    ort = runtime()
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = threads
    try:
        given = model if isinstance(model, bytes) else str(model)
        return ort.InferenceSession(given, options, providers=["CPUExecutionProvider"])
    except Exception as problem:  # noqa: BLE001 - onnxruntime's errors have no common class
        where = "the network" if isinstance(model, bytes) else str(model)
        raise ModelError(f"{where}: onnxruntime cannot run it: {condense(problem)}") from None


def runner_of(question: Property, domain: Domain) -> Runner:
    """A session on the property's network, tried on one point."""
    path = question.model.path
    # A file that is not packed is opened in place: weights may lie beside it.
    session = session_of(question.model.read() if path.suffix == ".gz" else path)
    inputs = session.get_inputs()
    if len(inputs) != 1 or inputs[0].type not in _INPUTS:
        kinds = ", ".join(f"{i.name} {i.type}" for i in inputs)
        raise ModelError(f"{path}: expected one input of float32 or float64, got {kinds}")
    runner = Runner(session, inputs[0].name, _INPUTS[inputs[0].type], False)
    ends = [side.astype(np.float32) for side in domain.within(None)]
    corners = domain.whole(np.stack(ends))
    try:
        alone = runner.outputs(corners)
    except Exception as problem:  # noqa: BLE001 - onnxruntime's errors have no common class
        raise ModelError(f"{path}: onnxruntime cannot run it: {condense(problem)}") from None
    for rows in question.unsafe:
        if rows.matrix.shape[1] != alone.shape[1]:
            raise InputError(f"{path}: expected {rows.matrix.shape[1]} outputs, got {alone.shape[1]}")
    many = Runner(runner.session, runner.name, runner.dtype, True)
    free_batch = len(inputs[0].shape) > 1 and not isinstance(inputs[0].shape[0], int)
    return many if free_batch and _agrees(many, corners, alone) else runner


def _agrees(many: Runner, points: Tensor, alone: Floats) -> bool:
    """Whether points run together give what each gives alone: some files say so and mix them up."""
    try:
        together = many.outputs(points)
    except Exception:  # noqa: BLE001 - onnxruntime's errors have no common class
        return False
    return together.shape == alone.shape and bool(np.allclose(together, alone, rtol=1e-3, atol=1e-4))


def violations(
    question: Property, domain: Domain, runner: Runner, cases: Sequence[Case]
) -> Callable[[NDArray[np.float32]], NDArray[np.bool_]]:
    """A function that says which free inputs (b, n) violate the property on the original file.

    It looks at the points together first; those that seem to meet a case (the first 64) are judged one by
    one, by the property itself, and only these count.
    """
    meets = meeting(cases)

    def violates(points: NDArray[np.float32]) -> NDArray[np.bool_]:
        points = np.asarray(points, np.float32)
        found = np.zeros(len(points), np.bool_)
        if not len(points):
            return found
        whole = domain.whole(points)
        outputs = runner.outputs(whole)
        for at in np.flatnonzero(meets(points, outputs))[:_LOOKED_AT_AGAIN]:
            output = _flat(runner.run(whole[at])) if runner.batched else outputs[at]
            if not domain.box.excludes(whole[at]) and np.isfinite(output).all():
                found[at] = question.violated_by(output, whole[at])
        return found

    return violates


def meeting(cases: Sequence[Case]) -> Callable[[NDArray[np.float32], Floats], NDArray[np.bool_]]:
    """A function that says of free inputs (b, n) with outputs (b, k) which meet one of the cases."""
    groups: dict[int, list[Case]] = {}
    for case in cases:
        groups.setdefault(id(case.lower), []).append(case)
    lower = np.stack([group[0].lower for group in groups.values()]) if groups else np.zeros((0, 1))
    upper = np.stack([group[0].upper for group in groups.values()]) if groups else np.zeros((0, 1))
    judges = [_stacked(group) for group in groups.values()]

    def meets(points: NDArray[np.float32], outputs: Floats) -> NDArray[np.bool_]:
        found = np.zeros(len(points), np.bool_)
        step = max(1, _AT_A_TIME // max(lower.size, 1))
        for start in range(0, len(points) if judges else 0, step):
            some = points[start : start + step, None]
            inside: NDArray[np.bool_] = np.all((lower <= some) & (some <= upper), axis=2)
            for which in np.flatnonzero(inside.any(axis=0)):
                at = start + np.flatnonzero(inside[:, which])
                found[at] |= judges[which](points[at].astype(np.float64), outputs[at])
        return found

    return meets


def _stacked(cases: Sequence[Case]) -> Callable[[Floats, Floats], NDArray[np.bool_]]:
    """A function that says which points (b, n) with outputs (b, k) meet all rows of one of the cases."""
    free = [case for case in cases if not len(case.bound)]
    if free:  # a case without rows is met by any output
        return lambda points, outputs: np.ones(len(points), np.bool_)
    rows, bound = (
        np.concatenate([case.rows for case in cases]),
        np.concatenate([case.bound for case in cases]),
    )
    starts = np.cumsum([0, *(len(case.bound) for case in cases[:-1])])
    tied = any(case.inputs is not None for case in cases)
    blank = np.zeros((1, len(cases[0].lower)))
    over = [
        np.repeat(blank, len(case.bound), axis=0) if case.inputs is None else case.inputs
        for case in cases
        if tied
    ]
    inputs = np.concatenate(over) if tied else None

    def meets(points: Floats, outputs: Floats) -> NDArray[np.bool_]:
        left = outputs @ rows.T if inputs is None else outputs @ rows.T + points @ inputs.T
        all_rows: NDArray[np.bool_] = np.logical_and.reduceat(left <= bound, starts, axis=1)
        return np.asarray(all_rows.any(axis=1))

    return meets
