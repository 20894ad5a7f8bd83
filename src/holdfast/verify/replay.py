"""Evaluation of points in ONNX Runtime on the user's original file, and which of them violate a property.

Includes a random search, for networks that cannot be lowered.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import InputError, ModelError
from holdfast.core.property import Property
from holdfast.core.types import Floats, Tensor
from holdfast.graph.session import condense, open_session
from holdfast.verify.problem import Case, Deadline, EngineResult, InputDomain, ends_of, stacked_rows

_AT_A_TIME = 1 << 23  # comparisons with boxes
_LOOKED_AT_AGAIN = 64  # candidates of one batch that are evaluated again one by one
_BATCH = 16  # random points around one case
RANDOM_SEARCH = "random search"
Pairs = NDArray[np.int64]
Random = np.random.Generator


def membership(cases: Sequence[Case]) -> Callable[[NDArray[Any], Floats], Pairs]:
    """A function from free inputs (b, n) and outputs (b, k) to the pairs (point, case) that are met."""
    groups: dict[int, list[int]] = {}
    for at, case in enumerate(cases):
        groups.setdefault(id(case.lower), []).append(at)
    if not groups:
        return lambda points, outputs: np.zeros((0, 2), np.int64)
    firsts = [cases[group[0]] for group in groups.values()]
    lower, upper = np.stack([case.lower for case in firsts]), np.stack([case.upper for case in firsts])
    members = [np.array(group, np.int64) for group in groups.values()]
    judges = [_judge([cases[at] for at in group]) for group in groups.values()]

    def meets(points: NDArray[Any], outputs: Floats) -> Pairs:
        pairs = [np.zeros((0, 2), np.int64)]
        step = max(1, _AT_A_TIME // max(lower.size, 1))
        for start in range(0, len(points), step):
            some = points[start : start + step, None]
            inside: NDArray[np.bool_] = np.all((lower <= some) & (some <= upper), axis=2)
            for which in np.flatnonzero(inside.any(axis=0)):
                at = start + np.flatnonzero(inside[:, which])
                point, case = np.nonzero(judges[which](points[at].astype(np.float64), outputs[at]))
                pairs.append(np.stack([at[point], members[which][case]], axis=1))
        return np.concatenate(pairs)

    return meets


def _judge(cases: Sequence[Case]) -> Callable[[Floats, Floats], NDArray[np.bool_]]:
    """A function from points (b, n) and outputs (b, k) to whether each meets all rows of each case."""
    rows, over, bound = stacked_rows(cases)
    flat = rows.reshape(bound.size, -1).T
    tied = None if over is None else over.reshape(bound.size, -1).T

    def meets(points: Floats, values: Floats) -> NDArray[np.bool_]:
        sums = values @ flat if tied is None else values @ flat + points @ tied
        inside: NDArray[np.bool_] = np.all(sums.reshape(-1, *bound.shape) <= bound, axis=2)
        return inside

    return meets


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
            together = points.reshape(-1, *points.shape[2:]).astype(self.dtype)
            values = [np.asarray(v, np.float64) for v in self.session.run(None, {self.name: together})]
            return np.concatenate([value.reshape(len(points), -1) for value in values], axis=1)
        return np.stack([_flat(self.run(point)) for point in points]) if len(points) else np.zeros((0, 0))


def _flat(outputs: Mapping[str, Any]) -> Floats:
    return np.concatenate([np.asarray(v, np.float64).ravel() for v in outputs.values()])


def session_of(model: bytes | Path) -> Any:
    """A silent single-threaded ONNX Runtime session."""
    try:
        return open_session(model, threads=1, inter_threads=1)
    except Exception as problem:  # noqa: BLE001 - onnxruntime's errors have no common class
        where = "the network" if isinstance(model, bytes) else str(model)
        raise ModelError(f"{where}: onnxruntime cannot run it: {condense(problem)}") from None


def runner_of(question: Property, domain: InputDomain) -> Runner:
    """A session on the property's network, tested at the corners of the domain."""
    path = question.model.path
    # A file that is not packed is opened in place: weights may be stored next to it.
    session = session_of(question.model.read() if path.suffix == ".gz" else path)
    inputs = session.get_inputs()
    runner = Runner(session, inputs[0].name, domain.dtype, False)
    corners = domain.whole(np.stack(domain.within(None)))
    try:
        alone = runner.outputs(corners)
    except Exception as problem:  # noqa: BLE001 - onnxruntime's errors have no common class
        raise ModelError(f"{path}: onnxruntime cannot run it: {condense(problem)}") from None
    for rows in question.unsafe:
        if rows.matrix.shape[1] != alone.shape[1]:
            raise InputError(f"{path}: expected {rows.matrix.shape[1]} outputs, got {alone.shape[1]}")
    many = replace(runner, batched=True)
    if len(inputs[0].shape) < 2 or isinstance(inputs[0].shape[0], int):
        return runner
    try:
        together = many.outputs(corners)
    except Exception:  # noqa: BLE001 - onnxruntime's errors have no common class
        return runner
    # Some files declare a free batch size but mix up the points of a batch.
    agree = together.shape == alone.shape and np.allclose(together, alone, rtol=1e-3, atol=1e-4)
    return many if agree else runner


def violations(
    question: Property, domain: InputDomain, runner: Runner, cases: Sequence[Case]
) -> Callable[[NDArray[Any]], NDArray[np.bool_]]:
    """A function from free inputs (b, n) to whether each violates the property on the original file.

    `cases` are the property's unsafe sets, in order. Points are evaluated as a batch first. The first 64
    candidates are then evaluated one by one against the property itself, and only these count.
    """
    meets = membership(cases)

    def violates(points: NDArray[Any]) -> NDArray[np.bool_]:
        violating = np.zeros(len(points), np.bool_)
        if not len(points):
            return violating
        full = domain.whole(points)
        outputs = runner.outputs(full)
        seeming: dict[int, list[int]] = {}
        for at, case in meets(full.reshape(len(full), -1)[:, domain.free], outputs).tolist():
            seeming.setdefault(at, []).append(case)
        for at in list(seeming)[:_LOOKED_AT_AGAIN]:
            output = _flat(runner.run(full[at])) if runner.batched else outputs[at]
            if not domain.box.excludes(full[at]) and np.isfinite(output).all():
                violating[at] = any(question.unsafe[case].met_by(output, full[at]) for case in seeming[at])
        return violating

    return violates


def search_randomly(
    question: Property, domain: InputDomain, runner: Runner, clock: Deadline, seconds: float, rng: Random
) -> EngineResult:
    """Search by random points, corners and steps around the best point so far; unknown if none violates."""
    until = time.monotonic() + min(seconds, clock.left)
    count, best = 0, dict[int, tuple[float, NDArray[Any]]]()
    while count == 0 or time.monotonic() < until:
        for at, rows in enumerate(question.unsafe):
            low, high = domain.within(rows.within)
            first, last = ends_of(low, high, domain.dtype)
            for point in _points(first, last, best.get(at), rng):
                full = domain.whole(point[None])[0]
                output = runner.outputs(full[None])[0]
                count += 1
                slack = rows.slack(output, full) if np.isfinite(output).all() else np.inf
                if slack <= 0 and question.violated_by(output, full):
                    return EngineResult("violated", RANDOM_SEARCH, point, note=f"point {count:,}")
                if at not in best or slack < best[at][0]:
                    best[at] = (slack, point)
            nearest = min(slack for slack, _ in best.values())
            clock.tell(RANDOM_SEARCH, len(question.unsafe), nearest)
            if time.monotonic() >= until:
                break
    note = f"{count:,} points tried, the nearest one misses by {nearest:.3g}"
    return EngineResult("unknown", RANDOM_SEARCH, note=note)


def _points(
    low: NDArray[Any], high: NDArray[Any], best: tuple[float, NDArray[Any]] | None, rng: Random
) -> list[NDArray[Any]]:
    """The middle, both corners, then random points, random corners and steps around the best point."""
    width = high.astype(np.float64) - low.astype(np.float64)
    if best is None:
        return [low, high, np.clip((low + width / 2).astype(low.dtype), low, high)]
    points = []
    for kind in range(_BATCH):
        point: NDArray[np.floating] = low + width * rng.random(len(low))
        if kind % 4 == 1:
            point = np.where(rng.random(len(low)) < 0.5, low, high)
        elif kind % 4 > 1:
            moved = rng.random(len(low)) < max(rng.random(), 1 / len(low))
            step = width * rng.normal(size=len(low)) * 10.0 ** rng.uniform(-4, 0)
            point = best[1] + np.where(moved, step, 0.0)
        points.append(np.clip(point.astype(low.dtype), low, high))
    return points
