"""A search for a violation with nothing but ONNX Runtime, for networks whose inside is not understood."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.property import Property, Rows
from holdfast.core.types import Floats
from holdfast.verify.problem import Answer, Clock, Domain, first_float, last_float
from holdfast.verify.replay import Runner

ENGINE = "random search"
_BATCH = 16


def search_randomly(
    question: Property, domain: Domain, runner: Runner, clock: Clock, seconds: float, rng: np.random.Generator
) -> Answer:
    """A violation found by random points, corners and steps around the best point so far, or unknown."""
    until = time.monotonic() + min(seconds, clock.left)
    tried, best = 0, dict[int, tuple[float, NDArray[Any]]]()
    while tried == 0 or time.monotonic() < until:
        for at, rows in enumerate(question.unsafe):
            low, high = domain.within(rows.within)
            first, last = first_float(low, domain.dtype), last_float(high, domain.dtype)
            for point in _points(first, last, best.get(at), rng):
                whole = domain.whole(point[None])[0]
                output = runner.outputs(whole[None])[0]
                tried += 1
                slack = _slack(rows, output, whole)
                if slack <= 0 and question.violated_by(output, whole):
                    return Answer("violated", ENGINE, point, note=f"point {tried:,}")
                if at not in best or slack < best[at][0]:
                    best[at] = (slack, point)
            nearest = min(slack for slack, _ in best.values())
            clock.tell("random search", len(question.unsafe), nearest)
            if time.monotonic() >= until:
                break
    return Answer("unknown", ENGINE, note=f"{tried:,} points tried, the nearest misses by {nearest:.3g}")


def _slack(rows: Rows, output: Floats, whole: NDArray[Any]) -> float:
    return rows.slack(output, whole) if np.isfinite(output).all() else np.inf


def _points(
    low: NDArray[Any],
    high: NDArray[Any],
    best: tuple[float, NDArray[Any]] | None,
    rng: np.random.Generator,
) -> list[NDArray[Any]]:
    """The middle, both corners, then random points, random corners and steps around the best point."""
    width = high.astype(np.float64) - low.astype(np.float64)
    if best is None:
        return [low, high, np.clip((low + width / 2).astype(low.dtype), low, high)]
    made = []
    for kind in range(_BATCH):
        point: NDArray[np.floating] = low + width * rng.random(len(low))
        if kind % 4 == 1:
            point = np.where(rng.random(len(low)) < 0.5, low, high)
        elif kind % 4 > 1:
            moved = rng.random(len(low)) < max(rng.random(), 1 / len(low))
            step = width * rng.normal(size=len(low)) * 10.0 ** rng.uniform(-4, 0)
            point = best[1] + np.where(moved, step, 0.0)
        made.append(np.clip(point.astype(low.dtype), low, high))
    return made
