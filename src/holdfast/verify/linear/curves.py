"""Lines below and above a curve over an interval, with the parameters that may be tuned.

A `Bend` holds one activation step's pre-activation bounds l <= z <= u and says for parameters theta which
lines it uses, how the bound changes with theta, and how theta is kept valid. Work is done on the `index`
of neurons whose curve is not a known line there; rows and values of those alone are (q, m):

  relu, leaky   lower line slope alpha in [slope, 1] through 0; upper line the chord (Salman et al. 2019)
  sigmoid, tanh lower and upper tangents whose touching points are the parameters, chords where those are best
  sign          lower and upper lines through the jump

Lines are rounded outward: an offset absorbs what rounding took from the slope.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from holdfast.core.errors import ModelError
from holdfast.graph.ir import Activation

Tensor = Any
MARGIN = 1e-12  # what a tangent must keep from the curve at the end of the interval, in float64


@dataclass(frozen=True, eq=False)
class Lines:
    """ls·z + lo <= f(z) <= us·z + uo, each (1 or q, m); an offset of None is zero."""

    ls: Tensor
    lo: Tensor | None
    us: Tensor
    uo: Tensor | None


def pull(bend: Bend, lines: Lines, rows: Tensor, const: Tensor) -> tuple[Tensor, Tensor]:
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


def push(bend: Bend, lines: Lines, rows: Tensor, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The lines' values (q, n) at z (q, n), and z and those of the indexed neurons (q, m).

    `rows` (q, m) says which line each neuron uses: the lower one where it is positive.
    """
    part = z[:, bend.index]
    low = part * lines.ls if lines.lo is None else part * lines.ls + lines.lo
    high = part * lines.us if lines.uo is None else part * lines.us + lines.uo
    drawn = torch.where(rows >= 0, low, high)
    value = z * bend.base
    value[:, bend.index] = drawn
    return value, part, drawn


def curve(step: Activation, z: Tensor) -> Tensor:
    """The curve itself."""
    if step.curve == "relu":
        return z.clamp(min=0)
    if step.curve == "leaky":
        return torch.where(z > 0, z, z * step.slope)
    if step.curve == "sigmoid":
        return torch.sigmoid(z)
    return torch.tanh(z) if step.curve == "tanh" else torch.sign(z)


def span(step: Activation, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """The least and largest value of the curve over [lower, upper], rounded outward (all curves rise)."""
    if step.curve == "leaky" and not 0.0 <= step.slope <= 1.0:
        ends = torch.stack([curve(step, lower), curve(step, upper), torch.zeros_like(lower)])
        inside = (lower < 0) & (upper > 0)
        low = torch.where(inside, ends.min(0).values, ends[:2].min(0).values)
        return _wider(low, torch.where(inside, ends.max(0).values, ends[:2].max(0).values))
    low, high = curve(step, lower), curve(step, upper)
    if step.curve in ("sigmoid", "tanh"):
        pad = 8 * torch.finfo(lower.dtype).eps
        return low - pad, high + pad
    return _wider(low, high) if step.curve == "leaky" else (low, high)


def _wider(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Bounds moved outward by more than a rounded slope and a rounded product can be off."""
    eps = 2 * torch.finfo(low.dtype).eps
    return low - eps * low.abs(), high + eps * high.abs()


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

    def slope(self, theta: Tensor, rows: Tensor, z: Tensor) -> Tensor:
        """How the bound changes with theta: rows (q, m) of the output, z (q, m) of the relaxed point."""
        return rows.clamp(min=0) * z

    def keep(self, theta: Tensor) -> Tensor:
        """Theta moved to where the lines are valid."""
        return theta.clamp_(self.floor, 1.0)


class Bow:
    """sigmoid and tanh: theta (q, 2, n) are the touching points of the lower and the upper tangent."""

    def __init__(self, step: Activation, lower: Tensor, upper: Tensor) -> None:
        self.step, self.lower, self.upper = step, lower, upper
        self.index = torch.arange(lower.shape[1])
        self.base = torch.zeros_like(lower)
        self.ends = [_reach(step, lower, upper), -_reach(step, -upper, -lower)]
        self.low_chord = self.ends[0] < lower  # no tangent below the curve reaches from the convex part
        self.high_chord = self.ends[1] > upper
        f_low, f_high = curve(step, lower.double()), curve(step, upper.double())
        width = (upper.double() - lower.double()).clamp(min=1e-12)
        chord = ((f_high - f_low) / width).to(lower.dtype)
        self.chord = torch.where(upper - lower < 1e-6, torch.zeros_like(chord), chord)
        at_low = f_low - self.chord.double() * lower.double()
        at_high = f_high - self.chord.double() * upper.double()
        # _reach asks for MARGIN more than a tangent needs, so a chord may be drawn where a tangent just fits.
        pad = self._pad(self.chord).double() + MARGIN
        self.chord_low = (torch.minimum(at_low, at_high) - pad).to(lower.dtype)
        self.chord_high = (torch.maximum(at_low, at_high) + pad).to(lower.dtype)

    def _pad(self, slope: Tensor) -> Tensor:
        eps = torch.finfo(self.lower.dtype).eps
        return 16 * eps * (1 + slope.abs() * (self.lower.abs() + self.upper.abs()))

    def start(self, queries: int) -> Tensor:
        """Tangents in the middle of where they may touch."""
        low = (self.lower + torch.minimum(self.ends[0], self.upper)) / 2
        high = (self.upper + torch.maximum(self.ends[1], self.lower)) / 2
        return self.keep(torch.stack([low, high], 1).expand(queries, -1, -1).clone())

    def lines(self, theta: Tensor, split: Tensor | None = None) -> Lines:
        """The lines for touching points theta (q, 2, n)."""
        value, slope = curve(self.step, theta), _derivative(self.step, theta)
        offset = value - slope * theta
        pad = self._pad(slope)
        return Lines(
            torch.where(self.low_chord, self.chord, slope[:, 0]),
            torch.where(self.low_chord, self.chord_low, offset[:, 0] - pad[:, 0]),
            torch.where(self.high_chord, self.chord, slope[:, 1]),
            torch.where(self.high_chord, self.chord_high, offset[:, 1] + pad[:, 1]),
        )

    def slope(self, theta: Tensor, rows: Tensor, z: Tensor) -> Tensor:
        """How the bound changes with theta: the line turns about its touching point."""
        turn = _second(self.step, theta) * (z[:, None] - theta)
        low = rows.clamp(min=0) * turn[:, 0] * ~self.low_chord
        high = rows.clamp(max=0) * turn[:, 1] * ~self.high_chord
        return torch.stack([low, high], 1)

    def keep(self, theta: Tensor) -> Tensor:
        """Theta moved to where the tangents are valid."""
        low = torch.maximum(self.lower, torch.minimum(theta[:, 0], torch.minimum(self.ends[0], self.upper)))
        high = torch.minimum(self.upper, torch.maximum(theta[:, 1], torch.maximum(self.ends[1], self.lower)))
        return torch.stack([low, high], 1)


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

    def slope(self, theta: Tensor, rows: Tensor, z: Tensor) -> Tensor:
        """No parameters, no change."""
        return theta

    def keep(self, theta: Tensor) -> Tensor:
        """Nothing to keep valid."""
        return theta


Bend = Hinge | Bow | Jump


def bend(step: Activation, lower: Tensor, upper: Tensor) -> Bend:
    """The relaxation of one activation step between pre-activation bounds (1, n)."""
    if step.curve == "leaky" and not step.slope <= 1.0:
        raise ModelError(f"bounds: expected a leaky relu with a slope of at most 1, got {step.slope}")
    if step.curve in ("relu", "leaky"):
        return Hinge(step, lower, upper)
    return Jump(step, lower, upper) if step.curve == "sign" else Bow(step, lower, upper)


def _up(value: Tensor, dtype: torch.dtype) -> Tensor:
    """A float64 tensor rounded up to dtype."""
    rounded = value.to(dtype)
    more = torch.nextafter(rounded, torch.full_like(rounded, torch.inf))
    return torch.where((rounded.double() < value) | (value > 0), more, rounded)


def _derivative(step: Activation, z: Tensor) -> Tensor:
    # Not s·(1 - s) or 1 - tanh²: far from zero those lose all digits, and the slope is multiplied by a width.
    if step.curve == "sigmoid":
        return torch.sigmoid(z) * torch.sigmoid(-z)
    return 4 * torch.sigmoid(2 * z) * torch.sigmoid(-2 * z)


def _second(step: Activation, z: Tensor) -> Tensor:
    if step.curve == "sigmoid":
        s = torch.sigmoid(z)
        return s * (1 - s) * (1 - 2 * s)
    t = torch.tanh(z)
    return -2 * t * (1 - t * t)


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
    return curve(step, touch) + _derivative(step, touch) * (at - touch)
