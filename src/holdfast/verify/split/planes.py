"""Rows of the outputs over many boxes at once, bounded from below by a linear function of the inputs.

A CROWN backward pass with each box's own lines: a positive coefficient takes the line below a curve, a
negative one the line above. Rows keep their signs, whereas the forms of the forward pass add magnitudes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from holdfast.graph.ir import Activation, Product, sources_of
from holdfast.verify.problem import Case, stacked_rows
from holdfast.verify.rounding import UNIT
from holdfast.verify.split.forms import AffineForm, Band, FormBounds, ForwardPass

Tensor = Any
TURNS = 24  # of the weights of a conjunction


@dataclass(frozen=True, eq=False)
class Plane:
    """Row >= base + slopes t for t in [-1, 1], (q,), (q, d); `loss` (b, d) of all lines, by input."""

    base: Tensor
    slopes: Tensor
    loss: Tensor


def along(inputs: AffineForm, output: AffineForm, box: Tensor, rows: Tensor, over: Tensor) -> Plane:
    """Rows (q, k) of the forms of the outputs plus rows (q, d) of the inputs, each of its own box (q,)."""
    unit = 8 * (rows.shape[1] + over.shape[1] + 8) * UNIT
    base = (rows * output.middle[box]).sum(1) - (rows.abs() * output.off[box]).sum(1) * (1 + unit)
    base = base - unit * (rows.abs() * output.size[box]).sum(1)
    return _tied(inputs, box, over, base, torch.einsum("qk,qdk->qd", rows, output.slopes[box]))


def between(inputs: AffineForm, output: AffineForm, box: Tensor, rows: Tensor, over: Tensor) -> Plane:
    """The same when every output may be anywhere between its own bounds."""
    unit = 8 * (rows.shape[1] + over.shape[1] + 8) * UNIT
    positive = rows.clamp(min=0)
    base = (positive * output.lower[box] + (rows - positive) * output.upper[box]).sum(1)
    size = torch.maximum(output.lower.abs(), output.upper.abs())
    base = base - unit * (rows.abs() * size[box]).sum(1)
    return _tied(inputs, box, over, base, torch.zeros_like(over))


def _tied(inputs: AffineForm, box: Tensor, over: Tensor, base: Tensor, slopes: Tensor) -> Plane:
    """A plane with the rows over the inputs themselves."""
    if bool(over.any()):
        base = base + (over * inputs.middle[box]).sum(1)
        base = base - 8 * (over.shape[1] + 8) * UNIT * (over.abs() * inputs.size[box]).sum(1)
        slopes = slopes + over * inputs.slopes.diagonal(dim1=1, dim2=2)[box]
    return Plane(base, slopes, torch.zeros_like(inputs.middle))


def backward(
    machine: FormBounds, inputs: AffineForm, passed: ForwardPass, box: Tensor, rows: Tensor, over: Tensor
) -> Plane:
    """Rows (q, k) of the outputs plus rows `over` (q, d) of the inputs, each of its own box (q,)."""
    walk = _BackwardPass(machine, passed, box, inputs)
    top = len(machine.net.steps) - 1
    pending = {top: rows}
    for at in range(top, 0, -1):
        if at in pending:
            for source, part in walk.step(at, pending.pop(at)):
                pending[source] = pending[source] + part if source in pending else part
    ends = pending[0] + over if 0 in pending else over
    middle, radius = inputs.middle[box], inputs.slopes.diagonal(dim1=1, dim2=2)[box]
    base = walk.const + (ends * middle).sum(1)
    unit = machine.unit(0)
    slack = walk.slack + unit * (ends.abs() * (middle.abs() + radius)).sum(1)
    return Plane(base - 1.01 * slack, ends * radius, walk.loss)


class _BackwardPass:
    """A running backward pass: constants, bounds on rounding errors, and losses."""

    def __init__(self, machine: FormBounds, passed: ForwardPass, box: Tensor, inputs: AffineForm) -> None:
        self.machine, self.passed, self.box = machine, passed, box
        self.const = inputs.middle.new_zeros(len(box))
        self.slack = torch.zeros_like(self.const)
        self.loss = torch.zeros_like(inputs.middle)

    def step(self, at: int, rows: Tensor) -> list[tuple[int, Tensor]]:
        """The coefficients of a step's sources for those of the step, rows (q, n)."""
        step = self.machine.net.steps[at]
        if isinstance(step, Activation):
            return [(step.source, self.curve(at, rows, self.passed.bands[at]))]
        if isinstance(step, Product):
            return self.product(at, step, rows)
        pieces, unit = self.machine.pieces, self.machine.unit(at) + self.machine.step_error(at)
        self.slack += unit * (rows.abs() * self.passed.mass[at][self.box]).sum(1)
        bias = pieces.bias(at)
        if bias is not None:
            self.const += rows @ bias
        return list(zip(sources_of(step), pieces.backward(at, rows), strict=True))

    def curve(self, at: int, rows: Tensor, band: Band) -> Tensor:
        box, slope = self.box, band.slope[self.box]
        positive = rows.clamp(min=0)
        negative = rows - positive
        low, high = band.low[box], band.high[box]
        under, above = slope, slope
        if band.below is not None:
            under, low = band.below[box], torch.zeros_like(low)
        if band.above is not None:
            above, high = band.above[box], torch.zeros_like(high)
        self.const += (positive * low + negative * high).sum(1)
        source = self.passed.sources[at]
        size = torch.maximum(under.abs(), above.abs()) * source.size[box] + low.abs() + high.abs()
        self.slack += self.machine.unit(at) * (rows.abs() * size).sum(1)
        self.slack += (rows.abs() * self.passed.mass[at][box]).sum(1)
        self.attribute(rows.abs() * band.gap[box], source)
        return positive * under + negative * above

    def product(self, at: int, step: Product, rows: Tensor) -> list[tuple[int, Tensor]]:
        form = self.passed.times[at]
        own, other, rest = (value[self.box] for value in (form.own, form.other, form.rest))
        self.const -= (rows * own * other + rows.abs() * rest).sum(1)
        size = self.passed.mass[at][self.box] + (own * other).abs() + rest
        unit = 4 * self.machine.unit(at) + self.machine.step_error(at)
        self.slack += unit * (rows.abs() * size).sum(1)
        self.attribute(rows.abs() * rest, self.passed.sources[at])
        return [(step.left, rows * other), (step.right, rows * own)]

    def attribute(self, loss: Tensor, source: AffineForm) -> None:
        """Attribute the loss (q, n) of a curve to the inputs by their shares in the form it reads."""
        total = loss.new_zeros(len(source.middle), loss.shape[1]).index_add_(0, self.box, loss)
        share = total / source.spread.clamp(min=1e-30)
        self.loss += torch.einsum("bn,bdn->bd", share, source.slopes.abs())


@dataclass(frozen=True, eq=False)
class CaseRows:
    """All cases: rows (c, m, k), of inputs (c, m, d), bounds (c, m); short cases repeat their first row."""

    rows: Tensor
    over: Tensor
    bound: Tensor

    @classmethod
    def of(cls, cases: Sequence[Case]) -> CaseRows:
        """The rows of all cases, stacked; a case without rows is met by any output."""
        rows, over, bound = stacked_rows(cases)
        over = np.zeros((*bound.shape, len(cases[0].lower))) if over is None else over
        return cls(*(torch.as_tensor(value) for value in (rows, over, bound)))

    def excess(self, case: Tensor, points: Tensor, outputs: Tensor) -> Tensor:
        """Largest excess of each case's rows (p,) over their bounds at a point (p, d); at most 0 if met."""
        sums = (self.rows[case] * outputs[:, None]).sum(2) + (self.over[case] * points[:, None]).sum(2)
        return (sums - self.bound[case]).amax(1)

    def blend(self, case: Tensor, weight: Tensor, size: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Rows (p, k), input rows (p, d) and bounds (p,) mixed by weights (p, m), and its rounding error.

        `size` (p, k + d) are the magnitudes of outputs and inputs. Weights below zero do not occur.
        """
        every = self.bound[case]
        both = torch.cat([self.rows[case], self.over[case]], 2)
        rows, over = ((weight[:, :, None] * part[case]).sum(1) for part in (self.rows, self.over))
        mass = (weight[:, :, None] * both.abs() * size[:, None]).sum((1, 2)) + (weight * every.abs()).sum(1)
        return rows, over, (weight * every).sum(1), 4 * (weight.shape[1] + both.shape[2] + 4) * UNIT * mass


@dataclass(frozen=True, eq=False)
class CaseBounds:
    """The best bounds of p cases (p,), the weights of the planes that gave them (p, m), and slopes (p, d)."""

    lower: Tensor
    weight: Tensor
    slopes: Tensor

    def pick(self, which: Tensor) -> CaseBounds:
        """A subset of the cases."""
        return CaseBounds(self.lower[which], self.weight[which], self.slopes[which])


def mixed(base: Tensor, slopes: Tensor) -> CaseBounds:
    """The best mix of planes: bases (p, m) minus the bounds, slopes (p, m, d).

    The least value of a mix is concave in the weights: they climb by its gradient, the planes' values at the
    corner where the mix is least. Any weights are valid.
    """
    reach = slopes.abs().sum(2)
    alone = base - reach - 8 * slopes.shape[2] * UNIT * (base.abs() + reach)
    best, at = alone.max(1)
    weight = torch.nn.functional.one_hot(at, base.shape[1]).to(base.dtype)
    if base.shape[1] == 1:
        return CaseBounds(best, weight, slopes[:, 0])
    trial = torch.full_like(base, 1.0 / base.shape[1])
    for turn in range(TURNS):
        blend = (trial[:, :, None] * slopes).sum(1)
        size = (trial[:, :, None] * slopes.abs()).sum((1, 2)) + (trial * base.abs()).sum(1)
        lower = (trial * base).sum(1) - blend.abs().sum(1) - 8 * sum(slopes.shape[1:]) * UNIT * size
        better = lower > best
        best, weight = torch.where(better, lower, best), torch.where(better[:, None], trial, weight)
        value = base - (slopes * blend.sign()[:, None]).sum(2)
        value = value / value.abs().amax(1, keepdim=True).clamp(min=1e-30)
        trial = torch.softmax(trial.clamp(min=1e-9).log() + value * 3.0 / (1 + 0.3 * turn), 1)
    return CaseBounds(best, weight, (weight[:, :, None] * slopes).sum(1))


def stacked(planes: Sequence[Plane], bound: Tensor) -> tuple[Tensor, Tensor]:
    """Bases (p, m) minus bounds (p, r) and slopes (p, m, d) of several kinds of planes of the same rows."""
    pairs, rows = bound.shape
    base = torch.cat([plane.base.reshape(pairs, rows) - bound for plane in planes], 1)
    pad = 4 * UNIT * (torch.cat([bound.abs()] * len(planes), 1) + base.abs())
    return base - pad, torch.cat([plane.slopes.reshape(pairs, rows, -1) for plane in planes], 1)
