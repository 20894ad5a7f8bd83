"""Boxes of inputs with the cases that are open on each: taken apart, clipped and halved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from holdfast.verify.problem import Case
from holdfast.verify.sweep.chords import UNIT

Tensor = Any
OUTWARD = 1e-9  # in half widths: far more than a clip can be rounded
LEAST = 1e-290  # slopes below have lost digits, and clip nothing


@dataclass(frozen=True, eq=False)
class Boxes:
    """Corners (b, d) of boxes, and p pairs of a box and a case that is open on it, ordered by box."""

    lower: Tensor
    upper: Tensor
    box: Tensor
    case: Tensor

    @classmethod
    def of(cls, cases: Sequence[Case]) -> Boxes:
        """The boxes of the cases, one unit in the last place wider; cases of equal boxes share one."""
        groups: dict[bytes, list[int]] = {}
        for at, case in enumerate(cases):
            groups.setdefault(case.lower.tobytes() + case.upper.tobytes(), []).append(at)
        firsts = [cases[group[0]] for group in groups.values()]
        lower = np.nextafter(np.stack([case.lower for case in firsts]), -np.inf)
        upper = np.nextafter(np.stack([case.upper for case in firsts]), np.inf)
        box = np.repeat(np.arange(len(firsts)), [len(group) for group in groups.values()])
        members = np.concatenate([np.array(group) for group in groups.values()])
        return cls(*(torch.as_tensor(value) for value in (lower, upper, box, members)))

    def __len__(self) -> int:
        return len(self.lower)

    def part(self, which: slice) -> Boxes:
        """Some boxes in a row, with their pairs."""
        first, last, _ = which.indices(len(self))
        mine = (self.box >= first) & (self.box < last)
        return Boxes(self.lower[first:last], self.upper[first:last], self.box[mine] - first, self.case[mine])


def joined(one: Boxes, other: Boxes) -> Boxes:
    """The boxes of both."""
    return Boxes(
        torch.cat([one.lower, other.lower]),
        torch.cat([one.upper, other.upper]),
        torch.cat([one.box, other.box + len(one)]),
        torch.cat([one.case, other.case]),
    )


def clipped(boxes: Boxes, pairs: Tensor, base: Tensor, slopes: Tensor) -> Boxes:
    """The boxes that have one of these pairs, without parts where a plane of each of theirs is positive.

    What is asked for lies only where base + slopes t <= 0 for all planes (m,), (m, d) of a pair; with the
    other inputs wherever they help most, that is a bound for each t.
    """
    box, case = boxes.box[pairs], boxes.case[pairs]
    size = slopes.abs()
    reach = size.sum(2)
    # What the sum was rounded counts before a small slope divides it.
    spare = reach - base + 8 * (size.shape[2] + 2) * UNIT * (reach + base.abs())
    room = spare[:, :, None] / size - 1.0 + OUTWARD
    room = torch.where((size > LEAST) & room.isfinite(), room.clamp(-1.0, 1.0), torch.ones_like(room))
    ones = torch.ones_like(room)
    high = torch.where(slopes > 0, room, ones).amin(1)
    low = -torch.where(slopes < 0, room, ones).amin(1)
    kept, number = torch.unique(box, return_inverse=True)
    where = number[:, None].expand_as(high)
    most = high.new_full((len(kept), high.shape[1]), -1.0).scatter_reduce(0, where, high, "amax")
    least = low.new_full((len(kept), low.shape[1]), 1.0).scatter_reduce(0, where, low, "amin")
    lower, upper = boxes.lower[kept], boxes.upper[kept]
    centre, radius = (lower + upper) / 2, (upper - lower) / 2
    # Rounded outward: a part of the width, and a unit of where the box lies.
    room = OUTWARD * radius + 4e-16 * (lower.abs() + upper.abs())
    left = torch.maximum(lower, centre + radius * least - room)
    right = torch.minimum(upper, centre + radius * most + room)
    empty = left > right  # nothing is met there: any box will do
    return Boxes(torch.where(empty, centre, left), torch.where(empty, centre, right), number, case)


def halved(boxes: Boxes, score: Tensor, lowest: Tensor, floor: Tensor, times: int) -> Boxes:
    """The boxes cut in two as often, each along the input of the largest score (b, d); worst bounds last."""
    order = lowest.argsort(descending=True)
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order))
    now = Boxes(boxes.lower[order], boxes.upper[order], place[boxes.box], boxes.case)
    score = score[order].nan_to_num(0.0, 0.0, 0.0) + 1e-300
    for _ in range(times):
        now, score = _twice(now, score, floor)
    by_box = now.box.argsort(stable=True)
    return Boxes(now.lower, now.upper, now.box[by_box], now.case[by_box])


def _twice(boxes: Boxes, score: Tensor, floor: Tensor) -> tuple[Boxes, Tensor]:
    width = boxes.upper - boxes.lower
    wide = width > floor
    # Without a score, the widest side beside its floor.
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
    made = Boxes(
        torch.cat([boxes.lower, second]),
        torch.cat([first, boxes.upper[able]]),
        torch.cat([boxes.box, number[boxes.box[again]] + len(boxes)]),
        torch.cat([boxes.case, boxes.case[again]]),
    )
    return made, torch.cat([score, score[able]])
