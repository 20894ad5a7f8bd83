"""One backward pass: a linear function of a step bounded from below by a linear function of the inputs.

For rows A (q, n) of step `top`:  A·v >= A_in·x + const  for every x of the box. At each activation the part
of A that is positive takes the lower line, the negative part the upper one (CROWN). Assumed signs of
pre-activations enter with multipliers beta >= 0 (beta-CROWN): z >= 0 adds -beta·z <= 0.

The forward pass propagates the input where the bound is attained through the same lines. Its values at the
activations are the derivatives of the bound by alpha and beta, so no automatic differentiation is needed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from holdfast.graph import ir
from holdfast.graph.ir import Activation, Product, Step, sources_of
from holdfast.verify.linear.curves import Bend
from holdfast.verify.linear.pieces import LinearSteps
from holdfast.verify.linear.shapes import Lines, Planes, curve
from holdfast.verify.rounding import MERGED, UNIT, curve_error, gamma, step_error

Tensor = Any


@dataclass(frozen=True, eq=False)
class Region:
    """A net in one precision over a box, given as centre and radius (1, n), rounded outward.

    Holds the bounds (1, n) of each step and the relaxations of activations and products.
    """

    pieces: LinearSteps
    centre: Tensor
    radius: Tensor
    lower: dict[int, Tensor] = field(default_factory=dict)
    upper: dict[int, Tensor] = field(default_factory=dict)
    bends: dict[int, Bend] = field(default_factory=dict)

    def largest(self, at: int) -> Tensor:
        """The largest magnitude (1, n) of a step."""
        return torch.maximum(self.lower[at].abs(), self.upper[at].abs())


@dataclass(frozen=True, eq=False)
class BackwardPass:
    """A finished backward pass: lower bound (q,), input coefficients (q, n), rows (q, m) at activations."""

    lower: Tensor
    rows_in: Tensor
    rows: Mapping[int, Tensor]
    lines: Mapping[int, Any]  # Lines of curves, Planes of products


def backward(
    region: Region,
    top: int,
    rows: Tensor,
    lines: Mapping[int, Any],
    extra: Mapping[int, Tensor] | None = None,
    rows_in: Tensor | None = None,
    careful: bool = False,
    fixed: Tensor | None = None,
) -> BackwardPass:
    """The lower bound of rows (q, n) · step `top`; `extra` is added to pre-activation rows (the betas).

    `fixed` (q, 2) float64 is the contribution of the betas to the constant, and the sum of its magnitudes.
    `rows_in` (q, inputs) are coefficients of the inputs themselves (rows of a specification over x).
    A `careful` pass subtracts a bound on the rounding error (see `_Slack`); only such a bound is a proof.
    """
    pieces = region.pieces
    pending: dict[int, Tensor] = {top: rows}
    rows_at: dict[int, Tensor] = {}
    slack = _Slack(region, len(rows), fixed) if careful else None
    const = rows.new_zeros(len(rows), dtype=torch.float64 if careful else None)
    const = const if fixed is None else const + fixed[:, 0].to(const.dtype)
    for at in range(top, 0, -1):
        if at not in pending:
            continue
        now, step = pending.pop(at), pieces.net.steps[at]
        if isinstance(step, Activation):
            more = (extra or {}).get(at)
            if slack is not None:
                slack.activation(at, step, now, lines[at], more)
            const, rows_at[at], now = _pass_activation(region.bends[at], lines[at], now, more, const)
            _add(pending, step.source, now)
            continue
        if isinstance(step, Product):
            const, rows_at[at] = _pass_product(step, lines[at], now, const, pending), now
            if slack is not None:
                slack.product(at, step, now, lines[at])
            continue
        if slack is not None:
            slack.linear(at, now)
        bias = pieces.bias(at)
        if bias is not None:
            const = const + now.to(const.dtype) @ bias.to(const.dtype)
        for source, part in zip(sources_of(step), pieces.backward(at, now), strict=True):
            _add(pending, source, part)
    at_input = pending[0] if 0 in pending else rows.new_zeros(len(rows), pieces.sizes[0])
    at_input = at_input if rows_in is None else at_input + rows_in
    exact = at_input.to(const.dtype)
    lower = const + exact @ region.centre[0].to(const.dtype) - exact.abs() @ region.radius[0].to(const.dtype)
    return BackwardPass(lower if slack is None else lower - slack.total(at_input), at_input, rows_at, lines)


def _pass_activation(
    bend: Bend, lines: Any, rows: Tensor, more: Tensor | None, const: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Pass back through an activation: the constant, the rows (q, m) at it and the rows (q, n) before it."""
    active = rows[:, bend.index]
    positive = active.clamp(min=0)
    negative = active - positive
    if lines.lo is not None:
        const = const + (positive.to(const.dtype) * lines.lo).sum(1)
    if lines.uo is not None:
        const = const + (negative.to(const.dtype) * lines.uo).sum(1)
    before = rows * bend.base
    before[:, bend.index] = positive.mul_(lines.ls).add_(negative.mul_(lines.us))
    if more is not None:
        before[:, bend.index] += more
    return const, active, before


def _pass_product(
    step: Product, planes: Planes, rows: Tensor, const: Tensor, pending: dict[int, Tensor]
) -> Tensor:
    """Pass back through a product: add the rows of both factors to `pending`, return the constant."""
    positive = rows.clamp(min=0)
    negative = rows - positive
    _add(pending, step.left, positive * planes.la + negative * planes.ua)
    _add(pending, step.right, positive * planes.lb + negative * planes.ub)
    const = const + (positive.to(const.dtype) * planes.lo).sum(1)
    return const + (negative.to(const.dtype) * planes.uo).sum(1)


class _Slack:
    """Bound on the amount by which rounding can have raised the bound of one pass.

    The computed rows of a source differ from the exact A·W by E with |E| <= gamma·|A||W|, gamma = n·u/(1-n·u)
    (Higham). Whatever E is, it multiplies true values v of that source, so the bound moves by at most
    gamma·|A|·(|W| |v|max + |b|): one product per step. Constants are summed in float64 and counted likewise.
    n counts the products of a sum, the weight's own rounding, and the sums where several steps read one.
    """

    def __init__(self, region: Region, queries: int, fixed: Tensor | None) -> None:
        self.pieces, self.region, self.steps = region.pieces, region, len(region.pieces.net.steps)
        self.sum = torch.zeros(queries, dtype=torch.float64)
        if fixed is not None:  # a sum with one term a neuron or two
            self.sum += gamma(2 * sum(self.pieces.sizes) + self.steps, UNIT) * fixed[:, 1]

    def linear(self, at: int, rows: Tensor) -> None:
        pieces = self.pieces
        mass = pieces.mass(at, [self.region.largest(s) for s in sources_of(pieces.net.steps[at])])
        counted = gamma(pieces.terms(at) + pieces.joins[at] + 4, pieces.unit) + self._constant(at)
        counted += step_error(pieces.net, pieces.net.steps[at])
        self.sum += counted * (rows.abs() @ mass[0]).double()

    def _constant(self, at: int) -> float:
        """Relative error of a step's constants: their sum, the sum over all steps, and merged weights."""
        return gamma(self.pieces.sizes[at] + self.steps + MERGED, UNIT)

    def activation(self, at: int, step: Activation, rows: Tensor, lines: Lines, more: Tensor | None) -> None:
        z, bend = self.region.largest(step.source)[0], self.region.bends[at]
        part = rows[:, bend.index].abs()
        size = part * torch.maximum(lines.ls.abs(), lines.us.abs())
        moved = (size if more is None else size + more.abs()) @ z[bend.index]
        moved = (moved + (rows * bend.base).abs() @ z).double()
        fixed = torch.zeros_like(moved)
        for offset in (lines.lo, lines.uo):
            if offset is not None:
                fixed += (part * offset.abs()).sum(1).double()
        # Product, beta, and up to three for the slope of leaky relus and the chord's offset.
        counted = gamma(5 + self.pieces.joins[at], self.pieces.unit)
        self.sum += counted * moved + self._constant(at) * fixed
        if self.pieces.net.roundoff:
            error = curve_error(self.pieces.net, step, self.region.largest(at)[0])
            self.sum += (rows.abs() @ error).double()

    def product(self, at: int, step: Product, rows: Tensor, planes: Any) -> None:
        a, b = (self.region.largest(s) for s in (step.left, step.right))
        size = rows.abs()
        ends = ((planes.la, planes.ua), (planes.lb, planes.ub), (planes.lo, planes.uo))
        of_a, of_b, rest = (torch.maximum(low.abs(), high.abs()) for low, high in ends)
        counted = gamma(5 + self.pieces.joins[at], self.pieces.unit)
        self.sum += counted * (size * (of_a * a + of_b * b)).sum(1).double()
        self.sum += step_error(self.pieces.net, step) * (size * a * b).sum(1).double()
        self.sum += self._constant(at) * (size * rest).sum(1).double()

    def total(self, rows: Tensor) -> Tensor:
        """The total rounding error (q,), including the sum over the inputs."""
        reach = self.region.centre.abs() + self.region.radius
        last = (rows.abs() * reach).sum(1).double()
        counted = gamma(4, self.pieces.unit) + 3 * self._constant(0)
        # A small factor covers the rounding of this sum itself, which has only positive terms.
        return (self.sum + counted * last) * (1.01 + 4 * max(self.pieces.sizes) * self.pieces.unit)


def _add(pending: dict[int, Tensor], at: int, part: Tensor) -> None:
    pending[at] = pending[at] + part if at in pending else part


def attained(region: Region, traced: BackwardPass) -> Tensor:
    """The inputs (q, n) at which the linear lower bound is attained."""
    return torch.addcmul(region.centre, traced.rows_in.sign(), region.radius, value=-1)


@dataclass(frozen=True, eq=False)
class RelaxedValues:
    """Values of the relaxed net: (q, m) around each activation, (q, n) at the top."""

    before: Mapping[int, Tensor]
    after: Mapping[int, Tensor]
    top: Tensor | None


def forward(region: Region, top: int, traced: BackwardPass, point: Tensor) -> RelaxedValues:
    """Values of the relaxed net at points (q, n), with the lines of a backward pass."""
    pieces = region.pieces
    values, before, after = {0: point}, dict[int, Tensor](), dict[int, Tensor]()
    for at in range(1, top + 1):
        step = pieces.net.steps[at]
        if any(source not in values for source in sources_of(step)):
            continue
        if isinstance(step, Activation | Product) and at not in traced.rows:
            continue
        inputs = [values[source] for source in sources_of(step)]
        if isinstance(step, Activation):
            bend = region.bends[at]
            before[at] = inputs[0][:, bend.index]
            values[at] = inputs[0] * bend.base
            values[at][:, bend.index] = after[at] = traced.lines[at].at(traced.rows[at], before[at])
        elif isinstance(step, Product):
            before[at] = torch.stack(inputs, 1)
            values[at] = after[at] = traced.lines[at].at(traced.rows[at], *inputs)
        else:
            values[at] = pieces.forward(at, inputs)
        for source in sources_of(step):
            if pieces.readers[source] <= at:
                values.pop(source, None)
    return RelaxedValues(before, after, values.get(top))


def evaluate(pieces: LinearSteps, points: Tensor) -> Tensor:
    """The net's outputs (q, k) at points (q, n)."""

    def apply(at: int, step: Step, inputs: list[Tensor]) -> Tensor:
        if isinstance(step, Product):
            return inputs[0] * inputs[1]
        return curve(step, inputs[0]) if isinstance(step, Activation) else pieces.forward(at, inputs)

    return ir.forward(pieces.net, points, apply)
