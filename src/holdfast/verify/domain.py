"""Which inputs a property leaves free, and the values of all the others."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import InputError, ModelError
from holdfast.core.property import Box, Property
from holdfast.core.types import Floats
from holdfast.graph.inspect import inputs_of, read_proto


@dataclass(frozen=True, eq=False)
class Domain:
    """The free inputs (n,) by their flat places; `template` is the whole flat input with the fixed ones set.

    `box` is the one around all cases. The template has the floating-point type of the network's input; a
    free input has at least two numbers of that type in it.
    """

    box: Box
    free: NDArray[np.int64]
    template: NDArray[np.floating]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The floating-point type of the network's input."""
        return self.template.dtype

    def whole(self, points: NDArray[Any]) -> NDArray[Any]:
        """Free inputs (b, n) as whole network inputs (b, *shape), rounded to the input's type.

        Rounding never moves a value out of the box.
        """
        full = np.repeat(self.template[None], len(points), axis=0)
        low, high = self.within(None)
        with np.errstate(over="ignore"):
            near = np.asarray(points).astype(self.dtype)
        ends = first_float(low, self.dtype), last_float(high, self.dtype)
        full[:, self.free] = np.where((low <= points) & (points <= high), np.clip(near, *ends), near)
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
    dtype = input_type(read_proto(question.model.path), question.model.path)
    first, last = first_float(box.lower.ravel(), dtype), last_float(box.upper.ravel(), dtype)
    if (first > last).any():
        at = int(np.flatnonzero(first > last)[0])
        low, high = box.lower.flat[at], box.upper.flat[at]
        raise InputError(f"expected a {dtype.name} between the bounds of input {at}, got [{low!r}, {high!r}]")
    return Domain(box, np.flatnonzero(first < last), first)


def input_type(proto: Any, where: Path) -> np.dtype[Any]:
    """The floating-point type of a network's one input; ModelError if it has another."""
    inputs = inputs_of(proto)
    if len(inputs) != 1 or inputs[0].dtype not in ("float16", "float32", "float64"):
        names = ", ".join(f"{tensor.name} ({tensor.dtype})" for tensor in inputs)
        raise ModelError(
            f"{where}: expected one input of float16, float32 or float64, got {names or 'none'}; "
            "a property over other inputs cannot be verified"
        )
    return np.dtype(inputs[0].dtype)


def first_float(values: Floats, dtype: np.dtype[Any] | type = np.float32) -> NDArray[Any]:
    """The smallest number of a floating-point type that is not below each value."""
    with np.errstate(over="ignore"):
        near = values.astype(dtype)
        above = np.nextafter(near, np.asarray(np.inf, dtype))
    return np.where(near.astype(np.float64) < values, above, near)


def last_float(values: Floats, dtype: np.dtype[Any] | type = np.float32) -> NDArray[Any]:
    """The largest number of a floating-point type that is not above each value."""
    return -first_float(-values, dtype)
