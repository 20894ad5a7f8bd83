"""Lines below and above a curve, and how rows and values pass them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch

Tensor = Any


@dataclass(frozen=True, eq=False)
class Lines:
    """ls·z + lo <= f(z) <= us·z + uo, each (1 or q, m); an offset of None is zero."""

    ls: Tensor
    lo: Tensor | None
    us: Tensor
    uo: Tensor | None

    def pick(self, index: Tensor) -> Lines:
        """Those of some of the queries."""
        parts = (self.ls, self.lo, self.us, self.uo)
        return Lines(*(part if part is None or len(part) == 1 else part[index] for part in parts))


class Bent(Protocol):
    """What passing lines takes: the neurons that have some, and the slope (1, n) of all the others."""

    index: Tensor
    base: Tensor


def pull(bend: Bent, lines: Lines, rows: Tensor, const: Tensor) -> tuple[Tensor, Tensor]:
    """Rows (q, n) of the output as rows of the pre-activation, and the constant (q,) with what it gained."""
    part = rows[:, bend.index]
    positive = part.clamp(min=0)
    negative = part - positive
    if lines.lo is not None:
        const = const + (positive.to(const.dtype) * lines.lo).sum(1)
    if lines.uo is not None:
        const = const + (negative.to(const.dtype) * lines.uo).sum(1)
    before = rows * bend.base
    before[:, bend.index] = positive.mul_(lines.ls).add_(negative.mul_(lines.us))
    return const, before


def push(bend: Bent, lines: Lines, rows: Tensor, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The lines' values (q, n) at z (q, n), and z and those of the indexed neurons (q, m).

    `rows` (q, m) says which line each neuron uses: the lower one where it is positive.
    """
    part = z[:, bend.index]
    drawn = on_line(lines, rows, part)
    value = z * bend.base
    value[:, bend.index] = drawn
    return value, part, drawn


def on_line(lines: Lines, rows: Tensor, z: Tensor) -> Tensor:
    """The value (q, m) at z (q, m) of the line each neuron uses: the lower one where its row is positive."""
    low = z * lines.ls if lines.lo is None else z * lines.ls + lines.lo
    high = z * lines.us if lines.uo is None else z * lines.us + lines.uo
    return torch.where(rows >= 0, low, high)
