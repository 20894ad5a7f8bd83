"""Interval bounds of a net over many boxes at once, with its last linear steps taken together.

Intervals are loose, but need no more than three evaluations of the net for a whole batch of boxes. They are
computed in float64. If the net has a `roundoff`, they hold for every evaluation in its precision.
"""

from typing import Any

import numpy as np
import torch

from holdfast.graph.ir import Activation, Array, FreeInputs, Net, Product, sources_of
from holdfast.verify.linear.passes import Region
from holdfast.verify.linear.pieces import LinearSteps
from holdfast.verify.linear.root import outward, step_range
from holdfast.verify.rounding import MERGED, UNIT, gamma, step_error

Tensor = Any


def exact_steps(net: Net) -> LinearSteps:
    """The linear steps of a net in float64."""
    return LinearSteps(net, torch.float64)


def intervals(pieces: LinearSteps, lower: Array, upper: Array) -> Region:
    """Bounds (q, n) of every step over boxes with these corners (q, inputs)."""
    low, high = torch.as_tensor(lower), torch.as_tensor(upper)
    region = Region(pieces, (low + high) / 2, (high - low) / 2)
    region.lower[0], region.upper[0] = outward(low, high)
    for at, step in enumerate(pieces.net.steps):
        if not isinstance(step, FreeInputs):
            region.lower[at], region.upper[at] = step_range(region, at)
    return region


def least_values(region: Region, rows: Array) -> Array:
    """Lower bounds (q, m) of rows (m, k) · outputs over each box.

    The linear steps after the last activations are applied to the rows, not to intervals: outputs that depend
    on the same neurons are bounded together.
    """
    pieces, steps = region.pieces, region.pieces.net.steps
    top = len(steps) - 1
    pending = {top: torch.as_tensor(rows)}
    lower = torch.zeros(len(region.lower[top]), len(rows), dtype=torch.float64)
    slack = torch.zeros_like(lower)
    for at in range(top, -1, -1):
        if at not in pending:
            continue
        now, step = pending.pop(at), steps[at]
        constants = gamma(pieces.sizes[at] + len(steps) + MERGED, UNIT)
        if isinstance(step, Activation | Product | FreeInputs):
            low, high = region.lower[at], region.upper[at]
            middle = (low + high) / 2
            reach = torch.maximum(high - middle, middle - low)
            lower += middle @ now.T - reach @ now.abs().T
            slack += 4 * constants * (region.largest(at) @ now.abs().T)
            continue
        counted = gamma(pieces.terms(at) + pieces.joins[at] + 4, pieces.unit) + constants
        mass = pieces.mass(at, [region.largest(s) for s in sources_of(step)])
        slack += (counted + step_error(pieces.net, step)) * (mass @ now.abs().T)
        if (bias := pieces.bias(at)) is not None:
            lower += now @ bias
        for source, part in zip(sources_of(step), pieces.backward(at, now), strict=True):
            pending[source] = pending[source] + part if source in pending else part
    least: Array = (lower - 1.01 * slack).numpy()
    return np.where(np.isnan(least), -np.inf, least)
