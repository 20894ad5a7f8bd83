"""Bounds on the error of a floating-point evaluation of a network relative to real arithmetic.

A runtime that evaluates a net gives fl(W v + b) = W v + b + d with |d| <= gamma (|W| |v| + |b|), where
gamma = n u / (1 - n u) for n terms (Higham), whatever the order of the sum. For a net with a `roundoff` u,
engines prove their bounds for all such d at every step, each over its own boxes. Curves are assumed to be
accurate to `CURVE` units of roundoff, more than ONNX Runtime's approximations need.
"""

from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from holdfast.graph import ir
from holdfast.graph.ir import Activation, Array, Net, Selection, Step, WeightedSum, sources_of, step_values

UNIT = 2.0**-53  # roundoff of float64
MERGED = 16  # possible roundings of an importer that merged a scale or a batch norm into a weight
EXTRA = 6  # roundings of one step in addition to its sum: a bias, the factor of a batch norm, underflow
SURE = 2e-4  # a margin above this is not improved any more: float32 runtimes differ by less
NEAR = 1e-6  # a point this near, as a part of the bounds, is replayed: float32 runtimes differ by as much
REPLAYED = 16  # points of one batch that are replayed at most
CURVE = 8  # units of roundoff to which a curve is computed
_EXACT = ("relu", "sign")
_RELATIVE = ("leaky", "square", "sqrt", "exp", "reciprocal")  # the others may be off by a part of 1
TYPES = {float(np.finfo(kind).eps) / 2: np.finfo(kind) for kind in (np.float16, np.float32, np.float64)}


def terms(step: Step) -> int:
    """How many products one element of a linear step sums."""
    if isinstance(step, ir.Dense):
        return int(step.weight.shape[1])
    if isinstance(step, ir.Conv):
        return int(step.weight[0].size)
    return len(sources_of(step)) + (step.roundings if isinstance(step, WeightedSum) else 0)


def gamma(count: int, roundoff: float) -> float:
    """The relative error of a sum of `count` products in any order; infinite if that has no bound."""
    part = count * roundoff
    return part / (1 - part) if part < 0.5 else float("inf")


def step_error(net: Net, step: Step) -> float:
    """The error of evaluating a linear step or a product, as a part of the magnitudes it sums."""
    if not net.roundoff or isinstance(step, Selection | ir.FreeInputs):
        return 0.0
    return gamma(terms(step) + EXTRA, net.roundoff)


def curve_error(net: Net, step: Activation, largest: Any) -> Any:
    """The error of evaluating a curve whose values are at most `largest` (an array or a tensor)."""
    if not net.roundoff or step.curve in _EXACT:
        return largest.clip(0.0, 0.0)  # not 0 times a value that may be infinite
    return CURVE * net.roundoff * (largest if step.curve in _RELATIVE else 1.0 + largest)


@dataclass(frozen=True, eq=False)
class Rounding:
    """Error bounds over a whole box by interval arithmetic, looser than those engines count box by box.

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

    @property
    def least(self) -> Array:
        nonzero = (self.lower > 0) | (self.upper < 0)
        return np.where(nonzero, np.minimum(np.abs(self.lower), np.abs(self.upper)), 0.0)


def rounding_of(net: Net, lower: Array, upper: Array) -> Rounding:
    """Bounds on the error of evaluating the net over a box of its free inputs."""
    inside: set[int] = set()  # steps of a softmax, from its differences to before its shares
    largest = 0.0

    def apply(at: int, step: Step, sources: list[_Range]) -> _Range:
        nonlocal largest
        softmax = inside.intersection(sources_of(step))
        values = (_softmax_range if softmax else _step_range)(net, step, sources)
        shares = isinstance(step, Activation) and step.curve == "reciprocal"
        if (isinstance(step, WeightedSum) and step.roundings) or (softmax and not shares):
            inside.add(at)
        largest = _larger(largest, values)
        return values

    inputs = _Range(lower[None], upper[None], np.zeros((2, len(lower))))
    with np.errstate(all="ignore"):
        last = ir.forward(net, inputs, apply)
        largest = _larger(largest, inputs)
    error = np.where(np.isnan(last.error), np.inf, last.error)
    return Rounding(float(largest), float(last.size.max(initial=0.0)), error[0], error[1])


def _larger(largest: float, values: _Range) -> float:
    return np.inf if np.isnan(values.size).any() else max(largest, values.size.max(initial=0.0))


def _step_range(net: Net, step: Step, sources: list[_Range]) -> _Range:
    """The range and the errors of a step that a runtime evaluates."""
    first = sources[0]
    if isinstance(step, Activation):
        low, high = _span(step, first.lower, first.upper)
        steepest = _steepest(step, first.lower, first.upper)
        # A zero error stays zero at any slope.
        carried = np.where(first.error == 0, 0.0, first.error * steepest)
        own = curve_error(net, step, np.maximum(np.abs(low), np.abs(high)))
        least = _Range(low, high, own).least if step.curve in _RELATIVE else np.full_like(low, np.inf)
    elif isinstance(step, ir.Product):
        other = sources[1]
        ends = [a * b for a in (first.lower, first.upper) for b in (other.lower, other.upper)]
        low, high = np.minimum.reduce(ends), np.maximum.reduce(ends)
        carried = first.error * other.size + other.error * first.size + first.error * other.error
        own, least = step_error(net, step) * first.size * other.size, first.least * other.least
    else:
        sizes, alone = magnitude(step, 1.0), magnitude(step, 0.0)
        middle = step_values(step, [(r.lower + r.upper) / 2 for r in sources], net)
        reach = step_values(alone, [(r.upper - r.lower) / 2 for r in sources], net)
        mass = step_values(sizes, [r.size for r in sources], net)
        low, high = middle - reach - 1e-9 * mass, middle + reach + 1e-9 * mass
        carried = step_values(alone, [r.error for r in sources], net)
        own = step_error(net, step) * mass
        exact = isinstance(step, Selection)
        least = np.full_like(mass, np.inf) if exact else step_values(sizes, [r.least for r in sources], net)
    # Underflow is less than one more rounding of the terms, unless they are tiny.
    tiny = float(TYPES[net.roundoff].tiny) * (terms(step) + EXTRA)
    flushed = np.where(least * net.roundoff >= tiny, 0.0, tiny)
    error = carried * (1 + 1e-9) + np.concatenate([own + flushed, flushed])
    low, high = low - own - flushed, high + own + flushed
    return _Range(low, high, np.fmin(error, high - low))


def _softmax_range(net: Net, step: Step, sources: list[_Range]) -> _Range:
    """A step of 1 / (1 + sum of exp(differences)): its largest relative error; the shares are in [0, 1].

    A runtime subtracts the largest value before exp, so that no intermediate value overflows.
    """
    shape = (2, prod(step.shape))
    own = CURVE * net.roundoff if isinstance(step, Activation) else step_error(net, step)
    flushed = float(TYPES[net.roundoff].tiny) * (terms(step) + EXTRA)
    error = np.max([one.error.max(axis=1) for one in sources], axis=0)
    relative = np.broadcast_to((2 * error + flushed + [own, 0.0])[:, None], shape)
    relative = np.where(relative < 0.5, relative, np.inf)
    zero = np.zeros((1, shape[1]))
    last = isinstance(step, Activation) and step.curve == "reciprocal"
    return _Range(zero, zero + last, relative)


def _span(step: Activation, lower: Array, upper: Array) -> tuple[Array, Array]:
    inside = (lower <= 0) & (upper >= 0)
    if step.curve == "sin":
        return np.full_like(lower, -1.0), np.full_like(lower, 1.0)
    ends = ir.curve_of(step, lower), ir.curve_of(step, upper)
    low, high = np.minimum(*ends), np.maximum(*ends)
    if step.curve == "reciprocal":
        return np.where(inside, -np.inf, low), np.where(inside, np.inf, high)
    return np.where(inside & (step.curve in ("square", "leaky")), np.minimum(low, 0.0), low), high


def _steepest(step: Activation, lower: Array, upper: Array) -> Array:
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


def magnitude(step: Step, unit: float) -> Step:
    """A linear step with the magnitudes of its weights, and `unit` times those of its constants."""
    if isinstance(step, ir.Dense | ir.Conv):
        return replace(step, weight=np.abs(step.weight), bias=unit * np.abs(step.bias))
    if isinstance(step, ir.ScaleShift):
        return replace(step, factor=np.abs(step.factor), offset=unit * np.abs(step.offset))
    if isinstance(step, WeightedSum):
        return replace(step, weights=tuple(abs(weight) for weight in step.weights))
    if isinstance(step, Selection):
        return replace(step, fill=None if step.fill is None else np.zeros_like(step.fill))
    raise TypeError(f"expected a linear step, got {type(step).__name__}")
