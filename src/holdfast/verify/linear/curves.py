"""Linear relaxations of curves over an interval, with tunable parameters.

A `Bend` holds the pre-activation bounds l <= z <= u of one activation step. For parameters theta it gives
the lines, the derivative of the bound by theta, and the projection of theta to valid values. Only the
neurons in `index`, whose curve is not a fixed line over the interval, are handled; their rows and values
are (q, m):

  relu, leaky   lower line slope alpha in [slope, 1] through 0; upper line the chord (Salman et al. 2019)
  sigmoid, tanh lower and upper tangents whose touching points are the parameters, chords where those are best
  exp, squares  a tangent on one side, the chord on the other (every curve that bends one way)
  sin           lower and upper lines of any slope, which is the parameter
  sign          lower and upper lines through the jump
  products      planes in both factors, mixed by the parameters (`ProductRelaxation`)

Lines are rounded outward: the offset absorbs the rounding of the slope.
"""

from math import pi
from typing import Any

import torch

from holdfast.core.errors import ModelError
from holdfast.graph.ir import Activation
from holdfast.verify.linear import shapes
from holdfast.verify.linear.shapes import Lines, ProductRelaxation, Relaxation, curve, derivative, least

Tensor = Any
MARGIN = 1e-12  # minimum distance of a tangent from the curve at the end of the interval, in float64
LEAST = 1e-30  # roots, logarithms and 1/x have no tangent at zero


class ReluRelaxation(Relaxation):
    """Relu, leaky relu with a slope in [0, 1]: theta (q, m) are the lower slopes of the m unstable ones."""

    def __init__(self, step: Activation, lower: Tensor, upper: Tensor) -> None:
        super().__init__(step, lower, upper)
        self.index = torch.nonzero((lower[0] < 0) & (upper[0] > 0)).reshape(-1)
        self.floor = p = step.slope if step.curve == "leaky" else 0.0
        self.base = torch.where(lower >= 0, torch.ones_like(lower), torch.full_like(lower, p))
        low, high = lower[:, self.index].double(), upper[:, self.index].double()
        slope = ((high - p * low) / (high - low)).to(lower.dtype)
        # The chord must not pass below the curve at either end in spite of rounding.
        need = torch.maximum(p * low - slope.double() * low, high - slope.double() * high).clamp(min=0)
        self.chord = slope
        rounded = need.to(lower.dtype)
        up = torch.nextafter(rounded, torch.full_like(rounded, torch.inf))
        self.offset = torch.where((rounded.double() < need) | (need > 0), up, rounded)

    def start(self, queries: int) -> Tensor:
        """Slopes with the smaller relaxation triangle."""
        larger = self.upper[:, self.index] > -self.lower[:, self.index]
        alpha = torch.where(larger, torch.ones_like(self.chord), torch.full_like(self.chord, self.floor))
        return alpha.expand(queries, -1).clone()

    def lines(self, theta: Tensor, split: Tensor | None = None) -> Lines:
        """The lines for slopes theta (q, m); `split` (q, m) is 1 or -1 where z >= 0 or z <= 0 is assumed."""
        if split is None:
            return Lines(theta, None, self.chord, self.offset)
        open_ = split == 0
        fixed = torch.where(split > 0, torch.ones_like(theta), torch.full_like(theta, self.floor))
        below, above = torch.where(open_, theta, fixed), torch.where(open_, self.chord, fixed)
        return Lines(below, None, above, self.offset * open_)

    def slope(self, theta: Tensor, rows: Tensor, z: Tensor, split: Tensor | None = None) -> Tensor:
        """How the bound changes with theta: rows (q, m) of the output, z (q, m) of the relaxed point."""
        return rows.clamp(min=0) * z

    def keep(self, theta: Tensor, split: Tensor | None = None) -> Tensor:
        """Theta projected to valid slopes."""
        return theta.clamp_(self.floor, 1.0)


class SignRelaxation(Relaxation):
    """sign: lines through the jump, or constants where the sign is fixed; without parameters."""

    def __init__(self, step: Activation, lower: Tensor, upper: Tensor) -> None:
        super().__init__(step, lower, upper)
        zero, one = torch.zeros_like(lower), torch.ones_like(lower)
        # Below: -1 + 2 z / u reaches 1 only at u. Rounded down so that it stays below at u.
        rise = torch.where((lower < 0) & (upper > -lower), 2 * (1 - 1e-6) / upper.clamp(min=1e-12), zero)
        fall = torch.where((upper > 0) & (upper <= -lower), 2 * (1 - 1e-6) / (-lower).clamp(min=1e-12), zero)
        self.fixed_lines = Lines(
            torch.where(rise > 1e6, zero, rise),
            torch.where(lower > 0, one, torch.where(lower == 0, zero, -one)),
            torch.where(fall > 1e6, zero, fall),
            torch.where(upper < 0, -one, torch.where(upper == 0, zero, one)),
        )

    def lines(self, theta: Tensor, split: Tensor | None = None) -> Lines:
        """The lines, the same for every query."""
        return self.fixed_lines


class Cut(Relaxation):
    """A curve whose interval may be cut in two anywhere.

    Its lines are computed from line data, of which the first two channels are the ends of an interval:
    `full_data` is that of the whole interval, and `split` that of the interval assumed in each query.
    """

    def __init__(self, step: Activation, lower: Tensor, upper: Tensor) -> None:
        super().__init__(step, lower, upper)
        self.full_data = self.line_data(lower, upper)

    def line_data(self, lower: Tensor, upper: Tensor) -> Tensor:
        """Line data (q, c, n) over intervals (q, n)."""
        return torch.stack([lower, upper], 1)

    def assumed(self, lower: Tensor, upper: Tensor) -> Tensor:
        """Line data (q, c, n) if z is assumed between these bounds (q, n), which lie inside the interval."""
        return self.line_data(lower, upper)

    def channels(self, split: Tensor | None) -> tuple[Tensor, ...]:
        """The channels (q, n) of the line data of the queries."""
        channels: tuple[Tensor, ...] = (self.full_data if split is None else split).unbind(1)
        return channels


class SigmoidRelaxation(Cut):
    """sigmoid, tanh, erf: theta (q, 2, n) are the touching points of the lower and the upper tangent.

    Line data (q, 7, n) are the ends, the last valid touching points of the lower and the upper tangent, the
    chord's slope and its offsets below and above the curve.
    """

    def line_data(self, lower: Tensor, upper: Tensor) -> Tensor:
        """Line data (1, 7, n) over the intervals lower, upper (1, n)."""
        first, last = _reach(self.step, lower, upper), -_reach(self.step, -upper, -lower)
        f_low, f_high = curve(self.step, lower.double()), curve(self.step, upper.double())
        width = (upper.double() - lower.double()).clamp(min=1e-12)
        chord = ((f_high - f_low) / width).to(lower.dtype)
        chord = torch.where(upper - lower < 1e-6, torch.zeros_like(chord), chord)
        at_low = f_low - chord.double() * lower.double()
        at_high = f_high - chord.double() * upper.double()
        # _reach requires MARGIN more than a tangent needs, so a chord may be used where a tangent just fits.
        pad = _sigmoid_pad(chord, lower, upper).double() + MARGIN
        under = (torch.minimum(at_low, at_high) - pad).to(lower.dtype)
        over = (torch.maximum(at_low, at_high) + pad).to(lower.dtype)
        return torch.stack([lower, upper, first, last, chord, under, over], 1)

    def assumed(self, lower: Tensor, upper: Tensor) -> Tensor:
        """The line data, recomputed where the interval is smaller."""
        data = self.full_data.to(lower.dtype).expand(len(lower), -1, -1).clone()
        query, neuron = torch.nonzero((lower > self.lower) | (upper < self.upper), as_tuple=True)
        if len(query):
            part = self.line_data(lower[query, neuron][None], upper[query, neuron][None])
            data[query, :, neuron] = part[0].T
        return data

    def start(self, queries: int) -> Tensor:
        """Tangents in the middle of their valid range."""
        low, high, first, last = self.full_data[:, :4].unbind(1)
        below, above = (low + torch.minimum(first, high)) / 2, (high + torch.maximum(last, low)) / 2
        return self.keep(torch.stack([below, above], 1).expand(queries, -1, -1).clone())

    def lines(self, theta: Tensor, split: Tensor | None = None) -> Lines:
        """The lines for touching points theta (q, 2, n), over the whole interval or the assumed ones."""
        low, high, first, last, chord, under, over = (self.full_data if split is None else split).unbind(1)
        value, slope = curve(self.step, theta), derivative(self.step, theta)
        offset = value - slope * theta
        pad = _sigmoid_pad(slope, low[:, None], high[:, None])
        low_chord, high_chord = first < low, last > high
        return Lines(
            torch.where(low_chord, chord, slope[:, 0]),
            torch.where(low_chord, under, offset[:, 0] - pad[:, 0]),
            torch.where(high_chord, chord, slope[:, 1]),
            torch.where(high_chord, over, offset[:, 1] + pad[:, 1]),
        )

    def slope(self, theta: Tensor, rows: Tensor, z: Tensor, split: Tensor | None = None) -> Tensor:
        """How the bound changes with theta: the line turns about its touching point."""
        low, high, first, last = self.channels(split)[:4]
        turn = shapes.second(self.step, theta) * (z[:, None] - theta)
        below = rows.clamp(min=0) * turn[:, 0] * (first >= low)
        above = rows.clamp(max=0) * turn[:, 1] * (last <= high)
        return torch.stack([below, above], 1)

    def keep(self, theta: Tensor, split: Tensor | None = None) -> Tensor:
        """Theta projected to valid touching points."""
        low, high, first, last = self.channels(split)[:4]
        below = torch.maximum(low, torch.minimum(theta[:, 0], torch.minimum(first, high)))
        above = torch.minimum(high, torch.maximum(theta[:, 1], torch.maximum(last, low)))
        return torch.stack([below, above], 1)


def _sigmoid_pad(slope: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    eps = torch.finfo(lower.dtype).eps
    return 16 * eps * (1 + slope.abs() * (lower.abs() + upper.abs()))


def _reach(step: Activation, lower: Tensor, upper: Tensor) -> Tensor:
    """The largest touching point whose tangent stays below the curve up to `upper`; below `lower` if none.

    In the convex part (z <= 0) every tangent is below the curve there; over the concave part it is below
    when it is at `upper`. Bisection returns the end that was checked, so the result is sound.
    """
    high = torch.minimum(upper, torch.zeros_like(upper)).double()
    u = upper.double()
    target = curve(step, u)
    safe = lower.double().clone()
    fits = _tangent(step, safe, u) <= target - MARGIN
    bad = high.clone()
    all_valid = (upper <= 0) | (_tangent(step, bad, u) <= target - MARGIN)
    for _ in range(40):
        middle = (safe + bad) / 2
        good = _tangent(step, middle, u) <= target - MARGIN
        safe, bad = torch.where(good, middle, safe), torch.where(good, bad, middle)
    touching = torch.where(all_valid, high, safe)
    none = ~fits & ~(upper <= 0)
    result = torch.where(none | (lower >= 0), lower.double() - 1.0, touching).to(lower.dtype)
    # Rounding to float32 may move the point up; the next smaller number is sound again.
    return torch.nextafter(result, torch.full_like(result, -torch.inf))


def _tangent(step: Activation, touch: Tensor, at: Tensor) -> Tensor:
    return curve(step, touch) + derivative(step, touch) * (at - touch)


class ConvexRelaxation(Cut):
    """Squares, exp, log, roots, 1/x, elu: a tangent on one side, at any point, and the chord on the other.

    theta (q, 2, n) has the touching points first, then unused values. Line data (q, 5, n) are the ends, the
    chord's slope and offset, and 1 where the curve is convex, -1 where it is concave.
    """

    def __init__(self, step: Activation, lower: Tensor, upper: Tensor) -> None:
        undefined = {"sqrt": lower < 0, "log": lower <= 0, "reciprocal": (lower <= 0) & (upper >= 0)}
        bad = undefined.get(step.curve)
        if bad is not None and bool(bad.any()):
            at = int(bad[0].nonzero()[0])
            raise ModelError(
                f"bounds: expected {step.curve} of values where it is defined, got values between "
                f"{float(lower[0, at]):g} and {float(upper[0, at]):g} as far as is known; try fewer inputs"
            )
        super().__init__(step, lower, upper)
        self.pace = ((upper - lower) / 4)[:, None]

    def line_data(self, lower: Tensor, upper: Tensor) -> Tensor:
        """Line data (q, 5, n) over the intervals lower, upper (q, n)."""
        low, high = lower.double(), upper.double()
        f_low, f_high = curve(self.step, low), curve(self.step, high)
        width = high - low
        narrow = width <= 1e-6 * (1e-6 + low.abs() + high.abs())
        chord = (f_high - f_low) / torch.where(narrow, torch.ones_like(width), width)
        middle = low / 2 + high / 2
        middle = middle.clamp(min=LEAST) if self.step.curve in ("sqrt", "log") else middle
        chord = torch.where(narrow, derivative(self.step, middle), chord).to(lower.dtype)
        side = torch.full_like(lower, -1.0 if self.step.curve in shapes.CONCAVE else 1.0)
        if self.step.curve == "reciprocal":
            side = torch.where(upper < 0, -side, side)
        # The curve minus a slope times z is largest at an end where it is convex, least where concave.
        at_low, at_high = f_low - chord.double() * low, f_high - chord.double() * high
        convex = side > 0
        rest = torch.where(convex, torch.maximum(at_low, at_high), torch.minimum(at_low, at_high))
        size = torch.maximum(f_low.abs(), f_high.abs())
        rest = rest + side.double() * _convex_pad(size.to(lower.dtype), chord, lower, upper).double()
        return torch.stack([lower, upper, chord, rest.to(lower.dtype), side], 1)

    def start(self, queries: int) -> Tensor:
        """Tangents in the middle."""
        return self.keep((self.lower / 2 + self.upper / 2)[:, None].expand(queries, 2, -1).clone())

    def lines(self, theta: Tensor, split: Tensor | None = None) -> Lines:
        """The tangent at theta (q, 2, n), and the chord."""
        low, high, chord, rest, side = (self.full_data if split is None else split).unbind(1)
        touch = theta[:, 0]
        value, slope = curve(self.step, touch), derivative(self.step, touch)
        pad = _convex_pad(value, slope, low, high)
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
        side = self.channels(split)[4]
        used = torch.where(side > 0, rows.clamp(min=0), rows.clamp(max=0))
        turn = used * shapes.second(self.step, theta[:, 0]) * (z - theta[:, 0])
        return torch.stack([turn, torch.zeros_like(turn)], 1)

    def keep(self, theta: Tensor, split: Tensor | None = None) -> Tensor:
        """Theta projected to the interval and the domain of the curve."""
        low, high = self.channels(split)[:2]
        if self.step.curve in ("sqrt", "log"):
            low = low.clamp(min=LEAST)
        return torch.minimum(torch.maximum(theta, low[:, None]), torch.maximum(high, low)[:, None])


def _convex_pad(value: Tensor, slope: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    kind = torch.finfo(lower.dtype)
    size = lower.abs() + upper.abs()
    # A slope that is not a normal number any more has an absolute error.
    return 16 * kind.eps * (value.abs() + slope.abs() * size) + 4 * kind.tiny * size + shapes.TINY


class SineRelaxation(Cut):
    """sin: theta (q, 2, n) are the slopes of the lower and the upper line."""

    def start(self, queries: int) -> Tensor:
        """The chord's slope, which is flat where the interval is long."""
        low, high = self.lower.double(), self.upper.double()
        width = high - low
        narrow = width < 1e-6
        chord = (torch.sin(high) - torch.sin(low)) / torch.where(narrow, torch.ones_like(width), width)
        chord = torch.where(narrow, torch.cos(low), chord)
        flat = torch.where(width > 2 * pi, torch.zeros_like(chord), chord).to(self.lower.dtype)
        return self.keep(flat[:, None].expand(queries, 2, -1).clone())

    def lines(self, theta: Tensor, split: Tensor | None = None) -> Lines:
        """The lines of these slopes."""
        low, high = (self.full_data if split is None else split).unbind(1)
        below, above = theta.unbind(1)
        first, _ = least(below, low, high)
        # The upper line is the mirrored lower one, as sin(z) = -sin(-z).
        last, _ = least(above, -high, -low)
        eps = torch.finfo(low.dtype).eps
        size = low.abs() + high.abs()
        pads = [8 * eps * (1 + k.abs() * size) + 1e-12 * (1 + size) for k in (below, above)]
        dtype = self.lower.dtype
        return Lines(below, first.to(dtype) - pads[0], above, -last.to(dtype) + pads[1])

    def slope(self, theta: Tensor, rows: Tensor, z: Tensor, split: Tensor | None = None) -> Tensor:
        """How the bound changes with theta: the line turns about its touching point."""
        low, high = (self.full_data if split is None else split).unbind(1)
        below = least(theta[:, 0], low, high)[1].to(z.dtype)
        above = -least(theta[:, 1], -high, -low)[1].to(z.dtype)
        return torch.stack([rows.clamp(min=0) * (z - below), rows.clamp(max=0) * (z - above)], 1)

    def keep(self, theta: Tensor, split: Tensor | None = None) -> Tensor:
        """Theta projected to the slopes of a sine."""
        return theta.clamp(-1.0, 1.0)


Bend = ReluRelaxation | Cut | SignRelaxation | ProductRelaxation


def bend(step: Activation, lower: Tensor, upper: Tensor) -> Bend:
    """The relaxation of one activation step between pre-activation bounds (1, n)."""
    if step.curve == "leaky" and not step.slope <= 1.0:
        raise ModelError(f"bounds: expected a leaky relu with a slope of at most 1, got {step.slope}")
    if step.curve in ("relu", "leaky"):
        return ReluRelaxation(step, lower, upper)
    if step.curve == "sign":
        return SignRelaxation(step, lower, upper)
    if step.curve == "elu" and not 0.0 <= step.slope <= 1.0:
        raise ModelError(f"bounds: expected an elu with a factor between 0 and 1, got {step.slope}")
    if step.curve == "sin":
        return SineRelaxation(step, lower, upper)
    kind = SigmoidRelaxation if step.curve in shapes.SHAPED else ConvexRelaxation
    return kind(step, lower, upper)


def doubled(relaxation: Bend) -> Bend:
    """The same relaxation in float64: the bounds carry over, the lines are recomputed."""
    if isinstance(relaxation, ProductRelaxation):
        left, right = ((low.double(), high.double()) for low, high in (relaxation.left, relaxation.right))
        return ProductRelaxation(relaxation.step, left, right)
    return bend(relaxation.step, relaxation.lower.double(), relaxation.upper.double())
