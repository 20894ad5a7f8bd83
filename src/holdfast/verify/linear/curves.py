"""Lines below and above a curve over an interval, with the parameters that may be tuned.

A `Bend` holds one activation step's pre-activation bounds l <= z <= u and says for parameters theta which
lines it uses, how the bound changes with theta, and how theta is kept valid. Work is done on the `index`
of neurons whose curve is not a known line there; rows and values of those alone are (q, m):

  relu, leaky   lower line slope alpha in [slope, 1] through 0; upper line the chord (Salman et al. 2019)
  sigmoid, tanh lower and upper tangents whose touching points are the parameters, chords where those are best
  exp, squares  a tangent on one side, the chord on the other (every curve that bends one way)
  sin           lower and upper lines of any slope, which is the parameter
  sign          lower and upper lines through the jump
  products      planes in both factors, mixed by the parameters (`saddle`)

Lines are rounded outward: an offset absorbs what rounding took from the slope.
"""

from __future__ import annotations

from typing import Any

import torch

from holdfast.core.errors import ModelError
from holdfast.graph.ir import Activation
from holdfast.verify.linear.bow import Bow
from holdfast.verify.linear.bowl import Bowl
from holdfast.verify.linear.lines import Lines, pull, push
from holdfast.verify.linear.saddle import Saddle
from holdfast.verify.linear.shapes import SHAPED, curve, span
from holdfast.verify.linear.wave import Wave

__all__ = ["Bend", "Bow", "Cut", "Hinge", "Jump", "Lines", "bend", "curve", "doubled", "pull", "push", "span"]

Tensor = Any


class Hinge:
    """Relu, leaky relu with a slope in [0, 1]: theta (q, m) are the lower slopes of the m unstable ones."""

    def __init__(self, step: Activation, lower: Tensor, upper: Tensor) -> None:
        self.step, self.lower, self.upper = step, lower, upper
        self.index = torch.nonzero((lower[0] < 0) & (upper[0] > 0)).reshape(-1)
        p = step.slope if step.curve == "leaky" else 0.0
        self.floor = p
        self.base = torch.where(lower >= 0, torch.ones_like(lower), torch.full_like(lower, p))
        low, high = lower[:, self.index].double(), upper[:, self.index].double()
        slope = ((high - p * low) / (high - low)).to(lower.dtype)
        # The chord must not pass below the curve at either end, whatever was rounded.
        need = torch.maximum(p * low - slope.double() * low, high - slope.double() * high).clamp(min=0)
        self.chord = slope
        self.offset = _up(need, lower.dtype)

    def start(self, queries: int) -> Tensor:
        """Slopes that make the smaller triangle."""
        larger = self.upper[:, self.index] > -self.lower[:, self.index]
        alpha = torch.where(larger, torch.ones_like(self.chord), torch.full_like(self.chord, self.floor))
        return alpha.expand(queries, -1).clone()

    def lines(self, theta: Tensor, split: Tensor | None = None) -> Lines:
        """The lines for slopes theta (q, m); `split` (q, m) is 1 or -1 where z >= 0 or z <= 0 is assumed."""
        if split is None:
            return Lines(theta, None, self.chord, self.offset)
        open_ = split == 0
        known = torch.where(split > 0, torch.ones_like(theta), torch.full_like(theta, self.floor))
        return Lines(
            torch.where(open_, theta, known), None, torch.where(open_, self.chord, known), self.offset * open_
        )

    def slope(self, theta: Tensor, rows: Tensor, z: Tensor, split: Tensor | None = None) -> Tensor:
        """How the bound changes with theta: rows (q, m) of the output, z (q, m) of the relaxed point."""
        return rows.clamp(min=0) * z

    def keep(self, theta: Tensor, split: Tensor | None = None) -> Tensor:
        """Theta moved to where the lines are valid."""
        return theta.clamp_(self.floor, 1.0)


class Jump:
    """sign: lines through the jump, or constants where the sign is known; nothing to tune."""

    def __init__(self, step: Activation, lower: Tensor, upper: Tensor) -> None:
        self.step, self.lower, self.upper = step, lower, upper
        self.index = torch.arange(lower.shape[1])
        self.base = torch.zeros_like(lower)
        zero, one = torch.zeros_like(lower), torch.ones_like(lower)
        # Below: -1 + 2 z / u reaches 1 only at u. Rounded down so that it stays below at u.
        rise = torch.where((lower < 0) & (upper > -lower), 2 * (1 - 1e-6) / upper.clamp(min=1e-12), zero)
        fall = torch.where((upper > 0) & (upper <= -lower), 2 * (1 - 1e-6) / (-lower).clamp(min=1e-12), zero)
        self.drawn = Lines(
            torch.where(rise > 1e6, zero, rise),
            torch.where(lower > 0, one, torch.where(lower == 0, zero, -one)),
            torch.where(fall > 1e6, zero, fall),
            torch.where(upper < 0, -one, torch.where(upper == 0, zero, one)),
        )

    def start(self, queries: int) -> Tensor:
        """No parameters."""
        return self.lower.new_zeros(queries, 0)

    def lines(self, theta: Tensor, split: Tensor | None = None) -> Lines:
        """The lines, the same for every query."""
        return self.drawn

    def slope(self, theta: Tensor, rows: Tensor, z: Tensor, split: Tensor | None = None) -> Tensor:
        """No parameters, no change."""
        return theta

    def keep(self, theta: Tensor, split: Tensor | None = None) -> Tensor:
        """Nothing to keep valid."""
        return theta


Cut = Bow | Bowl | Wave  # curves whose interval may be cut in two anywhere
Bend = Hinge | Cut | Jump | Saddle


def bend(step: Activation, lower: Tensor, upper: Tensor) -> Bend:
    """The relaxation of one activation step between pre-activation bounds (1, n)."""
    if step.curve == "leaky" and not step.slope <= 1.0:
        raise ModelError(f"bounds: expected a leaky relu with a slope of at most 1, got {step.slope}")
    if step.curve in ("relu", "leaky"):
        return Hinge(step, lower, upper)
    if step.curve == "sign":
        return Jump(step, lower, upper)
    if step.curve == "elu" and not 0.0 <= step.slope <= 1.0:
        raise ModelError(f"bounds: expected an elu with a factor between 0 and 1, got {step.slope}")
    if step.curve == "sin":
        return Wave(step, lower, upper)
    return Bow(step, lower, upper) if step.curve in SHAPED else Bowl(step, lower, upper)


def doubled(drawn: Bend) -> Bend:
    """The same relaxation in float64: the bounds carry over, the lines are drawn anew."""
    if isinstance(drawn, Saddle):
        return drawn.double()
    return bend(drawn.step, drawn.lower.double(), drawn.upper.double())


def _up(value: Tensor, dtype: torch.dtype) -> Tensor:
    """A float64 tensor rounded up to dtype."""
    rounded = value.to(dtype)
    more = torch.nextafter(rounded, torch.full_like(rounded, torch.inf))
    return torch.where((rounded.double() < value) | (value > 0), more, rounded)
