"""Which predictions two runs on the same images do not share, and which images the second one broke.

A prediction is another one
- to classify: if the best class is another;
- to detect: if, of the detections that pass the score threshold, one has no partner of its class with IoU ≥
  0.5 on the other side (partners are one to one, the largest IoU first);
- to find a single object: if the class is another, or the IoU of the two boxes is below 0.5;
- to segment: if at least 1 % of the points of the label grid have another class.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.core.types import Bools, Detections
from holdfast.engine.records import Counted, Found, Ranked, Record
from holdfast.evaluate.score import Settings, places, single_outputs, tables
from holdfast.metrics.boxes import iou
from holdfast.metrics.detection import passes
from holdfast.metrics.matching import TRUE_POSITIVE, match

if TYPE_CHECKING:
    from holdfast.core.model import Task

SAME_BOX = 0.5  # IoU from which two boxes are one prediction
POINTS = 0.01  # share of the grid's points from which a label map is another


@dataclass(frozen=True)
class Changes:
    """Images whose prediction changed; of detectors also boxes, of segmenters the share of grid points."""

    images: int
    boxes_lost: int | None = None
    boxes_gained: int | None = None
    points: float | None = None

    def __str__(self) -> str:
        words = f"{self.images} image{'' if self.images == 1 else 's'} changed"
        if self.boxes_lost is not None:
            return f"{words} ({self.boxes_lost} boxes lost, {self.boxes_gained} gained)"
        return words if self.points is None else f"{words} ({self.points:.2%} of the points)"


def changes(before: Sequence[Record], after: Sequence[Record], task: Task, settings: Settings) -> Changes:
    """What changed from one run to another; record i of both is of the same image."""
    pairs: list[tuple[Any, Any]] = list(zip(before, after, strict=True))
    if task == "classify":
        return Changes(sum(_best(a) != _best(b) for a, b in pairs))
    if task == "single":
        return Changes(sum(_other_single(a, b) for a, b in pairs))
    if task == "segment":
        return _label_maps(pairs)
    moved = np.array([unpartnered(_shown(a, settings), _shown(b, settings)) for a, b in pairs], np.int64)
    lost, gained = moved.reshape(-1, 2).sum(axis=0).tolist()
    return Changes(int(moved.any(axis=1).sum()), lost, gained)


def _best(record: Ranked) -> int:
    return int(record.top[0]) if len(record.top) else -1


def _other_single(before: Found, after: Found) -> bool:
    first, second = before.detections, after.detections
    if not len(first) or not len(second):
        return len(first) != len(second)
    same = first.classes[0] == second.classes[0]
    equal = np.array_equal(first.boxes[0], second.boxes[0])  # an empty box has no IoU even with itself
    return not same or not (equal or iou(first.boxes[:1], second.boxes[:1])[0, 0] >= SAME_BOX)


def _shown(record: Found, settings: Settings) -> Detections:
    """The detections that a system with this score threshold shows."""
    found = record.detections
    return found.take(passes(found.scores, settings.score, settings.rule))


def unpartnered(first: Detections, second: Detections) -> tuple[int, int]:
    """How many detections of either side have no partner on the other."""
    pairs = partners(first, second)
    return len(first) - len(pairs), len(second) - len(pairs)


def partners(first: Detections, second: Detections) -> list[tuple[int, int]]:
    """Pairs of places, one of each side: same class, the largest IoU of at least one half first."""
    if np.array_equal(first.boxes, second.boxes) and np.array_equal(first.classes, second.classes):
        return [(i, i) for i in range(len(first))]
    overlap = iou(first.boxes, second.boxes)
    overlap[first.classes[:, None] != second.classes[None, :]] = 0.0
    a, b = np.nonzero(overlap >= SAME_BOX)
    # Pairs of one IoU and one sum of places share no box: the order does not depend on which side is which.
    order = np.lexsort((a + b, -overlap[a, b]))
    free_a, free_b = np.ones(len(first), bool), np.ones(len(second), bool)
    pairs = []
    for i, j in zip(a[order].tolist(), b[order].tolist(), strict=True):
        if free_a[i] and free_b[j]:
            free_a[i] = free_b[j] = False
            pairs.append((i, j))
    return pairs


def _label_maps(pairs: Sequence[tuple[Counted, Counted]]) -> Changes:
    if any(a.grid.shape != b.grid.shape or not a.grid.size for a, b in pairs):
        # Records of a version without grids tell only that some pixel of an image changed.
        return Changes(sum(not np.array_equal(a.confusion, b.confusion) for a, b in pairs))
    shares = np.array([float((a.grid != b.grid).mean()) for a, b in pairs])
    return Changes(int((shares >= POINTS).sum()), points=float(shares.mean()))


def broken(before: Sequence[Record], after: Sequence[Record], task: Task, settings: Settings) -> Bools:
    """For each image, (n,), whether it was right before and is wrong after.

    classify: the best class; single: IoU · [class equal] > 0.5; detect: a true box that was found at the
    score and IoU thresholds is not found any more; segment: 1 % of the pixels less are right.
    """
    told: dict[str, Callable[..., Any]] = {
        "classify": lambda records: places(records)[0] == 0,
        "single": lambda records: single_outputs(records)[0] > 0.5,
        "segment": lambda records: np.array([_right_pixels(r) for r in records]),
    }
    if task == "detect":
        return _boxes_missed(before, after, settings)
    first, second = told[task](before), told[task](after)
    if task == "segment":
        return np.asarray(first - second >= POINTS)
    return np.asarray(first & ~second)


def _right_pixels(record: Counted) -> float:
    return float(np.trace(record.confusion)) / max(1, int(record.confusion.sum()))


def _boxes_missed(before: Sequence[Any], after: Sequence[Any], settings: Settings) -> Bools:
    missed = np.zeros(len(before), bool)
    hits = []
    for records in (before, after):
        truth, detections = tables(records)
        classes = int(max((c.max() for c in (truth.category, detections.category) if len(c)), default=0)) + 1
        found = match(truth, detections, settings.rule, settings.iou, images=len(records), classes=classes)
        hit = np.zeros(len(truth), bool)
        counted = (found.outcome == TRUE_POSITIVE) & passes(found.score, settings.score, settings.rule)
        hit[found.truth[counted]] = True
        hits.append(hit)
    missed[tables(before)[0].image[hits[0] & ~hits[1]]] = True
    return missed
