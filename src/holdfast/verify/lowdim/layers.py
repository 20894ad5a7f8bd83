"""A net as a sequence of dense layers, if it has only linear steps and relus and is small enough.

Values that bypass a relu (a residual, the `a` of max(a, b) = a + relu(b - a)) become neurons of slope 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

from holdfast.graph import ir
from holdfast.graph.ir import Activation, Array, Conv, Dense, Net, ScaleShift, Selection, Step, WeightedSum

NEURONS = 4096  # in all
INPUTS = 64
WEIGHTS = 1 << 23  # of one linear step


@dataclass(frozen=True, eq=False)
class AffineLayer:
    """z = weight (m, n) @ v + bias, then max(z, slope · z).

    The true weights are within terms · u · size of these (u = 2**-53), the bias within terms · u · bias_size:
    where steps were merged, `size` sums their magnitudes. `exact` means that each row selects a single value,
    so that a product with it does not round.
    """

    weight: Array
    bias: Array
    size: Array
    bias_size: Array
    slope: Array
    terms: int = 0
    exact: bool = False

    def then(self, matrix: Array, shift: Array) -> AffineLayer:
        """Matrix (k, m) @ this + shift, without an activation."""
        return AffineLayer(
            weight=matrix @ self.weight,
            bias=matrix @ self.bias + shift,
            size=np.abs(matrix) @ self.size,
            bias_size=np.abs(matrix) @ self.bias_size + np.abs(shift),
            slope=np.ones(len(matrix)),
            terms=self.terms + (0 if self.exact else matrix.shape[1] + 2),
        )


def picked(first: int, count: int) -> AffineLayer:
    """Values first .. first + count, as they are."""
    pick, zero = np.eye(first + count)[first:], np.zeros(count)
    return AffineLayer(pick, zero, pick, zero, np.ones(count), exact=True)


def joined(layers: Sequence[AffineLayer], width: int) -> AffineLayer:
    """The rows of all, over `width` values."""
    return AffineLayer(
        weight=np.concatenate([_wide(part.weight, width) for part in layers]),
        bias=np.concatenate([part.bias for part in layers]),
        size=np.concatenate([_wide(part.size, width) for part in layers]),
        bias_size=np.concatenate([part.bias_size for part in layers]),
        slope=np.concatenate([part.slope for part in layers]),
        terms=max(part.terms for part in layers),
        exact=all(part.exact for part in layers),
    )


def _wide(matrix: Array, width: int) -> Array:
    return np.pad(matrix, ((0, 0), (0, width - matrix.shape[1])))


def selected(step: Selection, parts: Sequence[AffineLayer], width: int) -> AffineLayer:
    """The step over the values its sources are layers of."""
    source, index = joined(parts, width), step.index.ravel()
    live = index >= 0
    fill = np.zeros(len(index)) if step.fill is None else step.fill.ravel()
    return AffineLayer(
        weight=source.weight[index] * live[:, None],
        bias=np.where(live, source.bias[index], fill),
        size=source.size[index] * live[:, None],
        bias_size=np.where(live, source.bias_size[index], np.abs(fill)),
        slope=np.ones(len(index)),
        terms=source.terms,
        exact=source.exact and bool(live.all()),
    )


def summed(step: WeightedSum, parts: Sequence[AffineLayer], width: int) -> AffineLayer:
    """The step over the values its sources are layers of."""
    weight = size = np.zeros((len(parts[0].bias), width))
    bias = bias_size = np.zeros(len(weight))
    for factor, part in zip(step.weights, parts, strict=True):
        weight, bias = weight + factor * _wide(part.weight, width), bias + factor * part.bias
        size = size + abs(factor) * _wide(part.size, width)
        bias_size = bias_size + abs(factor) * part.bias_size
    terms = max(part.terms for part in parts) + len(parts) + 2
    return AffineLayer(weight, bias, size, bias_size, np.ones(len(bias)), terms)


def scaled(step: ScaleShift, layer: AffineLayer) -> AffineLayer:
    """The step over the values its source is a layer of."""
    factor, offset = step.factor.ravel(), step.offset.ravel()
    return AffineLayer(
        weight=factor[:, None] * layer.weight,
        bias=factor * layer.bias + offset,
        size=np.abs(factor)[:, None] * layer.size,
        bias_size=np.abs(factor) * layer.bias_size + np.abs(offset),
        slope=np.ones(len(factor)),
        terms=layer.terms + (0 if layer.exact else 2),
    )


@dataclass(frozen=True, eq=False)
class LayerStack:
    """The hidden layers of a net, and its outputs and its inputs as layers over the last of them."""

    hidden: tuple[AffineLayer, ...]
    output: AffineLayer
    start: AffineLayer | None  # None if the inputs were not requested
    roundoff: float = 0.0  # of the evaluation that bounds must cover

    def rows(self, rows: Array, inputs: Array | None, bound: Array) -> AffineLayer:
        """Rows @ y + inputs @ x - bound as the layer after the hidden ones."""
        if inputs is None:
            return self.output.then(rows, -bound)
        if self.start is None:
            raise ValueError("expected layers with inputs, got layers_of(net) without inputs=True")
        both = joined((self.output, self.start), self.output.weight.shape[1])
        return both.then(np.hstack([rows, inputs]), -bound)


def layers_of(net: Net, inputs: bool = False) -> LayerStack | None:
    """The net as dense layers, `inputs` carried along if rows name them; None if unsupported or too large."""
    sizes = [prod(step.shape) for step in net.steps]
    neurons = sum(size for size, step in zip(sizes, net.steps, strict=True) if isinstance(step, Activation))
    if net.inputs > INPUTS or neurons > NEURONS or max(sizes) ** 2 > 64 * WEIGHTS:
        return None
    build = _LayerBuilder(net, layers=[(picked(0, net.inputs), 0)])
    for step in net.steps[1:]:
        layer = build.layer_of(step)
        if layer is None or layer[0].weight.size > WEIGHTS:
            return None
        build.layers.append(layer)
    top = len(build.groups)
    output, start = build.raised(len(net.steps) - 1, top), build.raised(0, top) if inputs else None
    if sum(build.width(level) for level in range(1, top + 1)) > NEURONS:
        return None
    hidden = tuple(joined(group, build.width(level)) for level, group in enumerate(build.groups))
    width = build.width(top)
    ends = joined((output,), width), None if start is None else joined((start,), width)
    return LayerStack(hidden, *ends, net.roundoff)


@dataclass
class _LayerBuilder:
    """Levels built so far: level 0 is the inputs, level d + 1 the neurons over level d, in groups."""

    net: Net
    layers: list[tuple[AffineLayer, int]]  # each step as a layer over a level, and that level
    groups: list[list[AffineLayer]] = field(default_factory=list)
    carried: dict[tuple[int, int], AffineLayer] = field(default_factory=dict)

    def width(self, level: int) -> int:
        return self.net.inputs if level == 0 else sum(len(part.bias) for part in self.groups[level - 1])

    def above(self, layer: AffineLayer, level: int, slope: float) -> AffineLayer:
        """The layer's values after an activation of this slope, over the next level."""
        if level == len(self.groups):
            self.groups.append([])
        first, count = self.width(level + 1), len(layer.bias)
        self.groups[level].append(replace(layer, slope=np.full(count, slope), exact=False))
        return picked(first, count)

    def raised(self, step: int, level: int) -> AffineLayer:
        """A processed step as a layer over a level at or above its own."""
        layer, own = self.layers[step]
        for above in range(own + 1, level + 1):
            if (step, above) not in self.carried:
                self.carried[step, above] = self.above(layer, above - 1, 1.0)
            layer = self.carried[step, above]
        return layer

    def layer_of(self, step: Step) -> tuple[AffineLayer, int] | None:
        """The step as a layer over its level, and that level; None if it is not supported."""
        if isinstance(step, Selection | WeightedSum):
            if not step.sources:
                return None
            level = max(self.layers[source][1] for source in step.sources)
            parts = [self.raised(source, level) for source in step.sources]
            width = self.width(level)
            if isinstance(step, Selection):
                return selected(step, parts, width), level
            return summed(step, parts, width), level
        if not isinstance(step, Activation | Dense | Conv | ScaleShift):
            return None
        layer, level = self.layers[step.source]
        if isinstance(step, Activation):
            slope = {"relu": 0.0, "leaky": step.slope}.get(step.curve, -1.0)
            return (self.above(layer, level, slope), level + 1) if 0.0 <= slope <= 1.0 else None
        if isinstance(step, ScaleShift):
            return scaled(step, layer), level
        if prod(step.shape) * len(layer.bias) > WEIGHTS:
            return None
        if isinstance(step, Dense):
            return layer.then(step.weight, step.bias), level
        alone = replace(step, bias=np.zeros_like(step.bias))
        matrix = ir.step_values(alone, [np.eye(len(layer.bias))], self.net).T
        bias = np.repeat(step.bias, prod(step.shape[1:]))
        return layer.then(np.ascontiguousarray(matrix), bias), level
