"""The search for a counterexample: random points, corners, and gradient descent on the output constraints.

Every point lies inside the box from the start, so the point that is found is the one that is replayed.
Cases are attacked together in one batch: all of them in one round, the nearest few in the next.

An inactive relu blocks the gradient, and on nets with many of them plain descent stalls on a plateau. In
each batch the gradient therefore leaks through inactive relus, with a different share for every point. The
share decreases towards the end of the descent, where the gradient is exact.
"""

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import cos, pi, prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holdfast.graph.ir import Conv
from holdfast.graph.torch import TorchNet
from holdfast.verify.linear.pieces import threads
from holdfast.verify.problem import Case, Deadline, EngineResult, VerificationProblem, products, stacked_rows
from holdfast.verify.rounding import NEAR, REPLAYED

ENGINE = "attack"
FEW = 3  # cases that the narrow rounds attack
MOST_LEAK = 0.2
EXACT = 0.8  # the share of a descent after which the gradient does not leak
MOST_POINTS = 400  # in one batch
MOST_VALUES = 1 << 25  # of all steps, or of all rows, in one batch
MOST_WORK = 1 << 32  # multiply-adds of one batch forward: well below a second


@dataclass(frozen=True, eq=False)
class Targets:
    """Boxes (g, n) with corners of the input's type; for each of c cases its box and its rows."""

    low: Tensor
    high: Tensor
    box: Tensor  # (c,)
    rows: Tensor  # (c, r, k)
    bound: Tensor  # (c, r), inf where a case has fewer rows
    inputs: Tensor | None  # (c, r, n)

    def __len__(self) -> int:
        return len(self.box)

    def bounds(self, which: Tensor) -> tuple[Tensor, Tensor]:
        """The corners (b, n) of these cases' boxes."""
        return self.low[self.box[which]], self.high[self.box[which]]

    def excess(self, outputs: Tensor, points: Tensor, which: Tensor) -> Tensor:
        """Excess of each row of its case over the bound, (b, r); the case is met if none is positive."""
        values = torch.einsum("brk,bk->br", self.rows[which], outputs)
        if self.inputs is not None:
            values = values + torch.einsum("brn,bn->br", self.inputs[which], points)
        return values - self.bound[which]


def targets_of(cases: Sequence[Case], dtype: np.dtype[Any] | type = np.float32) -> Targets | None:
    """The cases with a point of the input's type in their box, as float64 or float32; None if none has."""
    working = np.float64 if np.dtype(dtype) == np.float64 else np.float32
    firsts: dict[int, Case] = {}
    for case in cases:
        firsts.setdefault(id(case.lower), case)
    boxes = {key: number for number, key in enumerate(firsts)}
    corners = [case.ends(dtype) for case in firsts.values()]
    possible = [bool((low <= high).all()) for low, high in corners]
    nonempty = [case for case in cases if possible[boxes[id(case.lower)]]]
    if not nonempty:
        return None
    rows, inputs, bound = stacked_rows(nonempty)
    # A repeated row, used as padding, is always met.
    bound[np.arange(bound.shape[1]) >= [[max(1, len(case.bound))] for case in nonempty]] = np.inf
    ends = (np.stack(end) for end in zip(*corners, strict=True))
    low, high, rows, bound = (torch.tensor(value.astype(working)) for value in (*ends, rows, bound))
    box = torch.tensor([boxes[id(case.lower)] for case in nonempty])
    inputs = None if inputs is None else torch.tensor(inputs.astype(working))
    return Targets(low, high, box, rows, bound, inputs)


@dataclass(frozen=True)
class DescentSettings:
    """Settings of a descent: steps, the first one in half widths of the box, and by which rule."""

    steps: int
    first: float
    momentum: float  # of the sign of the gradient
    adam: bool = False  # Adam instead of the sign: slower, but more precise for few inputs
    all_rows: bool = False  # descend along every violated row, not only the worst one

    def size(self, done: float) -> float:
        """The length of the step after this part of the descent."""
        return self.first * 0.5 * (1.0 + cos(pi * done)) + (0.0005 if self.adam else 0.005)


PACES = (  # an odd number: each takes its turn with all cases and with the nearest few
    DescentSettings(20, 1.0, 0.75),
    DescentSettings(30, 2.0, 0.0),
    DescentSettings(60, 0.1, 0.0, adam=True, all_rows=True),
    DescentSettings(40, 1.0, 0.0),
    DescentSettings(40, 0.5, 0.75, all_rows=True),
    DescentSettings(100, 0.1, 0.0, adam=True),
    DescentSettings(80, 1.0, 0.75),
)


def falsify(
    problem: VerificationProblem, clock: Deadline, seconds: float, rng: np.random.Generator
) -> EngineResult:
    """Search for a counterexample for `seconds`; return it replayed, or unknown."""
    until = time.monotonic() + min(seconds, clock.left)
    targets = targets_of(problem.cases, problem.dtype)
    if targets is None:
        note = f"no {problem.dtype.name} value is in the box of any case"
        return EngineResult("unknown", ENGINE, note=note)
    search = CounterexampleSearch(problem, targets, clock, until, int(rng.integers(1 << 62)))
    # For small products a second thread costs more than it saves.
    with threads(clock.budget.jobs if any(isinstance(s, Conv) for s in problem.net.steps) else 1):
        witness = search.sampled()
        for number in itertools.count():
            if witness is not None or search.late():
                break
            witness = search.round(number)
    if witness is not None:
        return EngineResult("violated", ENGINE, witness, note=f"point {search.evaluated:,}")
    note = f"{search.evaluated:,} points tried, the nearest one misses by {float(search.best.min()):.3g}"
    return EngineResult("unknown", ENGINE, note=note)


class CounterexampleSearch:
    """A running search: the lowest value so far and its point, for every case."""

    def __init__(
        self, problem: VerificationProblem, targets: Targets, clock: Deadline, until: float, seed: int
    ) -> None:
        self.problem, self.targets, self.clock, self.until = problem, targets, clock, until
        self.net = TorchNet(problem.net, targets.low.dtype)
        self.noise = torch.Generator().manual_seed(seed)
        self.best = np.full(len(targets), np.inf, np.float32)
        self.point = targets.low[targets.box].clone()
        bounds = targets.bound.where(targets.bound.isfinite(), 0.0)
        self.limit = NEAR * (1.0 + float(bounds.abs().max()))
        self.evaluated = 0
        rows = sum(value[0].numel() for value in (targets.rows, targets.inputs) if value is not None)
        values = max(sum(prod(step.shape) for step in problem.net.steps), rows)
        # depends on sizes, not on time: the seed determines the search
        self.size = max(1, min(MOST_VALUES // values, MOST_WORK // (1 + products(problem.net)), MOST_POINTS))

    def late(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() >= self.until

    def sampled(self) -> NDArray[Any] | None:
        """A witness among the middle, random corners and random points of every case."""
        cases = torch.arange(len(self.targets))
        for kind in ("middle", "corner", "inside"):
            for part in cases.split(self.size):
                which = part if kind == "middle" else part.repeat(max(1, self.size // len(part)))
                with torch.no_grad():
                    points = self.start(which, kind)
                    witness = self.judged(points, which, self.excess(points, which).amax(dim=1))
                if witness is not None or self.late():
                    return witness
        return None

    def excess(self, points: Tensor, which: Tensor, leak: Tensor | None = None) -> Tensor:
        """How much the points exceed each row of their cases."""
        return self.targets.excess(self.net(points, leak), points, which)

    def start(self, which: Tensor, kind: str) -> Tensor:
        """Points of these cases: the middle of the box, corners, anywhere, or around the best one so far."""
        low, high = self.targets.bounds(which)
        if kind == "middle":
            return (low + (high - low) / 2).clamp(low, high)
        share = torch.rand(low.shape, generator=self.noise, dtype=low.dtype)
        if kind == "corner":
            return torch.where(share < 0.5, low, high)
        if kind == "inside":
            return (low + (high - low) * share).clamp(low, high)
        return (self.point[which] + (high - low) * (share - 0.5) * 0.2).clamp(low, high)

    def round(self, number: int) -> NDArray[Any] | None:
        """A witness found by one descent, over all cases or over the nearest few."""
        self.clock.tell(ENGINE, len(self.targets), float(self.best.min()))
        if number % 2:
            which = torch.tensor(np.argsort(self.best)[:FEW].copy())
        else:
            which = torch.randperm(len(self.targets), generator=self.noise)
        which = which[: self.size].repeat(max(1, self.size // len(which)))
        kind = ("inside", "inside", "corner", "best")[number % 4]
        leaks = MOST_LEAK * torch.rand((len(which), 1), generator=self.noise, dtype=self.net.dtype) ** 2
        return self._descent(self.start(which, kind), which, leaks, PACES[number % len(PACES)])

    def _descent(
        self, points: Tensor, which: Tensor, leaks: Tensor, pace: DescentSettings
    ) -> NDArray[Any] | None:
        low, high = self.targets.bounds(which)
        half = (high - low) / 2
        mean, square = torch.zeros_like(points), torch.zeros_like(points)
        for step in range(pace.steps + 1):
            done = step / pace.steps
            points = points.detach().requires_grad_()
            excess = self.excess(points, which, leaks * (1.0 - done / EXACT) if done < EXACT else None)
            worst = excess.amax(dim=1)
            aim = excess.clamp(min=0.0).sum(dim=1) + worst if pace.all_rows else worst
            (slope,) = torch.autograd.grad(aim.sum(), points)
            points = points.detach()
            witness = self.judged(points, which, worst.detach())
            if witness is not None or self.late():
                return witness
            slope = slope.nan_to_num(0.0, 0.0, 0.0) * half
            if pace.adam:
                mean, square = 0.9 * mean + 0.1 * slope, 0.99 * square + 0.01 * slope**2
                usual = (square / (1.0 - 0.99 ** (step + 1))).sqrt() + 1e-12
                move = mean / (1.0 - 0.9 ** (step + 1)) / usual
            else:
                mean = pace.momentum * mean + slope / slope.abs().mean(dim=1, keepdim=True).clamp(min=1e-30)
                move = mean.sign()
            points = (points - pace.size(done) * half * move).clamp(low, high)
        return None

    def judged(self, points: Tensor, which: Tensor, worst: Tensor) -> NDArray[Any] | None:
        """Record the best point of each case; return a replayed witness among the points, if any."""
        self.evaluated += len(points)
        values = worst.nan_to_num(torch.inf, torch.inf, torch.inf).numpy()  # no witness is infinite
        cases = which.numpy()
        order = np.argsort(values, kind="stable")
        touched, first = np.unique(cases[order], return_index=True)
        lowest = order[first]
        better = values[lowest] < self.best[touched]
        self.best[touched[better]] = values[lowest[better]]
        self.point[torch.tensor(touched[better])] = points[torch.tensor(lowest[better])]
        near = order[:REPLAYED]
        near = near[values[near] <= self.limit]
        if not len(near):
            return None
        witness = self.problem.witness(points[torch.tensor(near)].numpy())
        if witness is None:
            # torch and ONNX Runtime differ here: replay only points with a larger violation
            deepest = float(values[near[0]])
            self.limit = deepest - max(abs(deepest), NEAR)
        return witness
