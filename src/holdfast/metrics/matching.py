"""Matching: which detection found which true box, by a rule, at one IoU threshold."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from holdfast.core.errors import InputError
from holdfast.core.types import Bools, Floats, Ints
from holdfast.metrics.pairing import Pairs, Prepared, assign, best_only, prepare, select, threshold_bits
from holdfast.metrics.rules import Rule
from holdfast.metrics.tables import DetectionTable, TruthTable, check_range

TRUE_POSITIVE, FALSE_POSITIVE, IGNORED = 1, 0, -1


@dataclass(frozen=True, eq=False)
class Matches:
    """What became of each detection, in the order of evaluation (class, best score first, image, row).

    detection  row in the detection table           outcome  TRUE_POSITIVE, FALSE_POSITIVE or IGNORED
    truth      row of the true box it took, or −1   overlap  IoU with that box, else with its best box
    best       row of the true box of its image and class it overlaps most, or −1
    counted    (n_truth,) true boxes that must be found; the others are neither hit nor miss
    positives  (classes,) how many of those each class has
    Detections beyond the rule's `max_dets` do not appear.
    """

    detection: Ints
    image: Ints
    category: Ints
    score: Floats
    truth: Ints
    best: Ints
    overlap: Floats
    outcome: Ints
    counted: Bools
    truth_image: Ints
    truth_category: Ints
    positives: Ints

    def __len__(self) -> int:
        return len(self.detection)


def match(
    truth: TruthTable,
    detections: DetectionTable,
    rule: Rule,
    iou: float,
    *,
    images: int,
    classes: int,
    prepared: Prepared | None = None,
) -> Matches:
    """The greedy matching of each image and class, detections choosing in order of falling score.

    `prepared` (from `prepare`, with the same tables and rule) saves time when several thresholds are matched.
    """
    if not 0.0 <= iou <= 1.0:
        raise InputError(f"iou threshold: expected a number from 0 to 1, got {iou}")
    check_range(truth, images, classes, "truth")
    check_range(detections, images, classes, "detections")
    ignored = ignored_boxes(truth, rule)
    prepared = prepared or prepare(truth, detections, rule, images)
    pairs, row = prepared.pairs, prepared.arranged.row
    taken_truth, best, overlap = (np.full(len(row), -1), np.full(len(row), -1), np.zeros(len(row)))
    nearest = best_only(pairs)
    best[nearest.position], overlap[nearest.position] = nearest.truth, nearest.iou
    hits = _hits(pairs, nearest, rule, iou, ignored, truth.crowd)
    taken_truth[hits.position], overlap[hits.position] = hits.truth, hits.iou
    outcome = np.full(len(row), FALSE_POSITIVE)
    outcome[hits.position] = np.where(ignored[hits.truth], IGNORED, TRUE_POSITIVE)
    return Matches(
        detection=row,
        image=detections.image[row],
        category=detections.category[row],
        score=detections.score[row],
        truth=taken_truth,
        best=best,
        overlap=overlap,
        outcome=outcome,
        counted=~ignored,
        truth_image=truth.image,
        truth_category=truth.category,
        positives=np.bincount(truth.category[~ignored], minlength=classes),
    )


def ignored_boxes(truth: TruthTable, rule: Rule) -> Bools:
    """The true boxes, (n,), that are neither a hit nor a miss under this rule."""
    ignored = np.zeros(len(truth), dtype=bool)
    if rule.difficult == "ignored":
        ignored |= truth.difficult
    if rule.crowd != "ordinary":
        ignored |= truth.crowd
    return ignored


def _hits(pairs: Pairs, nearest: Pairs, rule: Rule, iou: float, ignored: Bools, crowd: Bools) -> Pairs:
    """The pairs that become matches."""
    if rule.taken == "false positive":
        candidates = nearest
        reusable = ignored[candidates.truth]  # any number of detections may fall on an ignored box
    else:
        candidates = pairs
        reusable = crowd[candidates.truth] & (rule.crowd != "ordinary")
    level = np.array([iou])
    passed = threshold_bits(candidates.iou, level, strict=rule.iou_strict)
    keep = passed > 0
    candidates, passed, reusable = select(candidates, keep), passed[keep], reusable[keep]
    return select(candidates, assign(candidates, passed, ignored[candidates.truth], reusable) > 0)
