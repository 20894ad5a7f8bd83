"""The cases of a problem as lower bounds to be asked for: a case is closed when its bound is positive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from holdfast.verify.linear.passes import Region
from holdfast.verify.linear.pieces import Pieces
from holdfast.verify.linear.tune import Parts, Queries
from holdfast.verify.problem import Case


def same_box(cases: Sequence[Case]) -> list[list[int]]:
    """The cases' numbers grouped by equal boxes."""
    groups: dict[bytes, list[int]] = {}
    for number, case in enumerate(cases):
        groups.setdefault(case.lower.tobytes() + case.upper.tobytes(), []).append(number)
    return list(groups.values())


def ask(pieces: Pieces, region: Region, cases: Sequence[Case]) -> Queries:
    """One query a case: its row, or an even mix of the rows of its conjunction."""
    most = max(len(case.bound) for case in cases)
    rows = np.stack([_filled(case.rows, most) for case in cases])
    offset = np.stack([_filled(case.bound, most) for case in cases])
    inputs = None
    if any(case.inputs is not None for case in cases):
        none = [np.zeros((len(case.bound), len(case.lower))) for case in cases]
        inputs = np.stack(
            [
                _filled(z if case.inputs is None else case.inputs, most)
                for case, z in zip(cases, none, strict=True)
            ]
        )
    spec = Parts(*(None if v is None else torch.as_tensor(v) for v in (rows, offset, inputs)))
    parts = Parts(*(None if v is None else pieces.tensor(v) for v in (rows, offset, inputs)))
    top = len(pieces.net.steps) - 1
    theta = {at: bend.start(len(cases)) for at, bend in region.bends.items()}
    if most == 1:
        rows_in = None if parts.rows_in is None else parts.rows_in[:, 0]
        return Queries(top, parts.rows[:, 0], theta, parts.offset[:, 0], rows_in, spec=spec)
    mix = pieces.tensor(np.full((len(cases), most), 1.0 / most))
    return Queries(top, parts.rows[:, 0], theta, parts=parts, spec=spec).mixed(mix)


def _filled(values: Any, count: int) -> Any:
    """Rows repeated to a common number: a conjunction does not change when a row is said twice."""
    values = np.asarray(values, np.float64)
    return np.concatenate([values, np.repeat(values[:1], count - len(values), axis=0)])
