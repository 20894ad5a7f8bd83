"""Pairing: the order of detections, their overlaps with true boxes, and the greedy assignment.

Everything here runs over the whole data set at once. The greedy rule is sequential only inside one image
and class (a *group*), so it is done in waves: a wave holds at most one pair of a detection with a true box
per group. Thresholds are bits of one integer, so that all ten of COCO's are decided in the same pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from holdfast.core.types import Bools, Floats, Ints
from holdfast.metrics.boxes import pair_iou
from holdfast.metrics.rules import Rule
from holdfast.metrics.tables import DetectionTable, TruthTable

Bits = NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class Arranged:
    """Detections in the order of evaluation: by class, then score (best first), then image, then row.

    `row` (m,) is the row in the table; `rank` (m,) the place inside its image and class, 0 the best;
    `by_group` (m,) the same detections as positions in this order, sorted by (class, image, rank).
    """

    row: Ints
    group: Ints
    rank: Ints
    by_group: Ints


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of a detection and a true box of one image and class, sorted by group, rank, then true row."""

    position: Ints
    truth: Ints
    group: Ints
    iou: Floats


@dataclass(frozen=True, eq=False)
class Prepared:
    """Detections in order and every pair of one with a true box it meets; all that matching stands on."""

    arranged: Arranged
    pairs: Pairs


def prepare(truth: TruthTable, detections: DetectionTable, rule: Rule, images: int) -> Prepared:
    """What matching by the rule stands on, at any IoU threshold."""
    region = truth.crowd if rule.crowd == "region" else None
    arranged = arrange(detections, images, rule.max_dets)
    pairs = pair_up(truth, detections, arranged, images, region=region, plus_one=rule.plus_one)
    return Prepared(arranged, select(pairs, pairs.iou > 0.0))


def arrange(detections: DetectionTable, images: int, max_dets: int | None) -> Arranged:
    """The order of evaluation, with only the best `max_dets` of each image and class kept.

    Equal scores keep the order of images and, inside one image, of rows: what a stable sort by falling
    score gives when the detections are listed image by image, as COCO's reference code does.
    """
    row = _order(detections)
    group = detections.category.take(row) * images + detections.image.take(row)
    by_group = stable_order(group)
    rank = np.empty(len(row), dtype=np.int64)
    rank[by_group] = _place_in_group(group.take(by_group))
    if max_dets is None or len(row) == 0 or int(rank.max()) < max_dets:
        return Arranged(row, group, rank, by_group)
    keep = rank < max_dets
    moved = np.cumsum(keep) - 1
    return Arranged(row[keep], group[keep], rank[keep], moved[by_group[keep[by_group]]])


# numpy's unstable sorts are vectorised and several times faster than its stable ones. Sorting unique integer
# keys, with the place as the last digit, has the speed of the first and the result of the second.


def _order(detections: DetectionTable) -> Ints:
    """Rows by class, then falling score, then image, then row."""
    by_image = stable_order(detections.image)
    score = detections.score.take(by_image)
    level = np.empty(len(score), dtype=np.int64)
    falling = np.argsort(-score)
    level[falling] = np.cumsum(_starts(score.take(falling))) - 1  # equal scores share a level
    category = detections.category.take(by_image)
    n = len(score)
    if n and (int(category.max()) + 1) * n >= 1 << 62:
        return by_image.take(np.lexsort((level, category)))
    return by_image.take(stable_order(category * n + level))


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
    arranged: Arranged,
    images: int,
    *,
    region: Bools | None = None,
    plus_one: bool = False,
) -> Pairs:
    """Every pair of a detection and a true box of the same image and class, with its IoU (not filtered).

    `region` (n_truth,) marks true boxes whose overlap is measured on the detection alone.
    """
    truth_group = truth.category * images + truth.image
    order = stable_order(truth_group)
    sorted_group = truth_group.take(order)
    start = np.flatnonzero(_starts(sorted_group))
    groups, count = sorted_group.take(start), np.diff(np.append(start, len(truth)))
    group = arranged.group.take(arranged.by_group)
    found = np.searchsorted(groups, group)
    found[found == len(groups)] = 0
    inside = groups[found] == group if len(groups) else np.zeros(len(group), dtype=bool)
    found, position = found[inside], arranged.by_group[inside]
    repeats = count[found]
    position = np.repeat(position, repeats)
    offset = np.arange(len(position)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    true_row = order.take(np.repeat(start[found], repeats) + offset)
    overlap = pair_iou(
        detections.xywh.take(arranged.row.take(position), axis=0),
        truth.xywh.take(true_row, axis=0),
        None if region is None or not region.any() else region.take(true_row),
        plus_one=plus_one,
    )
    return Pairs(position, true_row, arranged.group.take(position), overlap)


def select(pairs: Pairs, keep: NDArray[np.bool_] | Ints) -> Pairs:
    """The pairs picked by a mask or by positions."""
    at = np.flatnonzero(keep) if keep.dtype == np.bool_ else keep
    return Pairs(pairs.position.take(at), pairs.truth.take(at), pairs.group.take(at), pairs.iou.take(at))


def best_only(pairs: Pairs) -> Pairs:
    """Each detection with the one true box it overlaps most; of equal ones the first row."""
    order, first = _sorted_within(pairs, lambda s: (pairs.truth[s], -pairs.iou[s]))
    return select(pairs, order[first])


def threshold_bits(overlap: Floats, thresholds: Floats, *, strict: bool) -> Bits:
    """For each overlap a bit pattern: bit t is set if it passes threshold t."""
    bits = np.zeros(len(overlap), dtype=np.uint64)
    for t, level in enumerate(thresholds):
        passed = overlap > level if strict else overlap >= min(level, 1 - 1e-10)
        bits |= passed.astype(np.uint64) << np.uint64(t)
    return bits


def assign(pairs: Pairs, passed: Bits, ignored: Bools, reusable: Bools) -> Bits:
    """The pairs that become matches, (p,), as bits over the thresholds.

    Detections choose in order of rank. Each takes, among the boxes still free that pass the threshold,
    first one that counts, then an ignored one; among those the largest IoU, of equal ones the last row.
    `reusable` boxes never become taken. `pairs` must be sorted by group and rank; a detection (position)
    may occur in one group only.
    """
    if len(pairs.iou) == 0:
        return np.zeros(0, dtype=np.uint64)
    order = _preference(pairs, ignored)
    wave = _place_in_group(pairs.group[order])
    by_wave = stable_order(wave)
    order = order[by_wave]
    detection, box = pairs.position[order], pairs.truth[order]
    bits, keep = passed[order], reusable[order]
    done = np.zeros(int(detection.max()) + 1, dtype=np.uint64)
    taken = np.zeros(int(box.max()) + 1, dtype=np.uint64)
    hits = np.zeros(len(order), dtype=np.uint64)
    start = 0
    for end in np.cumsum(np.bincount(wave)).tolist():
        now = slice(start, end)
        d, b = detection[now], box[now]
        match = bits[now] & ~(done[d] | taken[b])
        done[d] |= match
        taken[b] |= np.where(keep[now], np.uint64(0), match)
        hits[now] = match
        start = end
    result = np.empty_like(hits)
    result[order] = hits
    return result


def _starts(values: Ints | Floats) -> Bools:
    first = np.ones(len(values), dtype=bool)
    first[1:] = values[1:] != values[:-1]
    return first


def _preference(pairs: Pairs, ignored: Bools) -> Ints:
    """Positions that put each detection's pairs in the order in which it would choose them."""
    return _sorted_within(pairs, lambda s: (-pairs.truth[s], -pairs.iou[s], ignored[s]))[0]


def _sorted_within(
    pairs: Pairs, keys: Callable[[Ints], tuple[NDArray[np.generic], ...]]
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

    Pairs of one wave touch neither the same detection nor the same true box, and the pairs of a group stand
    in the order in which they must be decided.
    """
    place = np.arange(len(group))
    return place - np.maximum.accumulate(np.where(_starts(group), place, 0))
