"""What the floating-point evaluation of a network can be off from real arithmetic.

A runtime that evaluates a net gives fl(W v + b) = W v + b + d with |d| <= gamma (|W| |v| + |b|), where
gamma = n u / (1 - n u) for n terms (Higham), whatever the order of the sum. Engines that are given a net with
a `roundoff` u prove their bounds for all such d at every step, each over its own boxes. Curves are taken to
be computed to `CURVE` units of roundoff: what ONNX Runtime's approximations need, and some more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from holdfast.graph.evaluate import curve_of, step_values
from holdfast.graph.ir import (
    Activation,
    Array,
    Conv,
    Dense,
    Net,
    Product,
    Scale,
    Start,
    Step,
    Take,
    Total,
    sources_of,
)

EXTRA = 6  # roundings of one step beyond its sum: a bias, the factor of a batch norm
CURVE = 8  # units of roundoff to which a curve is computed
_EXACT = ("relu", "sign")
_RELATIVE = ("leaky", "square", "sqrt", "exp", "reciprocal")  # the others may be off by a part of 1
TYPES = {float(np.finfo(kind).eps) / 2: np.finfo(kind) for kind in (np.float16, np.float32, np.float64)}


def terms(step: Step) -> int:
    """How many products one element of a linear step sums."""
    if isinstance(step, Dense):
        return int(step.weight.shape[1])
    if isinstance(step, Conv):
        return int(step.weight[0].size)
    return len(sources_of(step)) + (step.roundings if isinstance(step, Total) else 0)


def gamma(count: int, roundoff: float) -> float:
    """The relative error of a sum of `count` products in any order; infinite if that has no bound."""
    part = count * roundoff
    return part / (1 - part) if part < 0.5 else float("inf")


def step_error(net: Net, step: Step) -> float:
    """The error of evaluating a linear step or a product, as a part of the magnitudes it sums."""
    if not net.roundoff or isinstance(step, Take | Start):
        return 0.0
    return gamma(terms(step) + EXTRA, net.roundoff)


def curve_error(net: Net, step: Activation, largest: Any) -> Any:
    """The error of evaluating a curve whose values are at most `largest` (an array or a tensor)."""
    if not net.roundoff or step.curve in _EXACT:
        return largest.clip(0.0, 0.0)  # not 0 times a value that may be infinite
    return CURVE * net.roundoff * (largest if step.curve in _RELATIVE else 1.0 + largest)


@dataclass(frozen=True, eq=False)
class Rounding:
    """Bounds over a box, by intervals: far more than engines have to count box by box.

    The largest value of any step and of the outputs; per output (k,) the error of an evaluation, and the part
    of it that is underflow.
    """

    largest: float
    outputs: float
    error: Array
    underflow: Array


@dataclass(frozen=True, eq=False)
class _Range:
    """A step's values over the box as evaluated (1, n), and their errors (2, n): in all, from underflow."""

    lower: Array
    upper: Array
    error: Array

    @property
    def size(self) -> Array:
        return np.maximum(np.abs(self.lower), np.abs(self.upper))


def rounding_of(net: Net, lower: Array, upper: Array) -> Rounding:
    """What evaluating the net over a box of its free inputs can be off."""
    last_use = {source: at for at, step in enumerate(net.steps) for source in sources_of(step)}
    held: dict[int, _Range] = {}
    largest = 0.0
    with np.errstate(all="ignore"):
        for at, step in enumerate(net.steps):
            if isinstance(step, Start):
                held[at] = _Range(lower[None], upper[None], np.zeros((2, len(lower))))
            else:
                held[at] = _evaluated(net, step, [held[source] for source in sources_of(step)])
            largest = np.fmax(largest, held[at].size.max(initial=0.0))  # not a number: infinite
            largest = np.inf if np.isnan(held[at].size).any() else largest
            for source in set(sources_of(step)):
                if last_use[source] == at:
                    del held[source]
    last = held[len(net.steps) - 1]
    error = np.where(np.isnan(last.error), np.inf, last.error)
    return Rounding(float(largest), float(last.size.max(initial=0.0)), error[0], error[1])


def _evaluated(net: Net, step: Step, given: list[_Range]) -> _Range:
    """The range and the errors of a step that a runtime evaluates."""
    first = given[0]
    if isinstance(step, Activation):
        low, high = _span(step, first.lower, first.upper)
        found = first.error * _steepest(step, first.lower, first.upper)
        own = curve_error(net, step, np.maximum(np.abs(low), np.abs(high)))
        exact = step.curve in _EXACT
    elif isinstance(step, Product):
        ends = [a * b for a in (first.lower, first.upper) for b in (given[1].lower, given[1].upper)]
        low, high = np.minimum.reduce(ends), np.maximum.reduce(ends)
        found = first.error * given[1].size + given[1].error * first.size + first.error * given[1].error
        own, exact = step_error(net, step) * first.size * given[1].size, False
    else:
        sizes, alone = magnitude(step, 1.0), magnitude(step, 0.0)
        middle = step_values(step, [(r.lower + r.upper) / 2 for r in given], net)
        reach = step_values(alone, [(r.upper - r.lower) / 2 for r in given], net)
        mass = step_values(sizes, [r.size for r in given], net)
        low, high = middle - reach - 1e-9 * mass, middle + reach + 1e-9 * mass
        found = step_values(alone, [r.error for r in given], net)
        own, exact = step_error(net, step) * mass, isinstance(step, Take)
    flushed = 0.0 if exact else float(TYPES[net.roundoff].tiny) * (terms(step) + EXTRA)
    error = found * (1 + 1e-9) + np.concatenate([own + flushed, np.full_like(own, flushed)])
    return _Range(low - own - flushed, high + own + flushed, error)


def _span(step: Activation, lower: Array, upper: Array) -> tuple[Array, Array]:
    """The least and the largest value of a curve over [lower, upper]."""
    inside = (lower <= 0) & (upper >= 0)
    if step.curve == "sin":
        return np.full_like(lower, -1.0), np.full_like(lower, 1.0)
    ends = curve_of(step, lower), curve_of(step, upper)
    low, high = np.minimum(*ends), np.maximum(*ends)
    if step.curve == "reciprocal":
        return np.where(inside, -np.inf, low), np.where(inside, np.inf, high)
    return np.where(inside & (step.curve in ("square", "leaky")), np.minimum(low, 0.0), low), high


def _steepest(step: Activation, lower: Array, upper: Array) -> Array:
    """The steepest slope of a curve over [lower, upper]."""
    size, least = np.maximum(np.abs(lower), np.abs(upper)), np.minimum(np.abs(lower), np.abs(upper))
    inside = (lower <= 0) & (upper >= 0)
    if step.curve == "sign":
        return np.where(inside, np.inf, 0.0)
    if step.curve in ("leaky", "elu"):
        return np.full_like(size, max(1.0, abs(step.slope)))
    if step.curve == "square":
        return 2 * size
    if step.curve == "exp":
        return np.exp(upper)
    if step.curve == "sqrt":
        return np.where(lower > 0, 0.5 / np.sqrt(lower), np.inf)
    if step.curve in ("log", "reciprocal"):
        power = 1 if step.curve == "log" else 2
        return np.where(inside, np.inf, 1 / least**power)
    return np.full_like(size, 1.13)  # of sigmoid, tanh, erf, softplus, sin and relu


def error_of_rows(rows: Array, error: Array) -> Array:
    """Error (m,) of rows (m, k) over outputs with errors (k,); weight 0 takes away an infinite one."""
    parts: Array = np.zeros(rows.shape)
    np.multiply(np.abs(rows), error, out=parts, where=rows != 0)
    return np.asarray(parts.sum(axis=1))


def magnitude(step: Step, unit: float) -> Step:
    """A linear step with the magnitudes of its weights, and `unit` times those of its constants."""
    if isinstance(step, Dense | Conv):
        return replace(step, weight=np.abs(step.weight), bias=unit * np.abs(step.bias))
    if isinstance(step, Scale):
        return replace(step, factor=np.abs(step.factor), offset=unit * np.abs(step.offset))
    if isinstance(step, Total):
        return replace(step, weights=tuple(abs(weight) for weight in step.weights))
    if isinstance(step, Take):
        return replace(step, fill=None if step.fill is None else np.zeros_like(step.fill))
    raise TypeError(f"expected a linear step, got {type(step).__name__}")
