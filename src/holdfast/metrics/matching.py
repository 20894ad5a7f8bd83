"""Matching of detections with true boxes by a rule.

All functions process the whole dataset at once. The greedy rule is sequential only inside one image
and class (a *group*), so it is done in waves: a wave holds at most one pair of a detection with a true box
per group. Thresholds are bits of one integer, so that all ten of COCO's are decided in the same pass.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import InputError
from holdfast.core.types import Bools, Floats, Ints
from holdfast.metrics.boxes import DetectionTable, TruthTable, check_range, pair_iou
from holdfast.metrics.rules import APRule

TRUE_POSITIVE, FALSE_POSITIVE, IGNORED = 1, 0, -1
Bits = NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class SortedDetections:
    """Detections in the order of evaluation: by class, then score (best first), then image, then row."""

    row: Ints  # (m,) in the table
    group: Ints
    rank: Ints  # (m,) the place inside its image and class, 0 the best
    by_group: Ints  # (m,) the same detections as positions in this order, sorted by (class, image, rank)


@dataclass(frozen=True, eq=False)
class CandidatePairs:
    """Pairs of a detection and a true box of one image and class, sorted by group, rank, then true row."""

    position: Ints
    truth: Ints
    group: Ints
    iou: Floats


# Detections, and every pair of one with a true box that it overlaps
Prepared = tuple[SortedDetections, CandidatePairs]


def prepare(truth: TruthTable, detections: DetectionTable, rule: APRule, images: int) -> Prepared:
    """The input of matching by the rule at any IoU threshold."""
    region = truth.crowd if rule.crowd == "region" else None
    arranged = arrange(detections, images, rule.max_dets)
    pairs = pair_up(truth, detections, arranged, images, region=region, plus_one=rule.plus_one)
    return arranged, select(pairs, pairs.iou > 0.0)


def arrange(detections: DetectionTable, images: int, max_dets: int | None) -> SortedDetections:
    """The order of evaluation, with only the best `max_dets` of each image and class.

    Equal scores keep the order of images and, inside one image, of rows, like a stable sort by descending
    score of detections listed image by image, as in COCO's reference code.
    """
    # numpy's unstable sorts are vectorised and several times faster than its stable ones. Sorting unique
    # integer keys, with the place as the last digit, has the speed of the first and the result of the second.
    by_image = stable_order(detections.image)
    score = detections.score.take(by_image)
    level = np.empty(len(score), dtype=np.int64)
    falling = np.argsort(-score)
    level[falling] = np.cumsum(_starts(score.take(falling))) - 1  # equal scores share a level
    row = by_image.take(stable_order(detections.category.take(by_image) * len(score) + level))
    group = detections.category.take(row) * images + detections.image.take(row)
    by_group = stable_order(group)
    rank = np.empty(len(row), dtype=np.int64)
    rank[by_group] = _place_in_group(group.take(by_group))
    if max_dets is None or len(row) == 0 or int(rank.max()) < max_dets:
        return SortedDetections(row, group, rank, by_group)
    keep = rank < max_dets
    moved = np.cumsum(keep) - 1
    return SortedDetections(row[keep], group[keep], rank[keep], moved[by_group[keep[by_group]]])


def stable_order(key: Ints) -> Ints:
    """Positions that sort non-negative integers, equal ones in their order."""
    n = len(key)
    if n == 0 or bool((key[1:] >= key[:-1]).all()):
        return np.arange(n)
    bits = n.bit_length()
    if int(key.max()) >= 1 << (63 - bits):
        return np.argsort(key, kind="stable")
    unique = (key << bits) | np.arange(n)
    unique.sort()
    return unique & ((1 << bits) - 1)


def pair_up(
    truth: TruthTable,
    detections: DetectionTable,
    arranged: SortedDetections,
    images: int,
    *,
    region: Bools | None = None,
    plus_one: bool = False,
) -> CandidatePairs:
    """Every pair of a detection and a true box of the same image and class, with its IoU (not filtered).

    `region` (n_truth,) marks true boxes whose overlap is measured on the detection alone.
    """
    truth_group = truth.category * images + truth.image
    order = stable_order(truth_group)
    sorted_group = truth_group.take(order)
    start = np.flatnonzero(_starts(sorted_group))
    groups, count = sorted_group.take(start), np.diff(np.append(start, len(truth)))
    group = arranged.group.take(arranged.by_group)
    place = np.searchsorted(groups, group)
    place[place == len(groups)] = 0
    inside = groups[place] == group if len(groups) else np.zeros(len(group), dtype=bool)
    place, position = place[inside], arranged.by_group[inside]
    repeats = count[place]
    position = np.repeat(position, repeats)
    offset = np.arange(len(position)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    true_row = order.take(np.repeat(start[place], repeats) + offset)
    detected = detections.xywh.take(arranged.row.take(position), axis=0)
    crowd = None if region is None or not region.any() else region.take(true_row)
    overlap = pair_iou(detected, truth.xywh.take(true_row, axis=0), crowd, plus_one=plus_one)
    return CandidatePairs(position, true_row, arranged.group.take(position), overlap)


def select(pairs: CandidatePairs, keep: NDArray[np.bool_] | Ints) -> CandidatePairs:
    """The pairs picked by a mask or by positions."""
    at = np.flatnonzero(keep) if keep.dtype == np.bool_ else keep
    return CandidatePairs(**{name: column.take(at) for name, column in vars(pairs).items()})


def threshold_bits(overlap: Floats, thresholds: Floats, *, strict: bool) -> Bits:
    """For each overlap a bit pattern: bit t is set if it passes threshold t."""
    bits = np.zeros(len(overlap), dtype=np.uint64)
    for t, level in enumerate(thresholds):
        passed = overlap > level if strict else overlap >= min(level, 1 - 1e-10)
        bits |= passed.astype(np.uint64) << np.uint64(t)
    return bits


def assign(pairs: CandidatePairs, passed: Bits, ignored: Bools, reusable: Bools) -> Bits:
    """The pairs that become matches, (p,), as bits over the thresholds.

    Detections are matched in order of rank. Each is matched, among the unmatched boxes that pass the
    threshold, with one that counts, else with an ignored one; among those with the largest IoU, and of equal
    ones with the last row. `reusable` boxes can be matched any number of times. `pairs` must be sorted by
    group and rank; a detection (position) may occur in one group only.
    """
    if len(pairs.iou) == 0:
        return np.zeros(0, dtype=np.uint64)
    order, _ = _sorted_within(pairs, lambda s: (-pairs.truth[s], -pairs.iou[s], ignored[s]))
    wave = _place_in_group(pairs.group[order])
    order = order[stable_order(wave)]
    detection, box = pairs.position[order], pairs.truth[order]
    bits, keep = passed[order], reusable[order]
    done = np.zeros(int(detection.max()) + 1, dtype=np.uint64)
    matched = np.zeros(int(box.max()) + 1, dtype=np.uint64)
    hits = np.zeros(len(order), dtype=np.uint64)
    start = 0
    for end in np.cumsum(np.bincount(wave)).tolist():
        now = slice(start, end)
        d, b = detection[now], box[now]
        match = bits[now] & ~(done[d] | matched[b])
        done[d] |= match
        matched[b] |= np.where(keep[now], np.uint64(0), match)
        hits[order[now]] = match
        start = end
    return hits


def _starts(values: Ints | Floats) -> Bools:
    first = np.ones(len(values), dtype=bool)
    first[1:] = values[1:] != values[:-1]
    return first


def _sorted_within(
    pairs: CandidatePairs, keys: Callable[[Ints], tuple[NDArray[np.generic], ...]]
) -> tuple[Ints, Bools]:
    """Positions that sort the pairs of each detection by the keys, the last first; and where each begins."""
    first = _starts(pairs.position)
    alone = first.copy()
    alone[:-1] &= first[1:]
    order = np.arange(len(first))
    several = np.flatnonzero(~alone)  # most detections have one pair only, so sort the others alone
    segment = np.cumsum(first[several])
    order[several] = several[np.lexsort((*keys(several), segment))]
    return order, first


def _place_in_group(group: Ints) -> Ints:
    """For each pair its place inside its group, which is its wave.

    Pairs of one wave share neither a detection nor a true box, and the pairs of a group are in the order in
    which they must be decided.
    """
    place = np.arange(len(group))
    return place - np.maximum.accumulate(np.where(_starts(group), place, 0))


@dataclass(frozen=True, eq=False)
class Matches:
    """The outcome of each detection, in the order of evaluation (class, best score first, image, row).

    Detections in excess of the rule's `max_dets` are omitted.
    """

    detection: Ints  # row in the detection table
    image: Ints
    category: Ints
    score: Floats
    truth: Ints  # row of the matched true box, or −1
    best: Ints  # row of the true box of its image and class it overlaps most, or −1
    overlap: Floats  # IoU with the matched box, else with its best box
    outcome: Ints  # TRUE_POSITIVE, FALSE_POSITIVE or IGNORED
    counted: Bools  # (n_truth,) true boxes that count; the others are neither hit nor miss
    truth_image: Ints
    truth_category: Ints
    positives: Ints  # (classes,) number of boxes that count of each class


def match(
    truth: TruthTable,
    detections: DetectionTable,
    rule: APRule,
    iou: float,
    *,
    images: int,
    classes: int,
    prepared: Prepared | None = None,
    area: tuple[float, float] | None = None,
) -> Matches:
    """The greedy matching of each image and class, with detections in order of descending score.

    `prepared` (from `prepare`, with the same tables and rule) saves time when several thresholds are matched.
    True boxes whose area is not in `area` are ignored, and so are unmatched detections whose own is not.
    """
    if not 0.0 <= iou <= 1.0:
        raise InputError(f"iou threshold: expected a number from 0 to 1, got {iou}")
    check_range(truth, images, classes, "truth")
    check_range(detections, images, classes, "detections")
    ignored = (truth.difficult & (rule.difficult == "ignored")) | (truth.crowd & (rule.crowd != "ordinary"))
    if area is not None:
        ignored = ignored | (truth.area < area[0]) | (truth.area > area[1])
    arranged, pairs = prepared or prepare(truth, detections, rule, images)
    row = arranged.row
    matched_truth, best, overlap = np.full(len(row), -1), np.full(len(row), -1), np.zeros(len(row))
    # each detection with the one true box it overlaps most; of equal ones the first row
    order, first = _sorted_within(pairs, lambda s: (pairs.truth[s], -pairs.iou[s]))
    nearest = select(pairs, order[first])
    best[nearest.position], overlap[nearest.position] = nearest.truth, nearest.iou
    if rule.taken == "false positive":  # an ignored box matches any number of detections
        candidates, reusable = nearest, ignored[nearest.truth]
    else:
        candidates, reusable = pairs, truth.crowd[pairs.truth] & (rule.crowd != "ordinary")
    passed = threshold_bits(candidates.iou, np.array([iou]), strict=rule.iou_strict)
    keep = passed > 0
    candidates, passed, reusable = select(candidates, keep), passed[keep], reusable[keep]
    hits = select(candidates, assign(candidates, passed, ignored[candidates.truth], reusable) > 0)
    matched_truth[hits.position], overlap[hits.position] = hits.truth, hits.iou
    outcome = np.full(len(row), FALSE_POSITIVE)
    if area is not None:
        own = (detections.xywh[:, 2] * detections.xywh[:, 3])[row]
        outcome[(own < area[0]) | (own > area[1])] = IGNORED
    outcome[hits.position] = np.where(ignored[hits.truth], IGNORED, TRUE_POSITIVE)
    return Matches(
        detection=row,
        image=detections.image[row],
        category=detections.category[row],
        score=detections.score[row],
        truth=matched_truth,
        best=best,
        overlap=overlap,
        outcome=outcome,
        counted=~ignored,
        truth_image=truth.image,
        truth_category=truth.category,
        positives=np.bincount(truth.category[~ignored], minlength=classes),
    )
