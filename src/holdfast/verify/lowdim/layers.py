"""A net as a row of dense layers, when it is linear steps and relus only and small enough.

What passes a relu by (a residual, the `a` of max(a, b) = a + relu(b - a)) goes along as neurons of slope 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

from holdfast.graph.ir import Activation, Array, Conv, Dense, Net, Scale, Start, Step, Take, Total
from holdfast.verify.lowdim.linear import Layer, joined, matrix_of, picked, scaled, summed, taken

NEURONS = 4096  # in all
INPUTS = 64
WEIGHTS = 1 << 23  # of one linear step


@dataclass(frozen=True, eq=False)
class Layers:
    """The hidden layers of a net, and its outputs and its inputs as layers over the last of them."""

    hidden: tuple[Layer, ...]
    output: Layer
    start: Layer | None  # None when the inputs were not asked for
    roundoff: float = 0.0  # of the evaluation that bounds must cover

    def rows(self, rows: Array, inputs: Array | None, bound: Array) -> Layer:
        """Rows @ y + inputs @ x - bound as the layer after the hidden ones."""
        if inputs is None:
            return self.output.then(rows, -bound)
        if self.start is None:
            raise ValueError("expected layers that carry the inputs, got layers_of(net) without inputs=True")
        both = joined((self.output, self.start), self.output.weight.shape[1])
        return both.then(np.hstack([rows, inputs]), -bound)


def layers_of(net: Net, inputs: bool = False, most: int = NEURONS) -> Layers | None:
    """The net as dense layers; None if it is not such a net or has more than `most` neurons.

    With `inputs` they are carried along, for rows that tie inputs and outputs.
    """
    sizes = [prod(step.shape) for step in net.steps]
    activations = sum(
        size for size, step in zip(sizes, net.steps, strict=True) if isinstance(step, Activation)
    )
    if net.inputs > INPUTS or activations > most or max(sizes) ** 2 > 64 * WEIGHTS:
        return None
    build = _Build(net)
    for at, step in enumerate(net.steps):
        if not build.add(at, step):
            return None
    top = len(build.groups)
    output, start = build.raised(len(net.steps) - 1, top), build.raised(0, top) if inputs else None
    if sum(build.width(level) for level in range(1, top + 1)) > most:
        return None
    hidden = tuple(joined(group, build.width(level)) for level, group in enumerate(build.groups))
    width = build.width(top)
    ends = joined((output,), width), None if start is None else joined((start,), width)
    return Layers(hidden, *ends, net.roundoff)


@dataclass
class _Build:
    """Levels under way: level 0 is the inputs, level d + 1 the neurons over level d, in groups."""

    net: Net
    groups: list[list[Layer]] = field(default_factory=list)
    known: list[tuple[Layer, int]] = field(default_factory=list)
    carried: dict[tuple[int, int], Layer] = field(default_factory=dict)

    def width(self, level: int) -> int:
        """How many neurons a level has so far."""
        return self.net.inputs if level == 0 else sum(len(part.bias) for part in self.groups[level - 1])

    def above(self, layer: Layer, level: int, slope: float) -> Layer:
        """The layer's values after an activation of this slope, over the next level."""
        if level == len(self.groups):
            self.groups.append([])
        first, count = self.width(level + 1), len(layer.bias)
        self.groups[level].append(replace(layer, slope=np.full(count, slope), exact=False))
        return picked(first, count)

    def raised(self, step: int, level: int) -> Layer:
        """A known step as a layer over a level at or above its own."""
        layer, own = self.known[step]
        for above in range(own + 1, level + 1):
            if (step, above) not in self.carried:
                self.carried[step, above] = self.above(layer, above - 1, 1.0)
            layer = self.carried[step, above]
        return layer

    def add(self, at: int, step: Step) -> bool:
        """Whether the next step is linear or a relu; it is then known."""
        made = self.made(step)
        if made is not None and made[0].weight.size <= WEIGHTS:
            self.known.append(made)
        return len(self.known) == at + 1

    def made(self, step: Step) -> tuple[Layer, int] | None:
        """The step as a layer over the level it stands on, and that level."""
        if isinstance(step, Start):
            return picked(0, self.net.inputs), 0
        if isinstance(step, Take | Total):
            if not step.sources:
                return None
            level = max(self.known[source][1] for source in step.sources)
            parts = [self.raised(source, level) for source in step.sources]
            width = self.width(level)
            return (
                taken(step, parts, width) if isinstance(step, Take) else summed(step, parts, width)
            ), level
        if isinstance(step, Activation):
            slope = {"relu": 0.0, "leaky": step.slope}.get(step.curve, -1.0)
            layer, level = self.known[step.source]
            return (self.above(layer, level, slope), level + 1) if 0.0 <= slope <= 1.0 else None
        return self.mapped(step) if isinstance(step, Dense | Conv | Scale) else None

    def mapped(self, step: Dense | Conv | Scale) -> tuple[Layer, int] | None:
        """A linear step of one source over the level that stands on, and that level."""
        layer, level = self.known[step.source]
        if isinstance(step, Scale):
            return scaled(step, layer), level
        if prod(step.shape) * len(layer.bias) > WEIGHTS:
            return None
        if isinstance(step, Dense):
            return layer.then(step.weight, step.bias), level
        channels, height, width = self.net.steps[step.source].shape
        return layer.then(*matrix_of(step, (channels, height, width))), level
