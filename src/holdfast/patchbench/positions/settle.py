"""The last word on a map: outputs that decide it are run again on the user's file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from holdfast.core.types import Bools, Floats
from holdfast.patchbench.positions.types import Bar

NEAR = 1e-3  # outputs this near the threshold, and class scores this near each other, are run again
WRONG = 1e-4  # if a batch is off by more anywhere, no batch is believed
_SAMPLES = 16  # positions that are run again in any case


@dataclass(frozen=True, eq=False)
class Settled:
    """The outputs (n,), how many of them were run one by one, and how far off the batches were there."""

    outputs: Floats
    replayed: int
    difference: float
    believed: bool


def settle(outputs: Floats, doubtful: Bools, bar: Bar, replay: Callable[[int], float]) -> Settled:
    """Check the outputs (n,) of batches; `replay` gives one of them by running the user's file.

    Run again are those near the threshold, those that are `doubtful` (a class nearly tied), the smallest, and
    a sample. If one that is not doubtful is off, all are run again.
    """
    if not len(outputs):
        return Settled(outputs, 0, 0.0, believed=True)
    again = doubtful | ~np.isfinite(outputs) | (np.abs(outputs - bar.threshold) <= NEAR)
    again[np.argmin(np.where(np.isnan(outputs), np.inf, outputs))] = True
    again[np.linspace(0, len(outputs) - 1, min(_SAMPLES, len(outputs))).astype(np.int64)] = True
    final = outputs.copy()
    places = np.flatnonzero(again)
    final[places] = [replay(int(i)) for i in places]
    gap = np.abs(final - outputs)
    believed = bool((gap[again & ~doubtful & np.isfinite(outputs)] <= WRONG).all())
    if not believed:
        rest = np.flatnonzero(~again)
        final[rest] = [replay(int(i)) for i in rest]
        again[:] = True
    gap = np.abs(final - outputs)
    return Settled(final, int(again.sum()), float(np.nanmax(gap[again], initial=0.0)), believed)


def ties(scores: Floats) -> Bools:
    """For each row of class scores (n, k) whether the two highest are nearly equal."""
    if scores.ndim != 2 or scores.shape[1] < 2:
        return np.zeros(len(scores), np.bool_)
    best = np.partition(scores, -2, axis=1)[:, -2:]
    scale = np.maximum(np.abs(best).max(axis=1), 1.0)
    return np.asarray(~(best[:, 1] - best[:, 0] > NEAR * scale))
