"""Which inputs a property leaves free, and the values of all the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import InputError
from holdfast.core.property import Property
from holdfast.core.threat import Box
from holdfast.core.types import Floats


@dataclass(frozen=True, eq=False)
class Domain:
    """The free inputs (n,) by their flat places; `template` is the whole flat input with the fixed ones set.

    `box` is the one around all cases. A free input has at least two float32 in it.
    """

    box: Box
    free: NDArray[np.int64]
    template: NDArray[np.float32]

    def whole(self, points: NDArray[Any]) -> NDArray[np.float32]:
        """Free inputs (b, n) as whole network inputs (b, *shape)."""
        full = np.repeat(self.template[None], len(points), axis=0)
        full[:, self.free] = points
        return full.reshape(-1, *self.box.lower.shape)

    def within(self, box: Box | None) -> tuple[Floats, Floats]:
        """The bounds of the free inputs in a case's own box, or in all if it has none."""
        box = box or self.box
        return box.lower.ravel()[self.free], box.upper.ravel()[self.free]


def domain_of(question: Property) -> Domain:
    """The free inputs of a property whose threat is a box."""
    box = question.threat
    if not isinstance(box, Box):
        raise InputError(f"expected a property over a box of inputs, got {type(box).__name__}")
    if not (np.isfinite(box.lower).all() and np.isfinite(box.upper).all()):
        raise InputError("expected finite bounds of every input, got an infinite one")
    first, last = first_float32(box.lower.ravel()), last_float32(box.upper.ravel())
    if (first > last).any():
        at = int(np.flatnonzero(first > last)[0])
        low, high = box.lower.flat[at], box.upper.flat[at]
        raise InputError(f"expected a float32 between the bounds of input {at}, got [{low!r}, {high!r}]")
    return Domain(box, np.flatnonzero(first < last), first)


def first_float32(values: Floats) -> NDArray[np.float32]:
    """The smallest float32 that is not below each value."""
    with np.errstate(over="ignore"):
        near = values.astype(np.float32)
    return np.where(near.astype(np.float64) < values, np.nextafter(near, np.float32(np.inf)), near)


def last_float32(values: Floats) -> NDArray[np.float32]:
    """The largest float32 that is not above each value."""
    return -first_float32(-values)
