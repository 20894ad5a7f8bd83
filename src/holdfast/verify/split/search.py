"""Branch and bound over boxes of inputs, many at a time, for nets of few inputs and any kind of step."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from holdfast.graph.ir import Conv, Dense, Net
from holdfast.graph.torch import TorchNet
from holdfast.verify.domain import first_float, last_float
from holdfast.verify.linear.pieces import full_precision
from holdfast.verify.problem import Answer, Case, Clock, OutOfTime, Problem
from holdfast.verify.split.back import Plane, along, backward, between
from holdfast.verify.split.boxes import Boxes, clipped, halved, joined
from holdfast.verify.split.forms import Form, Machine, Passed, forward, start
from holdfast.verify.split.goal import Mix, blended, excess, goals_of, mixed, stacked

Tensor = Any
ENGINE = "input splitting"
SURE = 2e-4  # a margin above this is not improved any more: float32 runtimes differ by less
MOST_WORK = 1 << 29  # operations of one batch: well below a second
MOST_ALONE = 1 << 32  # of one box
SLOW = 0.7  # seconds after which batches are halved: the clock is looked at between them
MOST_BOXES = 2048
REPLAYED = 16  # points of one batch that are replayed at most
NEAR = 1e-6  # a point this near, as a part of the bounds, is replayed: float32 runtimes differ by as much
MOST_OPEN = 1 << 20  # boxes waiting, at most


def search(problem: Problem, clock: Clock) -> Answer:
    """Whether a case can be met, by halving boxes of inputs; else what was reached.

    "holds" is proven for every evaluation of the net's `roundoff`, all rounding of the proof accounted for.
    """
    cases = [case for case in problem.cases if (case.lower <= case.upper).all()]
    if not cases:
        return Answer("holds", ENGINE, note="no case has a point")
    if not problem.net.inputs:
        return Answer("unknown", ENGINE, note="there is no input to split")
    if _too_large(problem.net, max(len(case.bound) for case in cases), clock.budget.memory_bytes):
        return Answer("unknown", ENGINE, note="the net is too large for boxes by the thousand")
    torch.set_num_threads(max(1, clock.budget.jobs))
    with torch.no_grad(), full_precision():
        under_way = _Search(problem, cases, clock)
        try:
            return under_way.run()
        except OutOfTime:
            note = f"{under_way.seen:,} boxes; the time was up within a pass over the network"
            return Answer("timeout", ENGINE, note=note)


@dataclass(frozen=True, eq=False)
class Bounded:
    """Pairs of box and case still open: their bounds, planes, and what each input of a box may gain."""

    box: Tensor
    case: Tensor
    mix: Mix
    base: Tensor
    slopes: Tensor
    loss: Tensor


class _Search:
    """A search under way."""

    def __init__(self, problem: Problem, cases: Sequence[Case], clock: Clock) -> None:
        self.problem, self.cases, self.clock = problem, cases, clock
        self.machine = Machine(problem.net, clock.check)
        self.net = TorchNet(problem.net, torch.float64)
        self.goals = goals_of(cases)
        self.first, self.last = (
            torch.as_tensor(np.stack(ends).astype(np.float64))
            for ends in (
                [first_float(c.lower, problem.dtype) for c in cases],
                [last_float(c.upper, problem.dtype) for c in cases],
            )
        )
        self.margin, self.worst, self.parked, self.seen = math.inf, math.inf, 0, 0
        self.size = _batch(problem.net, self.goals.rows.shape[1], clock.budget.memory_bytes)
        self.floor = torch.as_tensor(_floor(cases))
        bound = self.goals.bound.abs()
        self.near = NEAR * (1 + float(bound[bound.isfinite()].max()))

    def run(self) -> Answer:
        """The answer once no box is open, or the time is up."""
        stack = [Boxes.of(self.cases)]
        while stack:
            batch = stack.pop()
            if len(batch) > self.size:
                stack.append(batch.part(slice(len(batch) - self.size)))
                batch = batch.part(slice(len(batch) - self.size, None))
            open_ = sum(map(len, stack)) + len(batch)
            if self.late() or open_ > MOST_OPEN:
                status = "timeout" if self.late() else "unknown"
                note = f"{self.seen:,} boxes, {open_:,} open"
                return Answer(status, ENGINE, margin=self.worst, note=note)  # type: ignore[arg-type]
            begun = time.monotonic()
            witness, rest = self.step(batch, open_ - len(batch))
            if time.monotonic() - begun > SLOW:
                self.size = max(1, len(batch) // 2)
            if witness is not None:
                return Answer("violated", ENGINE, witness, note=f"{self.seen:,} boxes")
            if len(rest):
                stack.append(rest)
                if len(stack) > 1 and len(stack[-2]) + len(rest) <= self.size:
                    stack[-2:] = [joined(stack[-2], rest)]
            self.clock.tell("splitting inputs", sum(map(len, stack)), self.worst)
        if self.parked:
            note = f"{self.parked:,} of {self.seen:,} boxes cannot be split any more"
            return Answer("unknown", ENGINE, margin=self.worst, note=note, at_limit=True)
        margin = self.margin if math.isfinite(self.margin) else None
        return Answer("holds", ENGINE, margin=margin, note=f"{self.seen:,} boxes")

    def late(self) -> bool:
        """Whether the time is up."""
        return self.clock.left < 0.2

    def step(self, batch: Boxes, waiting: int) -> tuple[NDArray[Any] | None, Boxes]:
        """A witness met on the way, and the halves of what is still open."""
        self.seen += len(batch)
        given = start(batch.lower, batch.upper)
        passed = forward(self.machine, given)
        box, case = batch.box, batch.case
        middle = excess(self.goals, case, given.middle[box], self.net(given.middle)[box])
        sure = torch.minimum(torch.full_like(middle, SURE), 1e-3 * middle.abs())
        sure = torch.where(sure.isnan(), torch.full_like(sure, SURE), sure)
        found, left = self.bounded(given, passed, batch, sure)
        fixed = ~((batch.upper - batch.lower) > self.floor).any(1)
        done = (found.mix.lower > 0) & fixed[found.box]
        if bool(done.any()):
            self.margin = min(self.margin, float(found.mix.lower[done].min()))
        self.parked += int((fixed[found.box] & ~done).sum())
        if not len(found.box):
            return None, batch.part(slice(0))
        self.worst = float(found.mix.lower.min())
        witness = self.met(given, found)
        going = ~fixed[found.box]
        pairs = going.nonzero().reshape(-1)
        if witness is not None or not len(pairs):
            return witness, batch.part(slice(0))
        # What is clipped away exceeds its case by so much; the margin is not more than that.
        kept_off = sure[left[pairs]]
        self.margin = min(self.margin, float(kept_off.min()))
        rest = clipped(batch, left[pairs], found.base[pairs] - kept_off[:, None], found.slopes[pairs])
        score = found.loss.index_add(0, found.box, found.mix.slopes.abs())
        lowest = torch.full((len(batch),), torch.inf, dtype=torch.float64)
        lowest = lowest.scatter_reduce(0, found.box, found.mix.lower, "amin")
        kept = torch.unique(found.box[pairs])
        times = max(1, min(3, int(math.log2(max(2.0, self.size / (1 + waiting + len(kept)))))))
        return None, halved(rest, score[kept], lowest[kept], self.floor, times)

    def bounded(self, given: Form, passed: Passed, batch: Boxes, sure: Tensor) -> tuple[Bounded, Tensor]:
        """The pairs that stay open, with their numbers in the batch: cheap planes first, then a pass back."""
        planes = [
            plane(given, passed.output, *self.asked(batch.box, batch.case)) for plane in (along, between)
        ]
        base, slopes = stacked(planes, self.goals.bound[batch.case])
        left = self.opened(mixed(base, slopes).lower, sure)
        box, case = batch.box[left], batch.case[left]
        if not len(left):
            return self.none(given), left
        back = backward(self.machine, given, passed, *self.asked(box, case))
        more = stacked([back], self.goals.bound[case])
        base, slopes = torch.cat([base[left], more[0]], 1), torch.cat([slopes[left], more[1]], 1)
        mix = mixed(base, slopes)
        still = self.opened(mix.lower, sure[left])
        found = Bounded(box[still], case[still], mix.pick(still), base[still], slopes[still], back.loss)
        if self.goals.rows.shape[1] == 1 or not len(still):
            return found, left[still]
        again, open_ = self.again(given, passed, found, sure[left[still]])
        return again, left[still][open_]

    def again(self, given: Form, passed: Passed, found: Bounded, sure: Tensor) -> tuple[Bounded, Tensor]:
        """The same after one more pass back, for the best mix of rows: tighter than a mix of passes."""
        case, box = found.case, found.box
        weight = found.mix.weight.reshape(len(case), -1, self.goals.rows.shape[1]).sum(1)
        size = torch.cat([passed.output.size, given.size], 1)[box]
        rows, over, bound, doubt = blended(self.goals, case, weight, size)
        back = backward(self.machine, given, passed, box, rows, over)
        tight = Plane(back.base - doubt, back.slopes, back.loss)
        base, slopes = stacked([tight], bound[:, None])
        base, slopes = torch.cat([found.base, base], 1), torch.cat([found.slopes, slopes], 1)
        alone = mixed(base[:, -1:], slopes[:, -1:])
        better = alone.lower > found.mix.lower
        mix = Mix(
            torch.where(better, alone.lower, found.mix.lower),
            found.mix.weight,
            torch.where(better[:, None], alone.slopes, found.mix.slopes),
        )
        open_ = self.opened(mix.lower, sure)
        return Bounded(box[open_], case[open_], mix.pick(open_), base[open_], slopes[open_], back.loss), open_

    def asked(self, box: Tensor, case: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The box, the rows and the input rows of every row of these pairs."""
        many = self.goals.rows.shape[1]
        rows, over = self.goals.rows[case].flatten(0, 1), self.goals.over[case].flatten(0, 1)
        return box.repeat_interleave(many), rows, over

    def opened(self, lower: Tensor, sure: Tensor) -> Tensor:
        """The numbers of bounds that do not settle their pair; the least margin of the others is kept."""
        done = lower > sure
        if bool(done.any()):
            self.margin = min(self.margin, float(lower[done].min()))
        return (~done).nonzero().reshape(-1)

    def none(self, given: Form) -> Bounded:
        """No pair at all."""
        empty, flat = torch.zeros(0, dtype=torch.int64), given.middle[:0]
        mix = Mix(flat[:, :0].sum(1), flat, flat)
        return Bounded(empty, empty, mix, flat, flat[:, None], torch.zeros_like(given.middle))

    def met(self, given: Form, found: Bounded) -> NDArray[Any] | None:
        """A replayed witness among the middles of boxes and the corners where their bounds are least."""
        radius = given.slopes.diagonal(dim1=1, dim2=2)[found.box]
        middle = given.middle[found.box]
        points = torch.cat([middle - found.mix.slopes.sign() * radius, middle])
        case = torch.cat([found.case, found.case])
        low, high = self.first[case], self.last[case]
        rounded = torch.as_tensor(points.numpy().astype(self.problem.dtype).astype(np.float64))
        points = torch.minimum(torch.maximum(rounded, low), high)
        worst = excess(self.goals, case, points, self.net(points))
        near = ((worst <= self.near) & (low <= high).all(1)).nonzero().reshape(-1)
        near = near[worst[near].argsort()[:REPLAYED]]
        if not len(near):
            return None
        tried = points[near].numpy().astype(self.problem.dtype)
        hit = np.flatnonzero(self.problem.violates(tried))
        if len(hit):
            witness: NDArray[Any] = tried[hit[0]].copy()
            return witness
        self.near = min(self.near, float(worst[near].min()) - NEAR)  # only deeper ones are worth a replay
        return None


def _floor(cases: Sequence[Case]) -> NDArray[np.float64]:
    """The width below which an input is not split any more."""
    lower, upper = np.min([c.lower for c in cases], 0), np.max([c.upper for c in cases], 0)
    size = np.maximum(np.abs(lower), np.abs(upper))
    floor: NDArray[np.float64] = 1e-9 * (upper - lower) + 1e-14 * size + 1e-300
    return floor


def _passes(net: Net, rows: int) -> int:
    """About how many times one box passes the net."""
    return net.inputs + 3 + 2 * rows


def _values(net: Net) -> int:
    return sum(prod(step.shape) for step in net.steps)


def _batch(net: Net, rows: int, memory: int) -> int:
    """How many boxes are looked at together."""
    room = memory // 8 // (8 * (2 * net.inputs + 8 + 4 * rows) * _values(net))
    return max(1, min(MOST_WORK // (_passes(net, rows) * _work(net)), room, MOST_BOXES))


def _work(net: Net) -> int:
    """The operations of one pass of one box."""
    work = 16 * _values(net)
    for step in net.steps:
        if isinstance(step, Dense):
            work += step.weight.size
        elif isinstance(step, Conv):
            work += prod(step.shape) * prod(step.weight.shape[1:])
    return work


def _too_large(net: Net, rows: int, memory: int) -> bool:
    """Whether one box alone would take seconds, or the weights in float64 most of the memory."""
    weights = sum(step.weight.size for step in net.steps if isinstance(step, Dense | Conv))
    return _passes(net, rows) * _work(net) > MOST_ALONE or 4 * 8 * weights > memory // 2
