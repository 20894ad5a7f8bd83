"""The cases of a problem stacked as tensors: what an attack aims at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holdfast.verify.domain import first_float, last_float
from holdfast.verify.problem import Case


@dataclass(frozen=True, eq=False)
class Aims:
    """Boxes (g, n) whose corners are of the input's type; for each of c cases its box and its rows.

    Rows are filled up to the longest case.
    """

    low: Tensor
    high: Tensor
    box: Tensor  # (c,)
    rows: Tensor  # (c, r, k)
    bound: Tensor  # (c, r), inf where a case has fewer rows
    inputs: Tensor | None  # (c, r, n)

    @property
    def cases(self) -> int:
        """How many cases there are."""
        return len(self.box)

    @property
    def values(self) -> int:
        """How many numbers one case takes."""
        return int(self.rows[0].numel() + (0 if self.inputs is None else self.inputs[0].numel()))

    def bounds(self, which: Tensor) -> tuple[Tensor, Tensor]:
        """The corners (b, n) of these cases' boxes."""
        return self.low[self.box[which]], self.high[self.box[which]]

    def excess(self, outputs: Tensor, points: Tensor, which: Tensor) -> Tensor:
        """How much each row of its case exceeds its bound, (b, r): the case is met when none is above 0."""
        left = torch.einsum("brk,bk->br", self.rows[which], outputs)
        if self.inputs is not None:
            left = left + torch.einsum("brn,bn->br", self.inputs[which], points)
        return left - self.bound[which]


def aims_of(cases: Sequence[Case], dtype: np.dtype[Any] | type = np.float32) -> Aims | None:
    """The cases in whose box a point of the input's type lies, or None if there are none.

    They are tensors of float64 if that is the input's type, else of float32.
    """
    working = np.float64 if np.dtype(dtype) == np.float64 else np.float32
    boxes: dict[int, int] = {}
    corners: list[tuple[NDArray[Any], NDArray[Any]]] = []
    kept, box = [], []
    for case in cases:
        if id(case.lower) not in boxes:
            boxes[id(case.lower)] = len(corners)
            corners.append((first_float(case.lower, dtype), last_float(case.upper, dtype)))
        at = boxes[id(case.lower)]
        if (corners[at][0] <= corners[at][1]).all():
            kept.append(case)
            box.append(at)
    if not kept:
        return None
    longest = max(1, *(len(case.bound) for case in kept))
    rows = np.zeros((len(kept), longest, kept[0].rows.shape[1]), working)
    bound = np.full((len(kept), longest), np.inf, working)
    tied = any(case.inputs is not None for case in kept)
    inputs = np.zeros((len(kept), longest, len(kept[0].lower)), working) if tied else None
    for at, case in enumerate(kept):
        rows[at, : len(case.bound)] = case.rows
        bound[at, : len(case.bound)] = case.bound
        if not len(case.bound):
            bound[at, 0] = 1.0  # 0 <= 1: met by any output
        if inputs is not None and case.inputs is not None:
            inputs[at, : len(case.bound)] = case.inputs
    return Aims(
        torch.tensor(np.stack([low for low, _ in corners]).astype(working)),
        torch.tensor(np.stack([high for _, high in corners]).astype(working)),
        torch.tensor(box, dtype=torch.int64),
        torch.tensor(rows),
        torch.tensor(bound),
        None if inputs is None else torch.tensor(inputs),
    )
