"""Every step of a net over many boxes at once: a linear form of the inputs with an error bound.

Box by box, the inputs are centre + radius * t with t in [-1, 1]. Values are v = c + A t + e, |e| <= off.
A linear step maps c and A, and |W| maps off; a curve takes the line in the middle of its band, and half the
band's width goes to off; of a product only (x - xc)(y - yc) does. What sums round, at most gamma times the
magnitudes |W| (|c| + |A| 1 + off) + |b|, goes to off as well.

Every curve gets one slope with two offsets, slope z + low <= f(z) <= slope z + high, for the forms that go
forward; a relu gets a second, steeper or flatter lower line for the passes that go back.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from math import pi
from typing import Any, TypeAlias

import torch

from holdfast.core.errors import ModelError
from holdfast.graph import ir
from holdfast.graph.ir import Activation, Net, Product, Step, WeightedSum
from holdfast.verify.linear.pieces import LinearSteps
from holdfast.verify.linear.shapes import CONCAVE, CONVEX, SHAPED, curve, derivative, span
from holdfast.verify.rounding import MERGED, UNIT, curve_error, step_error

Tensor = Any
Bounds: TypeAlias = tuple[Tensor, Tensor]
EPS = 2.0**-52
WIDE = 1e-9  # a narrower interval has no chord worth its rounding
PARTIAL = ("reciprocal", "log", "sqrt")


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
        """Distance between the parallel lines."""
        return self.high - self.low


def band(step: Activation, lower: Tensor, upper: Tensor) -> Band:
    """The lines of an activation between bounds (b, n), with room for rounding."""
    if step.curve in ("relu", "leaky"):
        return _hinge(step.slope if step.curve == "leaky" else 0.0, lower, upper)
    if step.curve in SHAPED:
        return _sigmoid(step, lower, upper)
    if step.curve == "sign":
        low, high = torch.sign(lower), torch.sign(upper)
        return Band(torch.zeros_like(low), low, high)
    if step.curve == "sin":
        return _sine(lower, upper)
    if step.curve == "elu" and not 0.0 <= step.slope <= 1.0:
        raise ModelError(f"bounds: expected an elu with a slope from 0 to 1, got {step.slope}")
    if step.curve in CONVEX or step.curve in CONCAVE:
        return _convex(step, lower, upper)
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


def _sigmoid(step: Activation, lower: Tensor, upper: Tensor) -> Band:
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


def _convex(step: Activation, lower: Tensor, upper: Tensor) -> Band:
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


def _sine(lower: Tensor, upper: Tensor) -> Band:
    """The lines of a sine: its tangent in the middle, which it leaves by at most half the radius squared."""
    middle = (lower + upper) / 2
    radius = torch.maximum(upper - middle, middle - lower) * (1 + 4 * EPS)
    near = radius < 1.0
    slope = torch.where(near, torch.cos(middle), torch.zeros_like(middle))
    touch = torch.where(near, torch.sin(middle) - slope * middle, torch.zeros_like(middle))
    gap = torch.where(near, radius**2 / 2, torch.ones_like(radius))
    pad = 32 * EPS * (1 + lower.abs() + upper.abs())
    return Band(slope, touch - gap - pad, touch + gap + pad)


@dataclass(frozen=True, eq=False)
class AffineForm:
    """The form c (b, n), A (b, d, n), its spread |A| 1 and off (b, n), and bounds (b, n) of the values."""

    middle: Tensor
    slopes: Tensor
    spread: Tensor
    off: Tensor
    lower: Tensor
    upper: Tensor

    @cached_property
    def size(self) -> Tensor:
        """The largest magnitude of the form (b, n)."""
        return self.middle.abs() + self.spread + self.off


@dataclass(frozen=True, eq=False)
class ProductForm:
    """left * right = other * left + own * right - own * other ± rest, (b, n) each."""

    own: Tensor
    other: Tensor
    rest: Tensor


@dataclass(frozen=True, eq=False)
class ForwardPass:
    """Results of the forward pass that the backward pass needs, by step.

    `mass` (b, n) are the magnitudes of sums and products; of curves, the errors of evaluating them.
    """

    output: AffineForm
    bands: dict[int, Band]
    times: dict[int, ProductForm]
    sources: dict[int, AffineForm]  # the forms that curves read
    mass: dict[int, Tensor]


class FormBounds:
    """A net's linear steps in float64, and bounds on the rounding of their sums."""

    def __init__(self, net: Net, alive: Callable[[], None] = lambda: None) -> None:
        self.net = net
        # LinearSteps supports linear steps and curves; a product is a placeholder that is never evaluated.
        plain = (
            WeightedSum((s.left, s.right), (1.0, 1.0), s.shape) if isinstance(s, Product) else s
            for s in net.steps
        )
        self.pieces = LinearSteps(replace(net, steps=tuple(plain)), torch.float64, alive)
        # Curves with a limited domain need bounds inside it.
        self.partial = any(isinstance(s, Activation) and s.curve in PARTIAL for s in net.steps)

    def unit(self, at: int) -> float:
        """Bound on the relative rounding error of a step's sums, forward, backward and over all steps."""
        pieces = self.pieces
        terms = pieces.terms(at) + pieces.joins[at] + pieces.sizes[at] + pieces.sizes[0]
        return 2 * (terms + len(self.net.steps) + MERGED + 8) * UNIT

    def step_error(self, at: int) -> float:
        """Bound on the relative rounding error of a step's sums in a runtime."""
        return step_error(self.net, self.net.steps[at])


def start(lower: Tensor, upper: Tensor) -> AffineForm:
    """The inputs over boxes (b, d), rounded outward."""
    centre = (lower + upper) / 2
    radius = torch.maximum(upper - centre, centre - lower)
    radius = torch.nextafter(radius, torch.full_like(radius, torch.inf))
    slopes, none = torch.diag_embed(radius), torch.zeros_like(centre)
    return AffineForm(centre, slopes, radius, none, *_ends(centre, radius, UNIT))


def _ends(middle: Tensor, reach: Tensor, unit: float) -> Bounds:
    pad = 4 * unit * (middle.abs() + reach)
    return middle - reach - pad, middle + reach + pad


def _within(bounds: Bounds, others: Bounds) -> Bounds:
    return torch.maximum(bounds[0], others[0]), torch.minimum(bounds[1], others[1])


def forward(machine: FormBounds, inputs: AffineForm) -> ForwardPass:
    """The forms of all steps for the forms of the inputs."""
    bands: dict[int, Band] = {}
    times: dict[int, ProductForm] = {}
    sources: dict[int, AffineForm] = {}
    mass: dict[int, Tensor] = {0: inputs.size}

    def apply(at: int, step: Step, forms: list[AffineForm]) -> AffineForm:
        first = forms[0]
        if isinstance(step, Activation):
            sources[at], bands[at] = first, band(step, first.lower, first.upper)
            ends = span(step, first.lower, first.upper)
            mass[at] = curve_error(machine.net, step, torch.maximum(ends[0].abs(), ends[1].abs()))
            low, high = (curve_error(machine.net, step, end.abs()) for end in ends)
            return _activate((ends[0] - low, ends[1] + high), first, bands[at], mass[at])
        if isinstance(step, Product):
            form, times[at] = _multiplied(first, forms[1], machine.step_error(at))
            sources[at], mass[at] = first, first.size * forms[1].size
        else:
            form, mass[at] = _map_linear(machine, at, forms)
        return form

    return ForwardPass(ir.forward(machine.net, inputs, apply), bands, times, sources, mass)


def _map_linear(machine: FormBounds, at: int, sources: list[AffineForm]) -> tuple[AffineForm, Tensor]:
    pieces = machine.pieces
    boxes, inputs = sources[0].slopes.shape[:2]
    middle = pieces.forward(at, [form.middle for form in sources])
    flat = [form.slopes.reshape(boxes * inputs, -1) for form in sources]
    slopes = pieces.forward(at, flat, bias=False).reshape(boxes, inputs, -1)
    mass = pieces.mass(at, [form.size for form in sources])
    carried = pieces.mass(at, [form.off for form in sources], bias=False)
    unit = machine.unit(at)
    off = carried * (1 + unit) + (unit + machine.step_error(at)) * mass
    spread = _spread(slopes)
    bounds = _ends(middle, spread + off, unit)
    if machine.partial:
        bounds = _within(bounds, _independent_bounds(machine, at, sources, unit + machine.step_error(at)))
    return AffineForm(middle, slopes, spread, off, *bounds), mass


def _independent_bounds(machine: FormBounds, at: int, sources: list[AffineForm], unit: float) -> Bounds:
    """Interval bounds of a linear step: unlike the form, they keep a sum of exps positive."""
    middles = [(form.lower + form.upper) / 2 for form in sources]
    radii = [torch.maximum(f.upper - m, m - f.lower) for f, m in zip(sources, middles, strict=True)]
    middle = machine.pieces.forward(at, middles)
    reach = machine.pieces.mass(at, radii, bias=False)
    sizes = [m.abs() + r for m, r in zip(middles, radii, strict=True)]
    pad = 2 * unit * machine.pieces.mass(at, sizes)
    return middle - reach - pad, middle + reach + pad


def _spread(slopes: Tensor) -> Tensor:
    """The sum of magnitudes (b, n) of slopes (b, d, n), rounded up."""
    return torch.linalg.vector_norm(slopes, ord=1, dim=1) * (1 + 4 * slopes.shape[1] * UNIT)


def _activate(ends: Bounds, source: AffineForm, line: Band, error: Tensor) -> AffineForm:
    """A curve's form: the middle of the band, up to the curve's own `error` (b, n), and within the `ends`."""
    unit, steepness = 16 * UNIT, line.slope.abs()
    middle = line.slope * source.middle + (line.low + line.high) / 2
    slopes = source.slopes * line.slope[:, None]
    room = steepness * source.size + line.low.abs() + line.high.abs()
    off = steepness * source.off * (1 + unit) + line.gap / 2 * (1 + unit) + unit * room + error
    spread = steepness * source.spread * (1 + unit)
    return AffineForm(middle, slopes, spread, off, *_within(ends, _ends(middle, spread + off, unit)))


def _multiplied(left: AffineForm, right: AffineForm, error: float) -> tuple[AffineForm, ProductForm]:
    unit = 16 * UNIT
    own, other = (left.lower + left.upper) / 2, (right.lower + right.upper) / 2
    half = [torch.maximum(f.upper - c, c - f.lower) * (1 + unit) for f, c in ((left, own), (right, other))]
    rest = half[0] * half[1] * (1 + unit)
    middle = other * left.middle + own * right.middle - own * other
    slopes = other[:, None] * left.slopes + own[:, None] * right.slopes
    room = other.abs() * left.size + own.abs() * right.size + (own * other).abs()
    off = (other.abs() * left.off + own.abs() * right.off) * (1 + unit) + rest + unit * room
    off = off + error * left.size * right.size
    spread = _spread(slopes)
    corners = torch.stack([a * b for a in (left.lower, left.upper) for b in (right.lower, right.upper)])
    least, most = corners.amin(0), corners.amax(0)
    ends = least - (unit + error) * least.abs(), most + (unit + error) * most.abs()
    bounds = _within(ends, _ends(middle, spread + off, unit))
    return AffineForm(middle, slopes, spread, off, *bounds), ProductForm(own, other, rest)
