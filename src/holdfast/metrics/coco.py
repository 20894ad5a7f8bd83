"""COCO's twelve numbers, equal to those of its reference code, from sparse matches.

The reference iterates over every image, class, area range and threshold. Here precision is computed only
where it matters: at true positives. Between two of them it can only decrease, so the largest precision to
the right of any point is reached at a true positive.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from holdfast.core.types import Floats, Ints
from holdfast.metrics import matching
from holdfast.metrics.boxes import DetectionTable, TruthTable, check_range
from holdfast.metrics.curves import RECALLS, needed_hits
from holdfast.metrics.matching import Prepared
from holdfast.metrics.rules import RULES

IOU_THRESHOLDS: Floats = np.linspace(0.5, 0.95, 10)
_SMALL, _LARGE, _HUGE = 32.0**2, 96.0**2, 1e5**2
AREAS = {"all": (0.0, _HUGE), "small": (0.0, _SMALL), "medium": (_SMALL, _LARGE), "large": (_LARGE, _HUGE)}
MAX_DETS = (1, 10, 100)
KEYS = ("AP", "AP50", "AP75", "APs", "APm", "APl", "AR1", "AR10", "AR100", "ARs", "ARm", "ARl")


@dataclass(frozen=True, eq=False)
class CocoResult:
    """The twelve numbers, overall and per class; −1 where there is no truth to measure against."""

    numbers: dict[str, float]
    per_class: Floats  # (classes, 12)
    precision: Floats  # (10 IoU thresholds, 101 recalls, classes, 4 areas) at 100 detections
    recall: Floats  # (10 IoU thresholds, classes, 4 areas, 3 limits 1, 10, 100)


def coco_numbers(
    truth: TruthTable,
    detections: DetectionTable,
    *,
    images: int,
    classes: int,
    prepared: Prepared | None = None,
) -> CocoResult:
    """COCO's AP and AR; `prepared` is the result of `prepare` for the same tables and the coco rule."""
    check_range(truth, images, classes, "truth")
    check_range(detections, images, classes, "detections")
    arranged, pairs = prepared or matching.prepare(truth, detections, RULES["coco"], images)
    pairs = matching.select(pairs, pairs.iou >= IOU_THRESHOLDS[0])
    passed = matching.threshold_bits(pairs.iou, IOU_THRESHOLDS, strict=False)
    detected_class = detections.category.take(arranged.row)
    detected_area = (detections.xywh[:, 2] * detections.xywh[:, 3]).take(arranged.row)
    class_start = np.searchsorted(detected_class, np.arange(classes))
    precisions = np.full((len(AREAS), len(IOU_THRESHOLDS), classes, len(RECALLS)), -1.0)
    recalls = np.full((len(IOU_THRESHOLDS), classes, len(AREAS), len(MAX_DETS)), -1.0)
    for area, (low, high) in enumerate(AREAS.values()):
        inside = (detected_area >= low) & (detected_area <= high)
        outside = truth.crowd | (truth.area < low) | (truth.area > high)
        bits = matching.assign(pairs, passed, outside[pairs.truth], truth.crowd[pairs.truth])
        # A match with a box that does not count matters only if the detection would have counted itself.
        relevant = np.flatnonzero((bits > 0) & (~outside[pairs.truth] | inside[pairs.position]))
        relevant = relevant.take(matching.stable_order(pairs.position.take(relevant)))
        position, hits, ignored = pairs.position[relevant], bits[relevant], outside[pairs.truth[relevant]]
        positives = np.bincount(truth.category[~outside], minlength=classes)
        needed, present = needed_hits(positives, at_least=1), np.flatnonzero(positives)
        # An unmatched detection counts if its own area is inside; a matched one if its true box counts.
        counted = np.concatenate([[0], np.cumsum(inside)])
        category = detected_class.take(position)
        before = counted.take(position + 1) - counted.take(class_start.take(category))
        change = (~ignored).astype(np.int64) - inside.take(position)
        for t in range(len(IOU_THRESHOLDS)):
            at = np.flatnonzero(hits >> np.uint64(t) & np.uint64(1))
            shift = np.concatenate([[0], np.cumsum(change[at])])
            first = np.searchsorted(category[at], np.arange(classes))
            size = before[at] + shift[1:] - shift[first[category[at]]]
            hit = np.flatnonzero(~ignored[at])
            hit_class = category[at][hit]
            start = np.searchsorted(hit_class, np.arange(classes + 1))
            precision = (np.arange(len(hit)) - start[hit_class] + 1) / (size[hit] + np.spacing(1))
            precisions[area, t, present] = _sampled(precision, start, needed)[present]
            rank = arranged.rank[position[at][hit]]
            for m, limit in enumerate(MAX_DETS):
                hit_count = np.bincount(hit_class[rank < limit], minlength=classes)
                recalls[t, present, area, m] = hit_count[present] / positives[present]
    return _summary(precisions.transpose(1, 3, 2, 0), recalls)


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
    columns = [ap[:, :, 0].mean(axis=0), ap[0, :, 0], ap[5, :, 0]]  # IoU 0.5 … 0.95, 0.5, 0.75
    columns += [ap[:, :, area].mean(axis=0) for area in (1, 2, 3)]
    columns += [recall[:, :, 0, m].mean(axis=0) for m in range(3)]
    columns += [recall[:, :, area, 2].mean(axis=0) for area in (1, 2, 3)]
    per_class = np.stack(columns, axis=1)
    numbers = {}
    for key, column in zip(KEYS, per_class.T, strict=True):
        valid = column[column > -0.5]
        numbers[key] = float(valid.mean()) if len(valid) else -1.0
    per_class[per_class < -0.5] = -1.0
    return CocoResult(numbers, per_class, precision, recall)
