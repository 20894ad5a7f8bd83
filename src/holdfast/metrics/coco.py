"""COCO's twelve numbers, equal to those of its reference code, from sparse matches.

The reference walks over every image, class, area range and threshold. Here precision is only computed where
it can matter: at true positives. Between two of them it can only fall, so the largest precision to the right
of any point is reached at a true positive.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from holdfast.core.types import Bools, Floats, Ints
from holdfast.metrics.boxes import DetectionTable, TruthTable, check_range
from holdfast.metrics.curves import RECALLS, needed_hits
from holdfast.metrics.matching import (
    Arranged,
    Bits,
    Pairs,
    Prepared,
    assign,
    prepare,
    select,
    stable_order,
    threshold_bits,
)
from holdfast.metrics.rules import RULES

IOU_THRESHOLDS: Floats = np.linspace(0.5, 0.95, 10)
AREAS: dict[str, tuple[float, float]] = {
    "all": (0.0, 1e5**2), "small": (0.0, 32.0**2), "medium": (32.0**2, 96.0**2), "large": (96.0**2, 1e5**2)
}  # fmt: skip
MAX_DETS = (1, 10, 100)
KEYS = ("AP", "AP50", "AP75", "APs", "APm", "APl", "AR1", "AR10", "AR100", "ARs", "ARm", "ARl")


@dataclass(frozen=True, eq=False)
class CocoResult:
    """The twelve numbers, overall and per class; −1 where there is no truth to measure against.

    `precision` is (10 IoU thresholds, 101 recalls, classes, 4 areas) at 100 detections and `recall`
    (10, classes, 4 areas, 3 limits 1, 10, 100), both −1 for a class without truth in that area.
    """

    numbers: dict[str, float]
    per_class: Floats
    precision: Floats
    recall: Floats

    def class_numbers(self, index: int) -> dict[str, float]:
        """The twelve numbers of one class."""
        return dict(zip(KEYS, self.per_class[index].tolist(), strict=True))


def coco_numbers(
    truth: TruthTable,
    detections: DetectionTable,
    *,
    images: int,
    classes: int,
    prepared: Prepared | None = None,
) -> CocoResult:
    """COCO's AP and AR over `images` images and `classes` classes.

    `prepared` may be given if `prepare` was called before with the same tables and the coco rule.
    """
    check_range(truth, images, classes, "truth")
    check_range(detections, images, classes, "detections")
    prepared = prepared or prepare(truth, detections, RULES["coco"], images)
    arranged, pairs = prepared.arranged, prepared.pairs
    pairs = select(pairs, pairs.iou >= IOU_THRESHOLDS[0])
    outside = np.stack(
        [truth.crowd | (truth.area < low) | (truth.area > high) for low, high in AREAS.values()]
    )
    curves = _Accumulator(truth, detections, arranged, outside, classes)
    for area, (kept, hits) in enumerate(_matches(pairs, truth.crowd, outside)):
        curves.add_area(area, kept, hits)
    return _summary(curves.precision.transpose(1, 3, 2, 0), curves.recall)


def _matches(pairs: Pairs, crowd: Bools, outside: NDArray[np.bool_]) -> Iterator[tuple[Pairs, Bits]]:
    """For each area range the pairs that match at some threshold, with their bits.

    Which boxes are ignored differs between the ranges, but where all boxes of an image and class are
    ignored together, or counted together, the assignment is the same: only the other groups are redone.
    """
    flags = outside[:, pairs.truth]
    passed = threshold_bits(pairs.iou, IOU_THRESHOLDS, strict=False)
    reusable = crowd[pairs.truth]
    mixed = _mixed_groups(pairs.group, flags)
    same = ~mixed
    plain, again = select(pairs, same), select(pairs, mixed)
    plain_hits = assign(plain, passed[same], flags[0, same], reusable[same])
    for area in range(len(outside)):
        hits = assign(again, passed[mixed], flags[area, mixed], reusable[mixed])
        both = Pairs(
            np.concatenate([plain.position, again.position]),
            np.concatenate([plain.truth, again.truth]),
            np.concatenate([plain.group, again.group]),
            np.concatenate([plain.iou, again.iou]),
        )
        bits = np.concatenate([plain_hits, hits])
        keep = np.flatnonzero(bits)
        keep = keep.take(stable_order(both.position.take(keep)))
        yield select(both, keep), bits[keep]


def _mixed_groups(group: Ints, flags: NDArray[np.bool_]) -> Bools:
    """For each pair whether its group has, in some area range, both ignored and counted boxes."""
    if len(group) == 0:
        return np.zeros(0, dtype=bool)
    first = np.flatnonzero(np.concatenate([[True], group[1:] != group[:-1]]))
    size = np.diff(np.append(first, len(group)))
    ignored = np.add.reduceat(flags, first, axis=1, dtype=np.int64)
    return np.repeat(((ignored > 0) & (ignored < size)).any(axis=0), size)


class _Accumulator:
    """Precision and recall arrays, filled area by area."""

    def __init__(
        self,
        truth: TruthTable,
        detections: DetectionTable,
        arranged: Arranged,
        outside: NDArray[np.bool_],
        classes: int,
    ) -> None:
        shape = (len(AREAS), len(IOU_THRESHOLDS), classes, len(RECALLS))
        self.precision: Floats = np.full(shape, -1.0)
        self.recall: Floats = np.full((shape[1], classes, shape[0], len(MAX_DETS)), -1.0)
        self.outside, self.classes, self.rank = outside, classes, arranged.rank
        self.category = detections.category.take(arranged.row)
        self.truth_category = truth.category
        self.area = (detections.xywh[:, 2] * detections.xywh[:, 3]).take(arranged.row)
        self.class_start = np.searchsorted(self.category, np.arange(classes))

    def add_area(self, area: int, pairs: Pairs, hits: Bits) -> None:
        """The curves of one area range, from its matches sorted by position."""
        low, high = list(AREAS.values())[area]
        inside = (self.area >= low) & (self.area <= high)
        ignored = self.outside[area].take(pairs.truth)
        # A match with a box that does not count matters only if the detection would have counted itself.
        relevant = ~ignored | inside.take(pairs.position)
        pairs, hits, ignored = select(pairs, relevant), hits[relevant], ignored[relevant]
        positives = np.bincount(self.truth_category[~self.outside[area]], minlength=self.classes)
        needed = needed_hits(positives, at_least=1)
        # An unmatched detection counts if its own area is inside; a matched one if its true box counts.
        counted = np.concatenate([[0], np.cumsum(inside)])
        start = self.class_start.take(self.category.take(pairs.position))
        before = counted.take(pairs.position + 1) - counted.take(start)
        change = (~ignored).astype(np.int64) - inside.take(pairs.position)
        for t in range(len(IOU_THRESHOLDS)):
            at = np.flatnonzero(hits >> np.uint64(t) & np.uint64(1))
            self._add_curve(
                t, area, pairs.position[at], ignored[at], before[at], change[at], positives, needed
            )

    def _add_curve(
        self, t: int, area: int, position: Ints, ignored: Bools, before: Ints, change: Ints, positives: Ints,
        needed: Ints
    ) -> None:  # fmt: skip
        category = self.category[position]
        shift = np.concatenate([[0], np.cumsum(change)])
        first = np.searchsorted(category, np.arange(self.classes))
        size = before + shift[1:] - shift[first[category]]
        hit = np.flatnonzero(~ignored)
        hit_class = category[hit]
        start = np.searchsorted(hit_class, np.arange(self.classes + 1))
        number = np.arange(len(hit)) - start[hit_class] + 1
        precision = number / (size[hit] + np.spacing(1))
        present = np.flatnonzero(positives)
        self.precision[area, t, present] = _sampled(precision, start, needed)[present]
        rank = self.rank[position[hit]]
        for m, limit in enumerate(MAX_DETS):
            found = np.bincount(hit_class[rank < limit], minlength=self.classes)
            self.recall[t, present, area, m] = found[present] / positives[present]


def _sampled(precision: Floats, start: Ints, needed: Ints) -> Floats:
    """The largest precision at or right of each recall, (classes, 101), 0 where that recall is not reached.

    `precision` holds the true positives of all classes, those of class c from start[c] to start[c + 1].
    """
    envelope = np.zeros(len(precision) + 1)
    for low, high in pairwise(start.tolist()):
        if high > low:
            backwards = slice(high - 1, low - 1 if low else None, -1)
            np.maximum.accumulate(precision[backwards], out=envelope[backwards])
    reached = needed <= np.diff(start)[:, None]
    return envelope.take(np.where(reached, start[:-1, None] + needed - 1, len(precision)))


def _summary(precision: Floats, recall: Floats) -> CocoResult:
    ap = precision.mean(axis=1)  # (thresholds, classes, areas); −1 stays −1
    half, three_quarters = 0, 5
    columns = [
        ap[:, :, 0].mean(axis=0), ap[half, :, 0], ap[three_quarters, :, 0],
        *(ap[:, :, area].mean(axis=0) for area in (1, 2, 3)),
        *(recall[:, :, 0, m].mean(axis=0) for m in range(3)),
        *(recall[:, :, area, 2].mean(axis=0) for area in (1, 2, 3)),
    ]  # fmt: skip
    per_class = np.stack(columns, axis=1)
    numbers = {}
    for key, column in zip(KEYS, per_class.T, strict=True):
        valid = column[column > -0.5]
        numbers[key] = float(valid.mean()) if len(valid) else -1.0
    per_class[per_class < -0.5] = -1.0
    return CocoResult(numbers, per_class, precision, recall)
