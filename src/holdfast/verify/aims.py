"""The cases of a problem stacked as tensors: what an attack aims at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holdfast.verify.domain import first_float32, last_float32
from holdfast.verify.problem import Case


@dataclass(frozen=True, eq=False)
class Aims:
    """Boxes (g, n) on float32; for each of c cases its box and its rows, filled up to the longest."""

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


def aims_of(cases: Sequence[Case]) -> Aims | None:
    """The cases in whose box a float32 point lies, or None if there are none."""
    boxes: dict[int, int] = {}
    corners: list[tuple[NDArray[np.float32], NDArray[np.float32]]] = []
    kept, box = [], []
    for case in cases:
        if id(case.lower) not in boxes:
            boxes[id(case.lower)] = len(corners)
            corners.append((first_float32(case.lower), last_float32(case.upper)))
        at = boxes[id(case.lower)]
        if (corners[at][0] <= corners[at][1]).all():
            kept.append(case)
            box.append(at)
    if not kept:
        return None
    longest = max(1, *(len(case.bound) for case in kept))
    rows = np.zeros((len(kept), longest, kept[0].rows.shape[1]), np.float32)
    bound = np.full((len(kept), longest), np.inf, np.float32)
    tied = any(case.inputs is not None for case in kept)
    inputs = np.zeros((len(kept), longest, len(kept[0].lower)), np.float32) if tied else None
    for at, case in enumerate(kept):
        rows[at, : len(case.bound)] = case.rows
        bound[at, : len(case.bound)] = case.bound
        if not len(case.bound):
            bound[at, 0] = 1.0  # 0 <= 1: met by any output
        if inputs is not None and case.inputs is not None:
            inputs[at, : len(case.bound)] = case.inputs
    return Aims(
        torch.tensor(np.stack([low for low, _ in corners])),
        torch.tensor(np.stack([high for _, high in corners])),
        torch.tensor(box, dtype=torch.int64),
        torch.tensor(rows),
        torch.tensor(bound),
        None if inputs is None else torch.tensor(inputs),
    )
