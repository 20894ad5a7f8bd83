"""Branch and bound over boxes of inputs, many at a time, for nets of few inputs and any kind of step."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from holdfast.graph.ir import Conv, Dense, Net
from holdfast.graph.torch import TorchNet
from holdfast.verify.linear.pieces import full_precision, threads
from holdfast.verify.problem import (
    Case,
    Deadline,
    EngineResult,
    OutOfTime,
    VerificationProblem,
    narrowest,
    products,
    same_box,
)
from holdfast.verify.rounding import NEAR, REPLAYED, SURE, UNIT
from holdfast.verify.split.forms import AffineForm, FormBounds, ForwardPass, forward, start
from holdfast.verify.split.planes import CaseBounds, CaseRows, Plane, along, backward, between, mixed, stacked

Tensor = Any
Witness: TypeAlias = NDArray[Any] | None
ENGINE = "input splitting"
MOST_WORK = 1 << 29  # operations of one batch: well below a second
MOST_ALONE = 1 << 32  # of one box
SLOW = 0.7  # batches that take longer are halved; the deadline is checked between batches
MOST_BOXES = 2048
MOST_OPEN = 1 << 20  # boxes waiting, at most
OUTWARD = 1e-9  # in half widths: far more than the rounding of a clip
LEAST = 1e-290  # smaller slopes have lost digits and are not used to clip


@dataclass(frozen=True, eq=False)
class BoxBatch:
    """Corners (b, d) of boxes, and p pairs of a box and a case that is open on it, ordered by box."""

    lower: Tensor
    upper: Tensor
    box: Tensor
    case: Tensor

    @classmethod
    def of(cls, cases: Sequence[Case]) -> BoxBatch:
        """The boxes of the cases, one unit in the last place wider; cases of equal boxes share one."""
        groups = same_box(cases)
        firsts = [cases[group[0]] for group in groups]
        lower = np.nextafter(np.stack([case.lower for case in firsts]), -np.inf)
        upper = np.nextafter(np.stack([case.upper for case in firsts]), np.inf)
        box = np.repeat(np.arange(len(firsts)), [len(group) for group in groups])
        members = np.concatenate(groups)
        return cls(*(torch.as_tensor(value) for value in (lower, upper, box, members)))

    def __len__(self) -> int:
        return len(self.lower)

    def part(self, which: slice) -> BoxBatch:
        """A slice of the boxes, with their pairs."""
        first, last, _ = which.indices(len(self))
        own = (self.box >= first) & (self.box < last)
        return BoxBatch(self.lower[first:last], self.upper[first:last], self.box[own] - first, self.case[own])


def joined(one: BoxBatch, other: BoxBatch) -> BoxBatch:
    """The boxes of both."""
    box, case = torch.cat([one.box, other.box + len(one)]), torch.cat([one.case, other.case])
    return BoxBatch(torch.cat([one.lower, other.lower]), torch.cat([one.upper, other.upper]), box, case)


def clipped(boxes: BoxBatch, pairs: Tensor, base: Tensor, slopes: Tensor) -> BoxBatch:
    """The boxes that have one of these pairs, without parts where a plane of each of theirs is positive.

    A pair is met only where base + slopes t <= 0 for all its planes (m,), (m, d). Minimising over the other
    inputs gives a bound for each t.
    """
    box, case = boxes.box[pairs], boxes.case[pairs]
    size = slopes.abs()
    reach = size.sum(2)
    # Add the rounding of the sum before dividing by a small slope.
    margin = reach - base + 8 * (size.shape[2] + 2) * UNIT * (reach + base.abs())
    room = margin[:, :, None] / size - 1.0 + OUTWARD
    room = torch.where((size > LEAST) & room.isfinite(), room.clamp(-1.0, 1.0), torch.ones_like(room))
    ones = torch.ones_like(room)
    high = torch.where(slopes > 0, room, ones).amin(1)
    low = -torch.where(slopes < 0, room, ones).amin(1)
    open_boxes, number = torch.unique(box, return_inverse=True)
    where = number[:, None].expand_as(high)
    most = high.new_full((len(open_boxes), high.shape[1]), -1.0).scatter_reduce(0, where, high, "amax")
    least = low.new_full((len(open_boxes), low.shape[1]), 1.0).scatter_reduce(0, where, low, "amin")
    lower, upper = boxes.lower[open_boxes], boxes.upper[open_boxes]
    centre, radius = (lower + upper) / 2, (upper - lower) / 2
    # Rounded outward: a part of the width, and a unit of where the box lies.
    room = OUTWARD * radius + 4e-16 * (lower.abs() + upper.abs())
    lower_clipped = torch.maximum(lower, centre + radius * least - room)
    upper_clipped = torch.minimum(upper, centre + radius * most + room)
    empty = lower_clipped > upper_clipped  # no point is met there: any box is valid
    lower, upper = (torch.where(empty, centre, end) for end in (lower_clipped, upper_clipped))
    return BoxBatch(lower, upper, number, case)


def halved(boxes: BoxBatch, score: Tensor, lowest: Tensor, floor: Tensor, times: int) -> BoxBatch:
    """The boxes cut in two as often, each along the input of the largest score (b, d); worst bounds last."""
    order = lowest.argsort(descending=True)
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order))
    now = BoxBatch(boxes.lower[order], boxes.upper[order], place[boxes.box], boxes.case)
    score = score[order].nan_to_num(0.0, 0.0, 0.0) + 1e-300
    for _ in range(times):
        now, score = _twice(now, score, floor)
    by_box = now.box.argsort(stable=True)
    return BoxBatch(now.lower, now.upper, now.box[by_box], now.case[by_box])


def _twice(boxes: BoxBatch, score: Tensor, floor: Tensor) -> tuple[BoxBatch, Tensor]:
    width = boxes.upper - boxes.lower
    wide = width > floor
    # Without a score, the widest side relative to its floor.
    axis = torch.where(wide, score + 1e-12 * score.amax(1, keepdim=True) * width / floor, -1.0).argmax(1)
    each = torch.arange(len(boxes))
    able = wide.any(1)
    middle = (boxes.lower[each, axis] + boxes.upper[each, axis]) / 2
    lower, upper = boxes.lower.clone(), boxes.upper.clone()
    upper[each, axis] = middle
    lower[each, axis] = middle
    first, second = torch.where(able[:, None], upper, boxes.upper), lower[able]
    number = torch.cumsum(able, 0) - 1
    again = able[boxes.box]
    score = score.clone()
    score[each, axis] /= 2
    first_halves = BoxBatch(boxes.lower, first, boxes.box, boxes.case)
    others = BoxBatch(second, boxes.upper[able], number[boxes.box[again]], boxes.case[again])
    return joined(first_halves, others), torch.cat([score, score[able]])


def search(problem: VerificationProblem, clock: Deadline) -> EngineResult:
    """Whether a case can be met, by halving boxes of inputs; otherwise the bound reached.

    "holds" is proven for every evaluation of the net's `roundoff`, all rounding of the proof accounted for.
    """
    cases = [case for case in problem.cases if (case.lower <= case.upper).all()]
    if not cases:
        return EngineResult("holds", ENGINE, note="every case is empty")
    if not problem.net.inputs:
        return EngineResult("unknown", ENGINE, note="there is no free input to split")
    # One box alone would take seconds, or the weights in float64 most of the memory.
    weights = sum(step.weight.size for step in problem.net.steps if isinstance(step, Dense | Conv))
    work = _work(problem.net, max(len(case.bound) for case in cases))
    if work > MOST_ALONE or 4 * 8 * weights > clock.budget.memory_bytes // 2:
        return EngineResult("unknown", ENGINE, note="the network is too large for input splitting")
    with threads(clock.budget.jobs), torch.no_grad(), full_precision():
        under_way = _Search(problem, cases, clock)
        try:
            return under_way.run()
        except OutOfTime:
            note = f"{under_way.visited:,} boxes; the time limit was reached within one pass over the network"
            return EngineResult("timeout", ENGINE, note=note)


@dataclass(frozen=True, eq=False)
class OpenPairs:
    """Open pairs, by number: their bounds, planes, and the loss attributed to each input of a box."""

    pair: Tensor
    mix: CaseBounds
    base: Tensor
    slopes: Tensor
    loss: Tensor


class _Search:
    """A running search."""

    def __init__(self, problem: VerificationProblem, cases: Sequence[Case], clock: Deadline) -> None:
        self.problem, self.cases, self.clock = problem, cases, clock
        self.machine = FormBounds(problem.net, clock.check)
        self.net = TorchNet(problem.net, torch.float64)
        self.goals = CaseRows.of(cases)
        ends = zip(*(case.ends(problem.dtype) for case in cases), strict=True)
        self.first, self.last = (torch.as_tensor(np.stack(end).astype(np.float64)) for end in ends)
        self.margin, self.worst, self.parked, self.visited = math.inf, math.inf, 0, 0
        self.size = _batch(problem.net, self.goals.rows.shape[1], clock.budget.memory_bytes)
        lowest, highest = np.min([c.lower for c in cases], 0), np.max([c.upper for c in cases], 0)
        self.floor = torch.as_tensor(narrowest(lowest, highest))
        bound = self.goals.bound.abs()
        self.near = NEAR * (1 + float(bound[bound.isfinite()].max()))

    def run(self) -> EngineResult:
        stack = [BoxBatch.of(self.cases)]
        while stack:
            batch = stack.pop()
            if len(batch) > self.size:
                stack.append(batch.part(slice(len(batch) - self.size)))
                batch = batch.part(slice(len(batch) - self.size, None))
            open_ = sum(map(len, stack)) + len(batch)
            late = self.clock.left < 0.2
            if late or open_ > MOST_OPEN:
                status = "timeout" if late else "unknown"
                note = f"{self.visited:,} boxes, {open_:,} open"
                return EngineResult(status, ENGINE, margin=self.worst, note=note)  # type: ignore[arg-type]
            begun = time.monotonic()
            witness, rest = self.step(batch, open_ - len(batch))
            if time.monotonic() - begun > SLOW:
                self.size = max(1, len(batch) // 2)
            if witness is not None:
                return EngineResult("violated", ENGINE, witness, note=f"{self.visited:,} boxes")
            if len(rest):
                stack.append(rest)
                if len(stack) > 1 and len(stack[-2]) + len(rest) <= self.size:
                    stack[-2:] = [joined(stack[-2], rest)]
            self.clock.tell("splitting inputs", sum(map(len, stack)), self.worst)
        if self.parked:
            note = f"{self.parked:,} of {self.visited:,} boxes cannot be split further"
            return EngineResult("unknown", ENGINE, margin=self.worst, note=note, at_limit=True)
        margin = self.margin if math.isfinite(self.margin) else None
        return EngineResult("holds", ENGINE, margin=margin, note=f"{self.visited:,} boxes")

    def step(self, batch: BoxBatch, waiting: int) -> tuple[Witness, BoxBatch]:
        """A witness, if one is found, and the halves of the open boxes."""
        self.visited += len(batch)
        inputs = start(batch.lower, batch.upper)
        passed = forward(self.machine, inputs)
        middle = self.goals.excess(batch.case, inputs.middle[batch.box], self.net(inputs.middle)[batch.box])
        sure = (1e-3 * middle.abs()).clamp(max=SURE).nan_to_num(SURE)
        open_pairs = self.bounded(inputs, passed, batch, sure)
        if open_pairs is None or not len(open_pairs.pair):
            return None, batch.part(slice(0))
        box, lower = batch.box[open_pairs.pair], open_pairs.mix.lower
        fixed = ~((batch.upper - batch.lower) > self.floor).any(1)[box]
        done = (lower > 0) & fixed
        if bool(done.any()):
            self.margin = min(self.margin, float(lower[done].min()))
        self.parked += int((fixed & ~done).sum())
        self.worst = float(lower.min())
        witness = self.find_witness(inputs, box, batch.case[open_pairs.pair], open_pairs.mix)
        pairs = (~fixed).nonzero().reshape(-1)
        if witness is not None or not len(pairs):
            return witness, batch.part(slice(0))
        # Clipped parts exceed their case by this much, so the margin is at most that.
        margin = sure[open_pairs.pair[pairs]]
        self.margin = min(self.margin, float(margin.min()))
        base, slopes = open_pairs.base[pairs] - margin[:, None], open_pairs.slopes[pairs]
        rest = clipped(batch, open_pairs.pair[pairs], base, slopes)
        score = open_pairs.loss.index_add(0, box, open_pairs.mix.slopes.abs())
        lowest = torch.full((len(batch),), torch.inf, dtype=torch.float64)
        lowest = lowest.scatter_reduce(0, box, lower, "amin")
        open_boxes = torch.unique(box[pairs])
        times = max(1, min(3, int(math.log2(max(2.0, self.size / (1 + waiting + len(open_boxes)))))))
        return None, halved(rest, score[open_boxes], lowest[open_boxes], self.floor, times)

    def bounded(
        self, inputs: AffineForm, passed: ForwardPass, batch: BoxBatch, sure: Tensor
    ) -> OpenPairs | None:
        """The pairs that stay open, if any: cheap planes first, then a backward pass."""
        row_queries = self.rows_of(batch.box, batch.case)
        planes = [plane(inputs, passed.output, *row_queries) for plane in (along, between)]
        base, slopes = stacked(planes, self.goals.bound[batch.case])
        open_index = self.open_pairs(mixed(base, slopes).lower, sure)
        if not len(open_index):
            return None
        box, case = batch.box[open_index], batch.case[open_index]
        back = backward(self.machine, inputs, passed, *self.rows_of(box, case))
        more = stacked([back], self.goals.bound[case])
        base, slopes = torch.cat([base[open_index], more[0]], 1), torch.cat([slopes[open_index], more[1]], 1)
        mix = mixed(base, slopes)
        still = self.open_pairs(mix.lower, sure[open_index])
        pairs = OpenPairs(open_index[still], mix.pick(still), base[still], slopes[still], back.loss)
        if self.goals.rows.shape[1] == 1 or not len(still):
            return pairs
        return self.again(inputs, passed, batch, pairs, sure[pairs.pair])

    def again(
        self, inputs: AffineForm, passed: ForwardPass, batch: BoxBatch, pairs: OpenPairs, sure: Tensor
    ) -> OpenPairs:
        """The pairs after one more backward pass for the best mix of rows, tighter than mixed passes."""
        case, box = batch.case[pairs.pair], batch.box[pairs.pair]
        weight = pairs.mix.weight.reshape(len(case), -1, self.goals.rows.shape[1]).sum(1)
        size = torch.cat([passed.output.size, inputs.size], 1)[box]
        rows, over, bound, doubt = self.goals.blend(case, weight, size)
        back = backward(self.machine, inputs, passed, box, rows, over)
        base, slopes = stacked([Plane(back.base - doubt, back.slopes, back.loss)], bound[:, None])
        base, slopes = torch.cat([pairs.base, base], 1), torch.cat([pairs.slopes, slopes], 1)
        alone = mixed(base[:, -1:], slopes[:, -1:])
        better = alone.lower > pairs.mix.lower
        lower = torch.where(better, alone.lower, pairs.mix.lower)
        tilt = torch.where(better[:, None], alone.slopes, pairs.mix.slopes)
        mix = CaseBounds(lower, pairs.mix.weight, tilt)
        open_ = self.open_pairs(mix.lower, sure)
        return OpenPairs(pairs.pair[open_], mix.pick(open_), base[open_], slopes[open_], back.loss)

    def rows_of(self, box: Tensor, case: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The box, the rows and the input rows of every row of these pairs."""
        many = self.goals.rows.shape[1]
        rows, over = self.goals.rows[case].flatten(0, 1), self.goals.over[case].flatten(0, 1)
        return box.repeat_interleave(many), rows, over

    def open_pairs(self, lower: Tensor, sure: Tensor) -> Tensor:
        """The indices of bounds that do not decide their pair; record the smallest margin of the others."""
        done = lower > sure
        if bool(done.any()):
            self.margin = min(self.margin, float(lower[done].min()))
        return (~done).nonzero().reshape(-1)

    def find_witness(self, inputs: AffineForm, box: Tensor, case: Tensor, mix: CaseBounds) -> Witness:
        """A replayed witness among the middles of boxes and the corners where their bounds are least."""
        radius = inputs.slopes.diagonal(dim1=1, dim2=2)[box]
        middle = inputs.middle[box]
        points = torch.cat([middle - mix.slopes.sign() * radius, middle])
        case = torch.cat([case, case])
        low, high = self.first[case], self.last[case]
        rounded = torch.as_tensor(points.numpy().astype(self.problem.dtype).astype(np.float64))
        points = torch.minimum(torch.maximum(rounded, low), high)
        worst = self.goals.excess(case, points, self.net(points))
        near = ((worst <= self.near) & (low <= high).all(1)).nonzero().reshape(-1)
        near = near[worst[near].argsort()[:REPLAYED]]
        if not len(near):
            return None
        witness = self.problem.witness(points[near].numpy().astype(self.problem.dtype))
        if witness is None:
            self.near = min(self.near, float(worst[near].min()) - NEAR)  # replay only larger violations
        return witness


def _batch(net: Net, rows: int, memory: int) -> int:
    values = sum(prod(step.shape) for step in net.steps)
    room = memory // 8 // (8 * (2 * net.inputs + 8 + 4 * rows) * values)
    return max(1, min(MOST_WORK // _work(net, rows), room, MOST_BOXES))


def _work(net: Net, rows: int) -> int:
    """Approximate number of operations per box, over all passes."""
    values = sum(prod(step.shape) for step in net.steps)
    return (net.inputs + 3 + 2 * rows) * (16 * values + products(net))
