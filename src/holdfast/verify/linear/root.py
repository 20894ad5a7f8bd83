"""Bounds of every step over a box: intervals forward, then CROWN and alpha-CROWN at each activation."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch

from holdfast.graph.ir import Activation, FreeInputs, Net, Product, ScaleShift, Selection, sources_of
from holdfast.graph.lower.tidy import distinct
from holdfast.verify.linear.curves import ReluRelaxation, bend
from holdfast.verify.linear.passes import Region
from holdfast.verify.linear.pieces import LinearSteps
from holdfast.verify.linear.shapes import ProductRelaxation, product_range, span
from holdfast.verify.linear.tune import Queries, bound, tune
from holdfast.verify.rounding import curve_error, step_error

Tensor = Any
Finish: TypeAlias = Callable[[Region, Queries, float], Tensor]  # the last argument is a sufficient bound


@dataclass(frozen=True)
class Effort:
    """How much work goes into the bounds before activations."""

    iterations: int = 10
    decay: float = 0.85
    chunk_bytes: int = 256 << 20
    stop: Callable[[], bool] = lambda: False  # no more tuning
    abort: Callable[[], bool] = lambda: False  # no more passes: use intervals and the earlier bounds
    finish: Finish | None = None  # tightens the bounds of tuned queries further


def ball(pieces: LinearSteps, lower: Any, upper: Any) -> tuple[Tensor, Tensor]:
    """Centre and radius (1, n) that contain the box of the specification, rounded outward."""
    ends = ((lower, -np.inf), (upper, np.inf))
    low, high = (np.nextafter(np.asarray(end, np.float64), outward) for end, outward in ends)
    centre = pieces.tensor((low + high) / 2)
    middle = centre.double().numpy()
    radius = np.maximum(high - middle, middle - low) * (1 + 1e-12)
    narrow = pieces.tensor(radius)
    wide = torch.nextafter(narrow, torch.full_like(narrow, torch.inf))
    return centre.reshape(1, -1), wide.reshape(1, -1)


def bounds(
    pieces: LinearSteps, lower: Any, upper: Any, effort: Effort, earlier: Region | None = None
) -> Region:
    """Bounds of every step over the box and relaxations of activations; never worse than `earlier`."""
    centre, radius = ball(pieces, lower, upper)
    region = Region(pieces, centre, radius)
    region.lower[0], region.upper[0] = outward(centre - radius, centre + radius)
    depth, refined = {0: 0}, set[int]()
    for at, step in enumerate(pieces.net.steps):
        if isinstance(step, FreeInputs):
            continue
        # A box remains a box under elementwise scaling, so intervals are exact up to the next step.
        moved = isinstance(step, Selection) and len(step.sources) == 1 and distinct(step)
        depth[at] = max(depth[s] for s in sources_of(step)) + (not moved and not isinstance(step, ScaleShift))
        if not isinstance(step, Activation | Product):
            _set_bounds(region, at, step_range(region, at), earlier)
            continue
        for source in dict.fromkeys(sources_of(step)):
            if depth[source] > 1 and not effort.abort() and source not in refined:
                _refine(region, source, step, effort)
        refined.update(sources_of(step))
        if isinstance(step, Product):
            left, right = ((region.lower[s], region.upper[s]) for s in (step.left, step.right))
            region.bends[at] = ProductRelaxation(step, left, right)
        else:
            region.bends[at] = bend(step, region.lower[step.source], region.upper[step.source])
        _set_bounds(region, at, step_range(region, at), earlier)
    return region


def _set_bounds(region: Region, at: int, computed: tuple[Tensor, Tensor], earlier: Region | None) -> None:
    region.lower[at], region.upper[at] = computed
    if earlier is not None:
        region.lower[at] = torch.maximum(region.lower[at], earlier.lower[at])
        region.upper[at] = torch.minimum(region.upper[at], earlier.upper[at])


def step_range(region: Region, at: int) -> tuple[Tensor, Tensor]:
    """Bounds (q, n) of a step from those of its sources, by interval arithmetic, for q boxes at once."""
    net, step = region.pieces.net, region.pieces.net.steps[at]
    if not isinstance(step, Activation | Product):
        return interval(region.pieces, at, region)
    sides = [(region.lower[s], region.upper[s]) for s in sources_of(step)]
    ends = product_range(*sides) if isinstance(step, Product) else span(step, *sides[0])
    if not net.roundoff:
        return ends
    if isinstance(step, Activation):
        low, high = (curve_error(net, step, end.abs()) for end in ends)
    else:
        low, high = (step_error(net, step) * end.abs() for end in ends)
    return outward(ends[0] - low, ends[1] + high)


def behind(net: Net, top: int) -> list[int]:
    """The steps on which step `top` depends, itself included, in order."""
    reached = {top}
    for at in range(top, 0, -1):
        if at in reached:
            reached.update(sources_of(net.steps[at]))
    return sorted(reached)


def outward(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """Both bounds moved outward by one unit in the last place."""
    low = torch.nextafter(lower, torch.full_like(lower, -torch.inf))
    return low, torch.nextafter(upper, torch.full_like(upper, torch.inf))


def interval(pieces: LinearSteps, at: int, region: Region) -> tuple[Tensor, Tensor]:
    """Bounds (q, n) of a linear step from its sources' bounds, rounded outward."""
    sources = sources_of(pieces.net.steps[at])
    lower, upper = [region.lower[s] for s in sources], [region.upper[s] for s in sources]
    centres = [(low + high) / 2 for low, high in zip(lower, upper, strict=True)]
    radii = [torch.maximum(h - c, c - w) for w, h, c in zip(lower, upper, centres, strict=True)]
    bias = pieces.bias(at)
    middle = pieces.forward(at, centres)
    reach = pieces.mass(at, radii) - (0 if bias is None else bias.abs())
    unit = (pieces.terms(at) + 8) * 4 * pieces.unit + step_error(pieces.net, pieces.net.steps[at])
    slack = unit * pieces.mass(at, [region.largest(s) for s in sources])
    return middle - reach - slack, middle + reach + slack


def _refine(region: Region, source: int, step: Activation | Product, effort: Effort) -> None:
    """Bounds of an activation's source by backward passes, tuned where they do not yet decide its sign."""
    lower, upper = region.lower[source].clone(), region.upper[source].clone()
    hinge = isinstance(step, Activation) and step.curve in ("relu", "leaky", "sign")
    undecided = (lower[0] < 0) & (upper[0] > 0) if hinge else torch.ones_like(lower[0], dtype=torch.bool)
    index = undecided.nonzero().reshape(-1)
    if len(index):
        tight = _tightest(region, source, index, 1.0, hinge, effort)
        lower[0, index] = torch.maximum(lower[0, index], tight)
    if hinge:
        index = index[lower[0, index] < 0]
    if len(index):
        tight = _tightest(region, source, index, -1.0, hinge, effort)
        upper[0, index] = torch.minimum(upper[0, index], -tight)
    region.lower[source], region.upper[source] = lower, torch.maximum(upper, lower)


def _tightest(region: Region, source: int, index: Tensor, sign: float, hinge: bool, effort: Effort) -> Tensor:
    """Lower bounds of sign · source[index], tuned unless the first pass decides them."""
    pieces = region.pieces
    below = [at for at in behind(pieces.net, source) if at in region.bends]
    # About six values per neuron are alive at once: rows, lines and Adam's moments.
    share = max(8, effort.chunk_bytes // (24 * sum(pieces.sizes[: source + 1])))
    lower = []
    for part in index.split(share):
        if effort.abort():
            lower.append(torch.full((len(part),), -torch.inf, dtype=torch.float64))
            continue
        rows = torch.zeros(len(part), pieces.sizes[source], dtype=pieces.dtype)
        rows[torch.arange(len(part)), part] = sign
        theta = {at: region.bends[at].start(len(part)) for at in below}
        queries = Queries(source, rows, theta)
        goal = 0.0 if hinge else float("inf")
        if effort.iterations and not effort.stop():
            turns, decay = effort.iterations, effort.decay
            queries = tune(region, queries, turns, 0.3, decay, goal=goal, stop=effort.stop)[1]
        if effort.finish is None:
            lower.append(bound(region, queries, careful=True).lower)
        else:
            lower.append(effort.finish(region, queries, goal))
    result = torch.cat(lower)
    return torch.nextafter(result.to(pieces.dtype), torch.full_like(result, -torch.inf, dtype=pieces.dtype))


def unstable(region: Region) -> int:
    """How many neurons have an undecided sign."""
    return sum(len(b.index) for b in region.bends.values() if isinstance(b, ReluRelaxation))
