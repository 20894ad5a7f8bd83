"""Lines of S-shaped curves (sigmoid, tanh, erf), over the whole interval or over a part of it.

What a line needs to know of an interval is kept as a tensor (q, 7, n), so that every query may have intervals
of its own: the ends, the last valid touching points of the lower and the upper tangent, the chord's slope and
its offsets below and above the curve.
"""

from __future__ import annotations

from typing import Any

import torch

from holdfast.graph.ir import Activation
from holdfast.verify.linear.lines import Lines
from holdfast.verify.linear.shapes import curve, derivative, second

Tensor = Any
MARGIN = 1e-12  # what a tangent must keep from the curve at the end of the interval, in float64


class Bow:
    """sigmoid, tanh, erf: theta (q, 2, n) are the touching points of the lower and the upper tangent."""

    def __init__(self, step: Activation, lower: Tensor, upper: Tensor) -> None:
        self.step, self.lower, self.upper = step, lower, upper
        self.index = torch.arange(lower.shape[1])
        self.base = torch.zeros_like(lower)
        self.whole = _drawn(step, lower, upper)

    def assumed(self, lower: Tensor, upper: Tensor) -> Tensor:
        """What lines need (q, 7, n) when z is assumed between these (q, n), which lie inside the interval."""
        drawn = self.whole.to(lower.dtype).expand(len(lower), -1, -1).clone()
        query, neuron = torch.nonzero((lower > self.lower) | (upper < self.upper), as_tuple=True)
        if len(query):
            part = _drawn(self.step, lower[query, neuron][None], upper[query, neuron][None])
            drawn[query, :, neuron] = part[0].T
        return drawn

    def start(self, queries: int) -> Tensor:
        """Tangents in the middle of where they may touch."""
        low, high, first, last = self.whole[:, :4].unbind(1)
        theta = torch.stack(
            [(low + torch.minimum(first, high)) / 2, (high + torch.maximum(last, low)) / 2], 1
        )
        return self.keep(theta.expand(queries, -1, -1).clone())

    def lines(self, theta: Tensor, split: Tensor | None = None) -> Lines:
        """The lines for touching points theta (q, 2, n), over the whole interval or the assumed ones."""
        low, high, first, last, chord, under, over = (self.whole if split is None else split).unbind(1)
        value, slope = curve(self.step, theta), derivative(self.step, theta)
        offset = value - slope * theta
        pad = _pad(slope, low[:, None], high[:, None])
        low_chord, high_chord = first < low, last > high
        return Lines(
            torch.where(low_chord, chord, slope[:, 0]),
            torch.where(low_chord, under, offset[:, 0] - pad[:, 0]),
            torch.where(high_chord, chord, slope[:, 1]),
            torch.where(high_chord, over, offset[:, 1] + pad[:, 1]),
        )

    def slope(self, theta: Tensor, rows: Tensor, z: Tensor, split: Tensor | None = None) -> Tensor:
        """How the bound changes with theta: the line turns about its touching point."""
        low, high, first, last = (self.whole if split is None else split)[:, :4].unbind(1)
        turn = second(self.step, theta) * (z[:, None] - theta)
        below = rows.clamp(min=0) * turn[:, 0] * (first >= low)
        above = rows.clamp(max=0) * turn[:, 1] * (last <= high)
        return torch.stack([below, above], 1)

    def keep(self, theta: Tensor, split: Tensor | None = None) -> Tensor:
        """Theta moved to where the tangents are valid."""
        low, high, first, last = (self.whole if split is None else split)[:, :4].unbind(1)
        below = torch.maximum(low, torch.minimum(theta[:, 0], torch.minimum(first, high)))
        above = torch.minimum(high, torch.maximum(theta[:, 1], torch.maximum(last, low)))
        return torch.stack([below, above], 1)


def _drawn(step: Activation, lower: Tensor, upper: Tensor) -> Tensor:
    """What lines over the intervals lower, upper (1, n) need, (1, 7, n)."""
    first, last = _reach(step, lower, upper), -_reach(step, -upper, -lower)
    f_low, f_high = curve(step, lower.double()), curve(step, upper.double())
    width = (upper.double() - lower.double()).clamp(min=1e-12)
    chord = ((f_high - f_low) / width).to(lower.dtype)
    chord = torch.where(upper - lower < 1e-6, torch.zeros_like(chord), chord)
    at_low = f_low - chord.double() * lower.double()
    at_high = f_high - chord.double() * upper.double()
    # _reach asks for MARGIN more than a tangent needs, so a chord may be drawn where a tangent just fits.
    pad = _pad(chord, lower, upper).double() + MARGIN
    under = (torch.minimum(at_low, at_high) - pad).to(lower.dtype)
    over = (torch.maximum(at_low, at_high) + pad).to(lower.dtype)
    return torch.stack([lower, upper, first, last, chord, under, over], 1)


def _pad(slope: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    eps = torch.finfo(lower.dtype).eps
    return 16 * eps * (1 + slope.abs() * (lower.abs() + upper.abs()))


def _reach(step: Activation, lower: Tensor, upper: Tensor) -> Tensor:
    """The largest touching point whose tangent stays below the curve up to `upper`; below `lower` if none.

    In the convex part (z <= 0) every tangent is below the curve there; over the concave part it is below
    when it is at `upper`. Bisection keeps the end that was checked, so the result is on the safe side.
    """
    high = torch.minimum(upper, torch.zeros_like(upper)).double()
    u = upper.double()
    target = curve(step, u)
    safe = lower.double().clone()
    fits = _tangent(step, safe, u) <= target - MARGIN
    bad = high.clone()
    whole = (upper <= 0) | (_tangent(step, bad, u) <= target - MARGIN)
    for _ in range(40):
        middle = (safe + bad) / 2
        good = _tangent(step, middle, u) <= target - MARGIN
        safe, bad = torch.where(good, middle, safe), torch.where(good, bad, middle)
    found = torch.where(whole, high, safe)
    none = ~fits & ~(upper <= 0)
    result = torch.where(none | (lower >= 0), lower.double() - 1.0, found).to(lower.dtype)
    # Rounding to float32 may move the point up; one step down is safe again.
    return torch.nextafter(result, torch.full_like(result, -torch.inf))


def _tangent(step: Activation, touch: Tensor, at: Tensor) -> Tensor:
    return curve(step, touch) + derivative(step, touch) * (at - touch)
