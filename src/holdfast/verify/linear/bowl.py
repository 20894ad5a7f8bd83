"""Lines of curves that are convex or concave over the whole interval: squares, exp, log, roots, 1/x, elu.

On the convex side a tangent, anywhere; on the other the chord. A tensor (q, 5, n) says of each query's
intervals: the ends, the chord's slope and offset, and 1 where the curve is convex, -1 where it is concave.
"""

from __future__ import annotations

from typing import Any

import torch

from holdfast.core.errors import ModelError
from holdfast.graph.ir import Activation
from holdfast.verify.linear.lines import Lines
from holdfast.verify.linear.shapes import CONCAVE, curve, derivative, second

Tensor = Any
LEAST = 1e-30  # roots, logarithms and 1/x have no tangent at zero
TINY = 1e-37


class Bowl:
    """A curve that bends one way: theta (q, 2, n) has the touching points first, then nothing."""

    def __init__(self, step: Activation, lower: Tensor, upper: Tensor) -> None:
        _inside(step, lower, upper)
        self.step, self.lower, self.upper = step, lower, upper
        self.index = torch.arange(lower.shape[1])
        self.base = torch.zeros_like(lower)
        self.whole = _drawn(step, lower, upper)
        self.pace = ((upper - lower) / 4)[:, None]

    def assumed(self, lower: Tensor, upper: Tensor) -> Tensor:
        """What lines need (q, 5, n) when z is assumed between these (q, n), which lie inside the interval."""
        return _drawn(self.step, lower, upper)

    def start(self, queries: int) -> Tensor:
        """Tangents in the middle."""
        middle = (self.lower / 2 + self.upper / 2)[:, None]
        return self.keep(middle.expand(queries, 2, -1).clone())

    def lines(self, theta: Tensor, split: Tensor | None = None) -> Lines:
        """The tangent at theta (q, 2, n), and the chord."""
        low, high, chord, rest, side = (self.whole if split is None else split).unbind(1)
        touch = theta[:, 0]
        value, slope = curve(self.step, touch), derivative(self.step, touch)
        pad = _pad(value, slope, low, high)
        below = value - slope * touch - side * pad
        convex = side > 0
        return Lines(
            torch.where(convex, slope, chord),
            torch.where(convex, below, rest),
            torch.where(convex, chord, slope),
            torch.where(convex, rest, below),
        )

    def slope(self, theta: Tensor, rows: Tensor, z: Tensor, split: Tensor | None = None) -> Tensor:
        """How the bound changes with theta: the line turns about its touching point."""
        side = (self.whole if split is None else split)[:, 4]
        used = torch.where(side > 0, rows.clamp(min=0), rows.clamp(max=0))
        turn = used * second(self.step, theta[:, 0]) * (z - theta[:, 0])
        return torch.stack([turn, torch.zeros_like(turn)], 1)

    def keep(self, theta: Tensor, split: Tensor | None = None) -> Tensor:
        """Theta moved to where the curve is."""
        low, high = (self.whole if split is None else split)[:, :2].unbind(1)
        if self.step.curve in ("sqrt", "log"):
            low = low.clamp(min=LEAST)
        return torch.minimum(torch.maximum(theta, low[:, None]), torch.maximum(high, low)[:, None])


def _inside(step: Activation, lower: Tensor, upper: Tensor) -> None:
    """Refuses an interval on which the curve is not defined."""
    bad = {"sqrt": lower < 0, "log": lower <= 0, "reciprocal": (lower <= 0) & (upper >= 0)}.get(step.curve)
    if bad is not None and bool(bad.any()):
        at = int(bad[0].nonzero()[0])
        raise ModelError(
            f"bounds: expected {step.curve} of values where it is defined, got values between "
            f"{float(lower[0, at]):g} and {float(upper[0, at]):g} as far as is known; try fewer inputs"
        )


def _drawn(step: Activation, lower: Tensor, upper: Tensor) -> Tensor:
    """What lines over the intervals lower, upper (q, n) need, (q, 5, n)."""
    low, high = lower.double(), upper.double()
    f_low, f_high = curve(step, low), curve(step, high)
    width = high - low
    narrow = width <= 1e-6 * (1e-6 + low.abs() + high.abs())
    chord = (f_high - f_low) / torch.where(narrow, torch.ones_like(width), width)
    middle = (low / 2 + high / 2).clamp(min=LEAST) if step.curve in ("sqrt", "log") else low / 2 + high / 2
    chord = torch.where(narrow, derivative(step, middle), chord).to(lower.dtype)
    concave = step.curve in CONCAVE
    side = -torch.ones_like(lower) if concave else torch.ones_like(lower)
    if step.curve == "reciprocal":
        side = torch.where(upper < 0, -side, side)
    # The curve minus any slope times z is largest at an end where it is convex, least where it is concave.
    at_low, at_high = f_low - chord.double() * low, f_high - chord.double() * high
    convex = side > 0
    rest = torch.where(convex, torch.maximum(at_low, at_high), torch.minimum(at_low, at_high))
    size = torch.maximum(f_low.abs(), f_high.abs())
    rest = rest + side.double() * _pad(size.to(lower.dtype), chord, lower, upper).double()
    return torch.stack([lower, upper, chord, rest.to(lower.dtype), side], 1)


def _pad(value: Tensor, slope: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    kind = torch.finfo(lower.dtype)
    size = lower.abs() + upper.abs()
    # A slope that is not a normal number any more has an absolute error.
    return 16 * kind.eps * (value.abs() + slope.abs() * size) + 4 * kind.tiny * size + TINY
