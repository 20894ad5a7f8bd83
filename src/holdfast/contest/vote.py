"""The mimic model: several detectors behind one vote."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from holdfast.contest.rules import Vote
from holdfast.core.errors import InputError
from holdfast.core.types import Detections, Floats, no_detections
from holdfast.metrics.boxes import iou


@dataclass(frozen=True)
class _Ballot:
    """One box of one member."""

    member: int
    score: float
    box: tuple[float, ...]
    place: int = field(compare=False)  # in the pool

    @property
    def rank(self) -> tuple[float, ...]:
        """What ballots are sorted by: best score first, then corners. The member does not count."""
        return (-self.score, *self.box)


def vote(answers: Sequence[Detections], vote: Vote) -> Detections:
    """What the members agree on, best score first; the order of the members does not matter.

    Class by class, every box is looked at, best score first. Each other member supports it by that box of
    its own, not used yet, which overlaps it most, if the IoU is at least `vote.iou`. With `vote.least`
    members in all it stands, and all of their boxes are used up: each serves once. The box that comes out is
    their mean, weighted by their scores; its score is the mean over *all* members, absent ones giving 0.
    """
    if not 1 <= vote.least <= len(answers):
        raise InputError(f"vote: expected 1 to {len(answers)} members to agree, got {vote.least}")
    found: list[tuple[float, int, tuple[float, ...]]] = []
    for category in sorted({int(c) for answer in answers for c in answer.classes}):
        for score, box in _agreed(_ballots(answers, category), len(answers), vote):
            found.append((-score, category, box))
    if not found:
        return no_detections()
    scores, classes, boxes = zip(*sorted(found), strict=True)
    return Detections(np.array(boxes), -np.array(scores), np.array(classes))


def _ballots(answers: Sequence[Detections], category: int) -> list[_Ballot]:
    rows = [
        (member, float(answer.scores[i]), tuple(map(float, answer.boxes[i])))
        for member, answer in enumerate(answers)
        for i in np.flatnonzero(answer.classes == category)
    ]
    return [_Ballot(*row, place) for place, row in enumerate(rows)]


def _agreed(ballots: list[_Ballot], members: int, vote: Vote) -> list[tuple[float, tuple[float, ...]]]:
    """Score and box of everything in one class that stands."""
    boxes = np.array([b.box for b in ballots])
    overlap = iou(boxes, boxes)
    used: set[int] = set()
    found = []
    for seed in sorted(ballots, key=lambda b: b.rank):
        if seed.place in used:
            continue
        near = np.flatnonzero((overlap[seed.place] >= vote.iou) & (overlap[seed.place] > 0)).tolist()
        free = [ballots[i] for i in near if i not in used and ballots[i].member != seed.member]
        group = [seed, *_supporters(free, overlap[seed.place])]
        # One that does not stand may still support another, so it is not used up.
        if len(group) >= vote.least:
            used |= {b.place for b in group}
            found.append((math.fsum(b.score for b in group) / members, _mean(group)))
    return found


def _supporters(free: list[_Ballot], overlap: Floats) -> list[_Ballot]:
    """Of each member the box that overlaps most; of equal ones the better ranked."""
    best: dict[int, _Ballot] = {}
    for ballot in sorted(free, key=lambda b: (-overlap[b.place], *b.rank)):
        best.setdefault(ballot.member, ballot)
    return list(best.values())


def _mean(group: list[_Ballot]) -> tuple[float, ...]:
    """The mean box; as a step from the first one, so that equal boxes give exactly that box."""
    weights = [b.score for b in group] if any(b.score for b in group) else [1.0] * len(group)
    total = math.fsum(weights)  # exact sums do not depend on the order
    return tuple(
        start + math.fsum(w * (b.box[i] - start) for w, b in zip(weights, group, strict=True)) / total
        for i, start in enumerate(group[0].box)
    )
