"""Small nets of every kind of step, points of their boxes, and exact answers to check bounds with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from holdfast.graph.ir import (
    Activation,
    Conv,
    Dense,
    FreeInputs,
    Net,
    Product,
    ScaleShift,
    Selection,
    Step,
    WeightedSum,
    evaluate,
)
from holdfast.verify.problem import Case, VerificationProblem


class Row:
    """Steps put one after the other; every method says the number of the step it added."""

    def __init__(self, rng: np.random.Generator, shape: tuple[int, ...]) -> None:
        self.rng, self.steps = rng, [FreeInputs(shape)]

    def put(self, step: Step) -> int:
        """One more step."""
        self.steps.append(step)
        return len(self.steps) - 1

    def dense(self, source: int, width: int) -> int:
        """A dense layer with weights that keep values of about one size."""
        size = prod(self.steps[source].shape)
        weight = self.rng.normal(0, 1.5 / np.sqrt(size), (width, size))
        return self.put(Dense(source, weight, self.rng.normal(0, 0.3, width), (width,)))

    def conv(
        self,
        source: int,
        out: int,
        kernel: tuple[int, int],
        stride: tuple[int, int] = (1, 1),
        pads: tuple[int, int, int, int] = (0, 0, 0, 0),
        dilation: tuple[int, int] = (1, 1),
        groups: int = 1,
    ) -> int:
        """A convolution of whatever shape its source has."""
        channels, height, width = self.steps[source].shape
        reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
        down = (height + pads[0] + pads[2] - reach[0]) // stride[0] + 1
        across = (width + pads[1] + pads[3] - reach[1]) // stride[1] + 1
        weight = self.rng.normal(0, 1 / np.sqrt(channels * prod(kernel)), (out, channels // groups, *kernel))
        bias = self.rng.normal(0, 0.3, out)
        shape = (out, down, across)
        return self.put(Conv(source, weight, bias, stride, pads, dilation, groups, shape))

    def curve(self, source: int, curve: str, slope: float = 0.0) -> int:
        """An activation."""
        return self.put(Activation(source, curve, self.steps[source].shape, slope))

    def scale(self, source: int) -> int:
        """A factor and an offset of its own for every element."""
        shape = self.steps[source].shape
        return self.put(
            ScaleShift(source, self.rng.normal(1, 0.5, shape), self.rng.normal(0, 0.3, shape), shape)
        )

    def total(self, *sources: int) -> int:
        """A weighted sum."""
        weights = tuple(float(w) for w in self.rng.normal(0, 1, len(sources)))
        return self.put(WeightedSum(sources, weights, self.steps[sources[0]].shape))

    def take(self, sources: tuple[int, ...], shape: tuple[int, ...], filled: bool = True) -> int:
        """Elements at random, some of them constants, some of them several times."""
        size = sum(prod(self.steps[s].shape) for s in sources)
        index = self.rng.integers(-1 if filled else 0, size, shape)
        fill = self.rng.normal(0, 1, shape) if filled else None
        return self.put(Selection(sources, index, fill, shape))

    def net(self) -> Net:
        """The net of these steps, all inputs free."""
        size = prod(self.steps[0].shape)
        return Net(tuple(self.steps), np.arange(size), np.zeros(size))


def dense_net(rng: np.random.Generator, curve: str = "relu", slope: float = 0.0, inputs: int = 3) -> Net:
    """Three dense layers with one curve between."""
    row = Row(rng, (inputs,))
    at = row.curve(row.dense(0, 6), curve, slope)
    at = row.curve(row.dense(at, 5), curve, slope)
    row.dense(at, 2)
    return row.net()


def conv_net(rng: np.random.Generator) -> Net:
    """Convolutions with strides, uneven pads, groups and dilations, and a sum around one of them."""
    row = Row(rng, (2, 5, 4))
    first = row.curve(row.conv(0, 4, (3, 2), (2, 2), (1, 0, 2, 1)), "relu")
    second = row.conv(first, 4, (3, 3), (1, 1), (1, 1, 1, 1))
    third = row.curve(row.total(first, second), "relu")
    last = row.conv(third, 2, (2, 1), (2, 1), (0, 1, 1, 0), (1, 1), 2)
    row.dense(row.curve(last, "leaky", 0.1), 2)
    return row.net()


def spread_net(rng: np.random.Generator) -> Net:
    """Takes with constants and repeats, scales, and one step that many read."""
    row = Row(rng, (4,))
    wide = row.curve(row.scale(row.take((0,), (6,))), "relu")
    parts = [row.take((wide, 0), (5,), filled) for filled in (True, False, True)]
    joined = row.curve(row.total(*parts), "leaky", 0.25)
    row.total(*[row.dense(joined, 2) for _ in range(5)])
    return row.net()


def maxima_net(rng: np.random.Generator) -> Net:
    """max(a, b) = a + relu(b - a), twice in a row."""
    row = Row(rng, (3,))
    at = row.dense(0, 8)
    for width in (4, 2):
        left, right = (row.put(Selection((at,), np.arange(width) + s, None, (width,))) for s in (0, width))
        above = row.curve(row.put(WeightedSum((right, left), (1.0, -1.0), (width,))), "relu")
        at = row.put(WeightedSum((left, above), (1.0, 1.0), (width,)))
    row.dense(at, 2)
    return row.net()


def branched_net(rng: np.random.Generator) -> Net:
    """Two branches of relus side by side: what one depends on the other does not."""
    row = Row(rng, (3,))
    left = row.curve(row.dense(0, 4), "relu")
    right = row.curve(row.dense(0, 4), "relu")
    left, right = (row.curve(row.dense(at, 4), "relu") for at in (left, right))
    row.dense(row.curve(row.total(left, right), "relu"), 2)
    return row.net()


def mixed_net(rng: np.random.Generator) -> Net:
    """A tanh, a relu of it directly, a sigmoid and a sign."""
    row = Row(rng, (3,))
    bent = row.curve(row.dense(0, 5), "tanh")
    at = row.curve(bent, "relu")
    at = row.curve(row.dense(row.total(at, bent), 4), "sigmoid")
    row.dense(row.curve(row.dense(at, 4), "sign"), 2)
    return row.net()


def product_net(rng: np.random.Generator) -> Net:
    """Products of two steps, of a step with itself, and of a product with a curve."""
    row = Row(rng, (3,))
    left, right = row.dense(0, 5), row.curve(row.dense(0, 5), "relu")
    at = row.put(Product(left, right, (5,)))
    gate = row.curve(row.dense(at, 4), "sigmoid")
    at = row.put(Product(row.dense(at, 4), gate, (4,)))
    row.dense(row.put(Product(at, at, (4,))), 2)
    return row.net()


def share_net(rng: np.random.Generator) -> Net:
    """A softmax by hand, 1 / (1 + sum of exps), then a root, a logarithm and a sine."""
    row = Row(rng, (3,))
    at = row.curve(row.dense(row.curve(row.dense(0, 5), "tanh"), 4), "exp")
    weight, bias = rng.uniform(0.1, 1, (4, 4)), np.ones(4)
    at = row.curve(row.put(Dense(at, weight, bias, (4,))), "reciprocal")
    roots = [row.curve(row.put(Dense(at, weight, bias, (4,))), curve) for curve in ("sqrt", "log")]
    row.dense(row.curve(row.total(*roots), "sin"), 2)
    return row.net()


KINDS: dict[str, Callable[[np.random.Generator], Net]] = {
    "relu": dense_net,
    "leaky": lambda rng: dense_net(rng, "leaky", 0.3),
    "sigmoid": lambda rng: dense_net(rng, "sigmoid"),
    "tanh": lambda rng: dense_net(rng, "tanh"),
    "sign": lambda rng: dense_net(rng, "sign"),
    "conv": conv_net,
    "spread": spread_net,
    "maxima": maxima_net,
    "mixed": mixed_net,
    "branched": branched_net,
    "product": product_net,
    "share": share_net,
    "erf": lambda rng: dense_net(rng, "erf"),
    "elu": lambda rng: dense_net(rng, "elu", 0.7),
    "softplus": lambda rng: dense_net(rng, "softplus"),
    "square": lambda rng: dense_net(rng, "square"),
    "sin": lambda rng: dense_net(rng, "sin"),
}


@dataclass(frozen=True, eq=False)
class Sample:
    """A net, a box, and points of the box: its middle, corners and random ones."""

    net: Net
    lower: np.ndarray
    upper: np.ndarray
    points: np.ndarray


def sample(kind: str, seed: int, radius: float = 1.0, count: int = 300) -> Sample:
    """A net of this kind over a box of about this radius; one input is fixed."""
    rng = np.random.default_rng((seed, sorted(KINDS).index(kind)))
    net = KINDS[kind](rng)
    centre, reach = rng.normal(0, 1, net.inputs), radius * rng.uniform(0.5, 1, net.inputs)
    reach[0] = 0.0
    lower, upper = centre - reach, centre + reach
    return Sample(net, lower, upper, points_of(rng, lower, upper, count))


def points_of(rng: np.random.Generator, lower: np.ndarray, upper: np.ndarray, count: int) -> np.ndarray:
    """The middle, `count` corners and `count` random points of a box."""
    corners = np.where(rng.random((count, len(lower))) < 0.5, lower, upper)
    inside = lower + (upper - lower) * rng.random((count, len(lower)))
    return np.clip(np.concatenate([(lower + upper)[None] / 2, corners, inside]), lower, upper)


def values_of(net: Net, points: np.ndarray) -> list[np.ndarray]:
    """The values (b, n) of every step in float64."""
    return [
        evaluate(Net(net.steps[: at + 1], net.free, net.template), points) for at in range(len(net.steps))
    ]


def problem(net: Net, *cases: Case) -> VerificationProblem:
    """A problem whose counterexamples are judged by the net in float64."""

    def violates(points: np.ndarray) -> np.ndarray:
        met = np.zeros(len(points), np.bool_)
        outputs = evaluate(net, points.astype(np.float64))
        for case in cases:
            inside = ((points >= case.lower) & (points <= case.upper)).all(1)
            left = outputs @ case.rows.T - case.bound
            if case.inputs is not None:
                left = left + points.astype(np.float64) @ case.inputs.T
            met |= inside & (left <= 0).all(1)
        return met

    return VerificationProblem(net, tuple(cases), violates)


def least_on_line(net: Net, lower: float, upper: float, row: np.ndarray) -> Fraction:
    """The exact minimum of row @ net over one input: the net is linear between breakpoints found exactly."""
    knots = [Fraction(lower), Fraction(upper)]
    for step in net.steps:
        if not isinstance(step, Activation):
            continue
        added = []
        for left, right in pairwise(knots):
            ends = [_exact(net, step.source, x) for x in (left, right)]
            for a, b in zip(*ends, strict=True):
                if (a < 0) != (b < 0) and a != b:
                    added.append(left + (right - left) * a / (a - b))
        knots = sorted({*knots, *added})
    weights = [Fraction(float(w)) for w in row]
    last = len(net.steps) - 1
    return min(sum(w * v for w, v in zip(weights, _exact(net, last, x), strict=True)) for x in knots)


def _exact(net: Net, top: int, x: Fraction) -> list[Fraction]:
    """The values of one step of a net of dense layers and relus, without rounding."""
    values = [x]
    for step in net.steps[1 : top + 1]:
        if isinstance(step, Dense):
            rows = zip(step.weight, step.bias, strict=True)
            values = [
                sum((Fraction(float(w)) * v for w, v in zip(row, values, strict=True)), Fraction(float(b)))
                for row, b in rows
            ]
        else:
            values = [max(v, Fraction(0)) for v in values]
    return values


def only_in(patch: Any, module: Any, name: str, **values: object) -> None:
    """Replace names of a module, but only while its function of this name runs."""
    once = getattr(module, name)

    def run(*given: Any, **named: Any) -> Any:
        with patch.context() as inner:
            for other, value in values.items():
                inner.setattr(module, other, value)
            return once(*given, **named)

    patch.setattr(module, name, run)
