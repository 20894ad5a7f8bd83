"""The cells of a free input: runs of float32 on which every cut it reaches gives one value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.verify.finite.trace import NotFinite, Trace, Values, read_by

Stairs = Callable[[Values], NDArray[Any]]


class TooMany(Exception):
    """More cells than may be enumerated."""


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells of one input in order: all float32 from first[i] to last[i]."""

    first: Values
    last: Values

    def __len__(self) -> int:
        return len(self.first)

    @property
    def middle(self) -> Values:
        """One float32 of each cell, whole if one is."""
        near = np.rint((self.first.astype(np.float64) + self.last) / 2).astype(np.float32)
        return np.where((self.first <= near) & (near <= self.last), near, self.first)


def stairs_of(trace: Trace, free: int) -> Stairs:
    """The staircases of one free input: from its values (b,) to the cut elements it reaches, (m, b)."""
    mine = np.flatnonzero(trace.roots == free)
    place = np.full(len(trace.roots) + 1, -1, np.int64)
    place[mine] = np.arange(len(mine))
    climbs, begin = [], trace.inputs
    for climb in trace.climbs:
        kept = np.flatnonzero(trace.roots[begin : begin + len(climb.parents)] == free)
        begin += len(climb.parents)
        if len(kept):
            climbs.append((climb.step, place[climb.parents[kept]], climb.constants[kept, None]))
    cuts = []
    for cut in trace.cuts.values():
        read = sorted({*place[cut.view.index].ravel().tolist()} - {-1})
        cuts.append((cut, np.array(read, np.int64)))

    def stairs(values: Values) -> NDArray[Any]:
        elements = values[None]
        with np.errstate(over="ignore", invalid="ignore"):
            for step, parents, constants in climbs:
                elements = np.concatenate([elements, step(elements[parents], constants)])
        rows = [cut.stairs(elements[read]) for cut, read in cuts]
        return np.concatenate(rows) if rows else np.zeros((1, len(values)))

    return stairs


def check_range(trace: Trace, ends: list[Values]) -> None:
    """Nothing is returned; NotFinite if a cut meets a value its type cannot hold: anything goes then."""
    for name, cut in trace.cuts.items():
        for point in ends:
            values = np.trunc(read_by(trace, cut, point).astype(np.float64))
            good = np.isfinite(values)
            if cut.dtype.kind in "iu":
                kind = np.iinfo(cut.dtype)
                good &= (kind.min <= values) & (values <= kind.max) & (np.abs(values) < 2.0**63)
            if not good.all():
                raise NotFinite(f"the cut {name!r} meets values that {cut.dtype.name} cannot hold")


def cells_of(stairs: Stairs, low: np.float32, high: np.float32, limit: int) -> Cells:
    """The cells between two float32, both included, in order; `stairs` gives monotone rows (m, b)."""
    left, right = ordinal(np.array([low])), ordinal(np.array([high]))
    borders = []
    below, above = stairs(number(left)), stairs(number(right))
    while len(left):
        differs = (below != above).any(axis=0)
        left, right, below, above = left[differs], right[differs], below[:, differs], above[:, differs]
        near = right - left == 1
        borders.append(right[near])
        left, right, below, above = left[~near], right[~near], below[:, ~near], above[:, ~near]
        if sum(map(len, borders)) + len(left) > limit:
            raise TooMany
        middle = (left + right) // 2
        between = stairs(number(middle))
        left, right = np.concatenate([left, middle]), np.concatenate([middle, right])
        below, above = np.concatenate([below, between], axis=1), np.concatenate([between, above], axis=1)
    cuts = np.sort(np.concatenate(borders))
    firsts = np.concatenate([ordinal(np.array([low])), cuts])
    lasts = np.concatenate([cuts - 1, ordinal(np.array([high]))])
    return Cells(number(firsts), number(lasts))


def ordinal(values: Values) -> NDArray[np.int64]:
    """The place of each float32 in their order; both zeros are 0."""
    bits = values.astype(np.float32).view(np.int32).astype(np.int64)
    return np.where(bits < 0, -(bits & 0x7FFFFFFF), bits)


def number(ordinals: NDArray[np.int64]) -> Values:
    """The float32 at each place of their order."""
    bits = np.where(ordinals < 0, -ordinals | 0x80000000, ordinals)
    return bits.astype(np.uint32).view(np.float32)
