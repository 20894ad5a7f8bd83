"""What a net of one input does on segments: chords between computed end values, and how far off they can be.

On a segment [a, b] every step's values v(x) lie within `off` of the chord c(x) from V(a) to V(b), the values
as computed. A linear step W v + b keeps this with |W| off, plus the rounding of its own sums at both ends. A
relu whose chord runs from -p to q bends away from its new chord by at most p q / (p + q); where the sign is
known it does not bend at all. So a bound holds wherever segments end, and it is exact up to rounding once
they end at the breakpoints.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from holdfast.graph.ir import (
    Activation,
    Array,
    Conv,
    Dense,
    Net,
    Scale,
    Start,
    Step,
    Take,
    Total,
    curve_of,
    sources_of,
    step_values,
)
from holdfast.verify.rounding import CURVE, magnitude, step_error, terms

UNIT = 2.0**-53
MERGED = 16  # roundings an importer may have made where it merged a scale or a batch norm into a weight
SHARP = 1e-6  # behind other breakpoints of a segment one is cut at only if this part of its rise is in doubt
Index = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Chords:
    """The outputs at both ends of s segments and the most they are off the chord (s, k).

    `where` (c,) and `at` (c,) are segments and the places inside them at which a neuron changes its sign.
    """

    left: Array
    right: Array
    off: Array
    where: Index
    at: Array


def piecewise(net: Net) -> bool:
    """Whether a net has at most one input and is made of linear steps and relus only."""
    linear = (Start, Take, Dense, Conv, Scale, Total)
    return net.inputs <= 1 and all(
        isinstance(s, linear) or (isinstance(s, Activation) and s.curve in ("relu", "leaky"))
        for s in net.steps
    )


def sizes_of(net: Net) -> tuple[Step, ...]:
    """The steps with the magnitudes of their weights: what carries the offs."""
    curves = (Start, Activation)
    return tuple(s if isinstance(s, curves) else magnitude(s, unit_of(net, s)) for s in net.steps)


def unit_of(net: Net, step: Step) -> float:
    """What the sums of a linear step can be off at most, here and in a runtime, as a part of their sizes."""
    return 2 * (terms(step) + MERGED + 8) * UNIT + step_error(net, step)


def chords(net: Net, left: Array, right: Array, sizes: tuple[Step, ...] | None = None) -> Chords:
    """The net's chords on segments from left (s,) to right (s,); `sizes` are those of the net."""
    points, places = np.unique(np.concatenate([left, right]), return_inverse=True)
    sizes = sizes or sizes_of(net)
    walk = _Walk(net, left, right, places[: len(left)], places[len(left) :])
    last_use = {source: at for at, step in enumerate(net.steps) for source in sources_of(step)}
    values: dict[int, Array] = {}
    for at, step in enumerate(net.steps):
        if isinstance(step, Start):
            values[at] = points[:, None][:, : net.inputs]
            walk.off[at] = np.zeros((len(left), net.inputs))
        elif isinstance(step, Activation):
            values[at] = curve_of(step, values[step.source])
            walk.bend(at, step, values[step.source])
        else:
            given = [values[source] for source in sources_of(step)]
            values[at] = step_values(step, given, net)
            walk.carry(at, step, sizes[at], given)
        for source in set(sources_of(step)):
            if last_use[source] == at:
                del values[source], walk.off[source]
    last = len(net.steps) - 1
    where, cuts = np.concatenate(walk.where), np.concatenate(walk.cuts)
    return Chords(values[last][walk.first], values[last][walk.second], walk.off[last], where, cuts)


class _Walk:
    """A pass over the steps under way: how far off the chords are (s, n), by step, and cuts found so far."""

    def __init__(self, net: Net, left: Array, right: Array, first: Index, second: Index) -> None:
        self.net, self.left, self.right, self.first, self.second = net, left, right, first, second
        self.off: dict[int, Array] = {}
        self.where, self.cuts = [np.zeros(0, np.int64)], [np.zeros(0)]
        self.cut = np.zeros(len(left), np.bool_)  # whether a segment has a breakpoint so far

    def carry(self, at: int, step: Step, size_of: Step, given: list[Array]) -> None:
        """Set a linear step's offs."""
        unit = unit_of(self.net, step)
        parts = []
        for source, values in zip(sources_of(step), given, strict=True):
            size = np.abs(values)
            largest = np.maximum(size[self.first], size[self.second])
            parts.append(self.off[source] + (0.0 if isinstance(step, Take) else unit) * largest)
        grown: Array = step_values(size_of, parts, self.net) * (1 + 2 * unit)
        self.off[at] = grown

    def bend(self, at: int, step: Activation, values: Array) -> None:
        """Set an activation's offs, and add the places where neurons change their sign for sure."""
        slope, off = step.slope if step.curve == "leaky" else 0.0, self.off[step.source]
        start, end = values[self.first], values[self.second]
        below, above = np.maximum(-np.minimum(start, end), 0.0), np.maximum(np.maximum(start, end), 0.0)
        rise = below + above
        bow = abs(1.0 - slope) * np.divide(below, rise, out=np.zeros_like(rise), where=rise > 0) * above
        either = max(1.0, abs(slope)) * off + bow * (1 + 16 * UNIT)
        positive, negative = np.minimum(start, end) >= off, np.maximum(start, end) <= -off
        grown = np.where(positive, off, np.where(negative, abs(slope) * off, either))
        # a leaky relu's product is rounded
        rounded = 4 * UNIT + CURVE * self.net.roundoff
        self.off[at] = grown + (rounded * (abs(slope) * below + off) if slope else 0.0)
        # Beyond a doubt, for a doubt may be a corner that an end already lies on; and at a place known well.
        known = (off <= SHARP * rise) | ~self.cut[:, None]
        where, neuron = np.nonzero((np.minimum(below, above) > off) & known)
        share = start[where, neuron] / (start[where, neuron] - end[where, neuron])
        cuts = self.left[where] + share * (self.right[where] - self.left[where])
        inside = (cuts > self.left[where]) & (cuts < self.right[where])
        self.cut[where[inside]] = True
        self.where.append(where[inside])
        self.cuts.append(cuts[inside])
