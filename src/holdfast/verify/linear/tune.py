"""Tuning of lower bounds: slopes, touching points, split multipliers and row weights, by Adam."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias

import torch

from holdfast.verify.linear.curves import ConvexRelaxation
from holdfast.verify.linear.passes import BackwardPass, Region, attained, backward, forward
from holdfast.verify.rounding import UNIT

Tensor = Any
Thetas = Mapping[int, Tensor]  # by activation step


@dataclass(frozen=True, eq=False)
class QueryRows:
    """The r rows of each query's conjunction: (q, r, k), their offsets (q, r), and inputs (q, r, n)."""

    rows: Tensor
    offset: Tensor
    rows_in: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Queries:
    """A batch of q lower bounds to compute: rows (q, n) of step `top`, minus `offset` (q,).

    `split` and `beta` (by activation, (q, m) over its unstable neurons) are the assumed signs and their
    multipliers. For a cut curve, `split` (q, 7, m) is the result of `SigmoidRelaxation.assumed`, and `beta`
    (q, 2, m) has the multipliers of z >= its first and z <= its second channel. `rows_in` (q, inputs) are
    coefficients of the inputs themselves. For a conjunction of r rows `parts` holds all of them, and `mix`
    (q, r), on the simplex, weights them: a positive bound of any mix shows that they cannot all be at most
    zero. `spec` has the rows in float64, as in the specification: careful bounds refer to those.
    """

    top: int
    rows: Tensor
    theta: Thetas
    offset: Tensor | None = None
    rows_in: Tensor | None = None
    split: Thetas | None = None
    beta: Thetas | None = None
    parts: QueryRows | None = None
    mix: Tensor | None = None
    spec: QueryRows | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def pick(self, index: Tensor) -> Queries:
        """Some of the queries."""
        picked: Queries = _pick_rows(self, index)
        return picked

    def mixed(self, mix: Tensor) -> Queries:
        """The queries with their rows recomputed from the parts."""
        parts = self.parts
        if parts is None:
            return self
        rows, offset = (mix[:, :, None] * parts.rows).sum(1), (mix * parts.offset).sum(1)
        rows_in = None if parts.rows_in is None else (mix[:, :, None] * parts.rows_in).sum(1)
        return replace(self, mix=mix, rows=rows, offset=offset, rows_in=rows_in)


def _pick_rows(value: Any, index: Tensor) -> Any:
    """Some of the queries' values: of a tensor, of tensors by step, or of all fields."""
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, QueryRows | Queries):
        return replace(value, **{f.name: _pick_rows(getattr(value, f.name), index) for f in fields(value)})
    return {at: v[index] for at, v in value.items()} if isinstance(value, Mapping) else value[index]


def lines_of(region: Region, queries: Queries) -> dict[int, Any]:
    """The lines of every activation below the top."""
    split = queries.split or {}
    return {at: region.bends[at].lines(theta, split.get(at)) for at, theta in queries.theta.items()}


def bound(region: Region, queries: Queries, careful: bool = False) -> BackwardPass:
    """One backward pass for these queries, with the offset subtracted."""
    lines, extra, fixed = lines_of(region, queries), _extra(queries), _fixed(queries)
    traced = backward(region, queries.top, queries.rows, lines, extra, queries.rows_in, careful, fixed)
    if careful and queries.spec is not None:
        return replace(traced, lower=_specified(region, queries, queries.spec, traced.lower))
    return traced if queries.offset is None else replace(traced, lower=traced.lower - queries.offset)


def exactly(queries: Queries, spec: QueryRows) -> tuple[Tensor, Queries]:
    """The mix (q, r) in float64, never below zero, and the queries with the specification's rows so mixed."""
    mix = torch.ones_like(spec.offset) if queries.mix is None else queries.mix.double().clamp(min=0)
    return mix, replace(queries, parts=spec).mixed(mix)


def _specified(region: Region, queries: Queries, spec: QueryRows, lower: Tensor) -> Tensor:
    """A careful bound (q,) of the queries' rows as one of the specification's rows, minus the offset.

    The rows differ by their rounding, times the largest outputs; sums over the r rows and the last
    difference are counted by their magnitude.
    """
    mix, exact = exactly(queries, spec)
    output = region.largest(queries.top).double()
    doubt = ((exact.rows - queries.rows).abs() * output).sum(1)
    mass = (mix[:, :, None] * spec.rows.abs() * output).sum((1, 2)) + (mix * spec.offset.abs()).sum(1)
    if spec.rows_in is not None and queries.rows_in is not None:
        reach = (region.centre.abs() + region.radius).double()
        doubt = doubt + ((exact.rows_in - queries.rows_in).abs() * reach).sum(1)
        mass = mass + (mix[:, :, None] * spec.rows_in.abs() * reach).sum((1, 2))
    unit = (mix.shape[1] + 8) * UNIT
    return lower - exact.offset - (1.01 * doubt + unit * (mass + lower.abs()))


def _extra(queries: Queries) -> dict[int, Tensor] | None:
    """The betas as rows (q, m) of the pre-activations: -beta where z >= 0 is assumed, else +beta."""
    if queries.beta is None or queries.split is None:
        return None
    split, betas = queries.split, queries.beta.items()
    return {at: b[:, 1] - b[:, 0] if b.dim() == 3 else -b * split[at] for at, b in betas}


def _fixed(queries: Queries) -> Tensor | None:
    """Contribution of the betas of cut curves to the constant, ±beta · end, and its magnitude (q, 2)."""
    total = None
    for at, beta in (queries.beta or {}).items():
        if beta.dim() == 3 and queries.split is not None:
            terms = beta.double() * queries.split[at][:, :2].double()
            part = torch.stack([(terms[:, 0] - terms[:, 1]).sum(1), terms.abs().sum((1, 2))], 1)
            total = part if total is None else total + part
    return total


class _Adam:
    """Adam's moments for one parameter; the step size is the rate, independent of the gradient's size."""

    def __init__(self) -> None:
        self.first, self.second, self.count = torch.zeros(0), torch.zeros(0), 0

    def step(self, gradient: Tensor, rate: float) -> Tensor:
        if not self.count:
            self.first, self.second = torch.zeros_like(gradient), torch.zeros_like(gradient)
        self.count += 1
        self.first.lerp_(gradient, 0.1)
        self.second.lerp_(gradient * gradient, 0.01)
        mean = self.first / (1 - 0.9**self.count)
        size = (self.second / (1 - 0.99**self.count)).sqrt_().add_(1e-12)
        return rate * mean / size

    def pick(self, index: Tensor) -> None:
        self.first, self.second = self.first[index], self.second[index]


Moves: TypeAlias = defaultdict[tuple[str, int], _Adam]  # by kind of parameter and activation step


def tune(
    region: Region,
    queries: Queries,
    iterations: int,
    rate: float = 0.25,
    decay: float = 0.9,
    beta_rate: float = 0.1,
    goal: float = 0.0,
    stop: Callable[[], bool] = lambda: False,
) -> tuple[Tensor, Queries]:
    """The best bounds (q,) and the queries that gave them; one whose bound exceeds `goal` is finished."""
    best = torch.full((len(queries),), -torch.inf, dtype=region.pieces.dtype)
    best_queries = replace(
        queries,
        theta={k: v.clone() for k, v in queries.theta.items()},
        beta=None if queries.beta is None else {k: v.clone() for k, v in queries.beta.items()},
        mix=None if queries.mix is None else queries.mix.clone(),
    )
    open_, now, moves = torch.arange(len(queries)), queries, Moves(_Adam)
    for turn in range(iterations + 1):
        traced = bound(region, now)
        better = traced.lower > best[open_]
        index = open_[better]
        best[index] = traced.lower[better]
        pairs = ((best_queries.theta, now.theta), (best_queries.beta or {}, now.beta or {}))
        for best_values, values in pairs:
            for at, value in values.items():
                best_values[at][index] = value[better]
        if best_queries.mix is not None and now.mix is not None:
            best_queries.mix[index] = now.mix[better]
        going = traced.lower <= goal
        if turn == iterations or not bool(going.any()) or stop():
            break
        if int(going.sum()) < 0.7 * len(going):
            index = going.nonzero().reshape(-1)
            open_, now = open_[index], now.pick(index)
            lines = {k: v.pick(index) for k, v in traced.lines.items()}
            rows = {k: v[index] for k, v in traced.rows.items()}
            traced = BackwardPass(traced.lower[index], traced.rows_in[index], rows, lines)
            for move in moves.values():
                move.pick(index)
        now = _climb(region, now, traced, moves, rate, beta_rate)
        rate, beta_rate = rate * decay, beta_rate * decay
    return best, best_queries if best_queries.mix is None else best_queries.mixed(best_queries.mix)


def _climb(
    region: Region, now: Queries, traced: BackwardPass, moves: Moves, rate: float, beta_rate: float
) -> Queries:
    point = attained(region, traced)
    relaxed = forward(region, now.top, traced, point)
    theta = dict(now.theta)
    beta = None if now.beta is None else dict(now.beta)
    for at, rows in traced.rows.items():
        bend, z = region.bends[at], relaxed.before[at]
        if theta[at].numel():
            split = None if now.split is None else now.split.get(at)
            move = moves["theta", at].step(bend.slope(theta[at], rows, z, split), rate)
            # Where an interval may be of any size, steps are shares of it.
            move = move * bend.pace if isinstance(bend, ConvexRelaxation) else move
            theta[at] = bend.keep(theta[at] + move, split)
        if beta is not None and now.split is not None and at in beta:
            moved = beta[at] + moves["beta", at].step(_outside(now.split[at], z), beta_rate)
            beta[at] = moved.clamp_(min=0) * ((now.split[at] != 0) if moved.dim() == 2 else 1)
    now = replace(now, theta=theta, beta=beta)
    if now.parts is None or now.mix is None or relaxed.top is None:
        return now
    # Mirror ascent on the simplex: a row that is larger at the relaxed point gets more weight.
    value = (now.parts.rows * relaxed.top[:, None]).sum(2) - now.parts.offset
    if now.parts.rows_in is not None:
        value = value + (now.parts.rows_in * point[:, None]).sum(2)
    size = value.abs().amax(1, keepdim=True).clamp(min=1e-9)
    return now.mixed(torch.softmax(now.mix.clamp(min=1e-6).log() + 4 * rate * value / size, 1))


def _outside(split: Tensor, z: Tensor) -> Tensor:
    """Violation of the assumed signs by z (q, m), which is the derivative of the bound by the betas."""
    return -z * split if split.dim() == 2 else torch.stack([split[:, 0] - z, z - split[:, 1]], 1)
