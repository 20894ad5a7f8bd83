"""Lines around curves on many intervals at once.

Every curve gets one slope with two offsets, slope z + low <= f(z) <= slope z + high, for the forms that go
forward; a relu gets a second, steeper or flatter lower line for the passes that go back.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import pi
from typing import Any

import torch

from holdfast.core.errors import ModelError
from holdfast.graph.ir import Activation
from holdfast.verify.linear.shapes import CONCAVE, CONVEX, SHAPED, curve, derivative

Tensor = Any
EPS = 2.0**-52
WIDE = 1e-9  # a narrower interval has no chord worth its rounding


@dataclass(frozen=True, eq=False)
class Band:
    """slope z + low <= f(z) <= slope z + high; and below z <= f(z), or f(z) <= above z; all (b, n)."""

    slope: Tensor
    low: Tensor
    high: Tensor
    below: Tensor | None = None
    above: Tensor | None = None

    @property
    def gap(self) -> Tensor:
        """How far apart the parallel lines are."""
        return self.high - self.low


def band(step: Activation, lower: Tensor, upper: Tensor) -> Band:
    """The lines of an activation between bounds (b, n), with room for rounding."""
    if step.curve in ("relu", "leaky"):
        return _hinge(step.slope if step.curve == "leaky" else 0.0, lower, upper)
    if step.curve in SHAPED:
        return _bow(step, lower, upper)
    if step.curve == "sign":
        low, high = torch.sign(lower), torch.sign(upper)
        return Band(torch.zeros_like(low), low, high)
    if step.curve == "sin":
        return _wave(lower, upper)
    if step.curve == "elu" and not 0.0 <= step.slope <= 1.0:
        raise ModelError(f"bounds: expected an elu with a slope from 0 to 1, got {step.slope}")
    if step.curve in CONVEX or step.curve in CONCAVE:
        return _arc(step, lower, upper)
    raise ModelError(f"bounds: expected a curve that is known, got {step.curve!r}")


def _hinge(slope: float, lower: Tensor, upper: Tensor) -> Band:
    """The lines of a relu that is z above zero and slope z below."""
    below = torch.where(lower >= 0, torch.ones_like(lower), torch.full_like(lower, slope))
    open_ = (lower < 0) & (upper > 0)
    width = torch.where(open_, upper - lower, torch.ones_like(lower))
    chord = torch.where(open_, (upper - slope * lower) / width, below)
    ends = torch.maximum if slope <= 1.0 else torch.minimum
    rest = ends(upper - chord * upper, slope * lower - chord * lower)
    pad = torch.where(open_, 8 * EPS * (1 + abs(slope)) * (upper.abs() + lower.abs()), torch.zeros_like(rest))
    zero = torch.zeros_like(rest)
    rest = torch.where(open_, rest, zero)
    # Through 0 the line with the smaller triangle: z itself where most of the interval is above.
    flat = torch.where(upper > -lower, torch.ones_like(chord), torch.full_like(chord, slope))
    flat = torch.where(open_, flat, below)
    if slope <= 1.0:
        return Band(chord, torch.minimum(rest, zero) - pad, rest.clamp(min=0) + pad, below=flat)
    return Band(chord, rest.clamp(max=0) - pad, torch.maximum(rest, zero) + pad, above=flat)


def _bow(step: Activation, lower: Tensor, upper: Tensor) -> Band:
    """The lines of a sigmoid, tanh or erf, along the chord.

    f(z) - slope z is extreme at an end or where f'(z) = slope, which is at two mirrored places. Any slope is
    right; a place that is a little off is wrong by its square, which the pad covers.
    """
    middle, width = (lower + upper) / 2, upper - lower
    narrow = width < WIDE * (1 + middle.abs())
    chord = (curve(step, upper) - curve(step, lower)) / torch.where(narrow, torch.ones_like(width), width)
    slope = torch.where(narrow, derivative(step, middle), chord)
    slope = torch.minimum(slope.clamp(min=0.0), derivative(step, torch.zeros_like(slope)))
    place = _place(step, slope)
    rests = []
    for at in (lower, upper, place, -place):
        inside = torch.minimum(torch.maximum(at, lower), upper)
        rests.append(curve(step, inside) - slope * inside)
    rest = torch.stack(rests)
    pad = 32 * EPS * (1 + slope * (lower.abs() + upper.abs())) + 1e-12
    return Band(slope, rest.amin(0) - pad, rest.amax(0) + pad)


def _place(step: Activation, slope: Tensor) -> Tensor:
    """Where the curve has this slope, at or above zero."""
    if step.curve == "erf":
        return (-torch.log((slope * pi**0.5 / 2).clamp(1e-30, 1.0))).sqrt()
    factor = 2.0 if step.curve == "tanh" else 1.0  # tanh z = 2 s(2 z) - 1
    slope = slope / factor**2
    root = (1 - 4 * slope).clamp(min=0).sqrt()
    share = (2 * slope / (1 + root)).clamp(min=1e-30)  # s with s (1 - s) = slope, the smaller one
    return (torch.log1p(-share) - torch.log(share)) / factor


def _arc(step: Activation, lower: Tensor, upper: Tensor) -> Band:
    """The lines of a curve that bends one way: its tangent in the middle, and that moved to the farther end.

    Where the curve is not defined all over the interval the lines are not finite, and nothing is proven.
    """
    middle = (lower + upper) / 2
    slope = derivative(step, middle)
    touch = curve(step, middle) - slope * middle
    ends = torch.stack([curve(step, z) - slope * z for z in (lower, upper)])
    size = torch.stack([curve(step, z).abs() for z in (lower, middle, upper)]).amax(0)
    width = lower.abs() + upper.abs()
    pad = 32 * EPS * (size + slope.abs() * width) + 1e-300 * (1 + width)
    concave = torch.full_like(lower, step.curve in CONCAVE, dtype=torch.bool)
    if step.curve == "reciprocal":
        concave = upper < 0
        pad = torch.where((lower > 0) | (upper < 0), pad, torch.full_like(pad, torch.inf))
    low = torch.where(concave, ends.amin(0), touch)
    return Band(slope, low - pad, torch.where(concave, touch, ends.amax(0)) + pad)


def _wave(lower: Tensor, upper: Tensor) -> Band:
    """The lines of a sine: its tangent in the middle, which it leaves by at most half the radius squared."""
    middle = (lower + upper) / 2
    radius = torch.maximum(upper - middle, middle - lower) * (1 + 4 * EPS)
    near = radius < 1.0
    slope = torch.where(near, torch.cos(middle), torch.zeros_like(middle))
    touch = torch.where(near, torch.sin(middle) - slope * middle, torch.zeros_like(middle))
    gap = torch.where(near, radius**2 / 2, torch.ones_like(radius))
    pad = 32 * EPS * (1 + lower.abs() + upper.abs())
    return Band(slope, touch - gap - pad, touch + gap + pad)
