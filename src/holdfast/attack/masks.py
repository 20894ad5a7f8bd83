"""Masks: which pixels an attack may change, never more than its budget.

`gains` (h, w) is how much each changed pixel helps, by the gradient; negative where none may be changed.
"""

import numpy as np

from holdfast.attack.types import Method, Target
from holdfast.core.extras import require
from holdfast.core.registry import stage
from holdfast.core.types import Bools, Floats, Ints


def inside(target: Target) -> Bools:
    """(h, w): the pixels that any box of the targets covers at least in part."""
    mask = np.zeros(target.image.shape[:2], bool)
    for x1, y1, x2, y2 in _corners(target):
        mask[y1:y2, x1:x2] = True
    return mask


def within(target: Target, method: Method) -> Bools:
    """(h, w): the pixels that an attack by this method may change."""
    if method.inside and len(target.boxes):  # to fabricate needs no boxes
        return inside(target)
    return np.ones(target.image.shape[:2], bool)


@stage("mask")
def square(target: Target, budget: int, gains: Floats, rng: np.random.Generator) -> Bools:
    """One square per target, together as large as the budget, where the gradient is largest."""
    mask = np.zeros(gains.shape, bool)
    # Any position, if pixels outside the boxes may be changed.
    anywhere = (gains[0] >= 0).any() and (gains[-1] >= 0).any()
    for *box, share in _shares(target, budget):
        x1, y1, x2, y2 = (0, 0, gains.shape[1], gains.shape[0]) if anywhere else box
        side = min(int(np.sqrt(share)), x2 - x1, y2 - y1)
        if side < 1:
            continue
        sums = np.pad(gains[y1:y2, x1:x2], ((1, 0), (1, 0))).cumsum(axis=0).cumsum(axis=1)
        total = sums[side:, side:] - sums[:-side, side:] - sums[side:, :-side] + sums[:-side, :-side]
        y, x = divmod(int(total.argmax()), total.shape[1])
        mask[y1 + y : y1 + y + side, x1 + x : x1 + x + side] = True
    return _at_most(mask & (gains >= 0), budget, gains)


@stage("mask")
def cross(target: Target, budget: int, gains: Floats, rng: np.random.Generator) -> Bools:
    """A horizontal and a vertical line, 3 pixels wide, through the middle of each target; ends cut to fit."""
    mask = np.zeros(gains.shape, bool)
    for x1, y1, x2, y2, share in _shares(target, budget):
        x, y = (x1 + x2) // 2, (y1 + y2) // 2
        lines = np.zeros(gains.shape, bool)
        lines[max(y - 1, y1) : min(y + 2, y2), x1:x2] = True
        lines[y1:y2, max(x - 1, x1) : min(x + 2, x2)] = True
        far = np.maximum(*np.abs(np.indices(gains.shape) - np.array([y, x])[:, None, None]))
        mask |= _at_most(lines, share, -far.astype(np.float64))
    return _at_most(mask & (gains >= 0), budget, gains)


@stage("mask")
def grid(target: Target, budget: int, gains: Floats, rng: np.random.Generator) -> Bools:
    """Single pixels in even rows and columns over each target, as close as the budget allows."""
    mask = np.zeros(gains.shape, bool)
    for x1, y1, x2, y2, share in _shares(target, budget):
        width, height = x2 - x1, y2 - y1
        step = max(1, int(np.sqrt(width * height / max(1, share))))
        while -(-width // step) * -(-height // step) > share and step < max(width, height):
            step += 1
        part = np.zeros(gains.shape, bool)
        part[y1 + (height - 1) % step // 2 : y2 : step, x1 + (width - 1) % step // 2 : x2 : step] = True
        mask |= _at_most(part, share, gains)
    return _at_most(mask & (gains >= 0), budget, gains)


@stage("mask")
def half_neighbour(target: Target, budget: int, gains: Floats, rng: np.random.Generator) -> Bools:
    """Clusters around the pixels of largest gradient: each with the better half of its eight neighbours."""
    mask = np.zeros(gains.shape, bool)
    order = rng.permutation(gains.size)  # of equal ones, any first
    order = order[np.argsort(-gains.ravel()[order], kind="stable")]
    for y, x in zip(*np.unravel_index(order, gains.shape), strict=True):
        room = budget - int(mask.sum())
        if room <= 0 or gains[y, x] < 0:
            break
        if mask[y, x]:
            continue
        mask[y, x] = True
        near = np.s_[max(y - 1, 0) : y + 2, max(x - 1, 0) : x + 2]
        around = np.argwhere((gains[near] >= 0) & ~mask[near])
        around += (max(y - 1, 0), max(x - 1, 0))
        best = np.argsort(-gains[tuple(around.T)], kind="stable")[: min(4, room - 1)]
        mask[tuple(around[best].T)] = True
    return mask


@stage("mask", grows=True)
def top_gradient(target: Target, budget: int, gains: Floats, rng: np.random.Generator) -> Bools:
    """The pixels of largest gradient. A search adds them step by step, by the gradient at each."""
    return _at_most(gains >= 0, budget, gains)


def limited(mask: Bools, gains: Floats, budget: int, regions: int, allowed: Bools) -> Bools:
    """The mask with at most `regions` regions: the heaviest ones, grown along the gradient to the budget."""
    grown = heaviest(mask, np.maximum(gains, 0.0) + 1e-12, regions)
    while (room := budget - int(grown.sum())) > 0:
        edge = dilated(grown) & ~grown & allowed
        if not edge.any():
            break
        grown |= _at_most(edge, min(room, max(1, int(edge.sum()) // 2)), gains)
    return grown  # regions can merge here but never split


def _corners(target: Target) -> Ints:
    """(n, 4) xyxy of the targets in whole pixels, cut to the image, each at least one pixel wide and high."""
    height, width = target.image.shape[:2]
    low = np.floor(target.boxes.xyxy[:, :2]).astype(np.int64).clip(0, [width - 1, height - 1])
    high = np.ceil(target.boxes.xyxy[:, 2:]).astype(np.int64).clip(low + 1, [width, height])
    return np.concatenate([low, high], axis=1)


def _shares(target: Target, budget: int) -> list[list[int]]:
    """Per target its corners, and its share of the budget by the length of its sides."""
    boxes = _corners(target)
    length = np.sqrt(np.prod(boxes[:, 2:] - boxes[:, :2], axis=1).astype(np.float64))
    ends = np.floor(budget * np.cumsum(length) / length.sum() + 1e-9).astype(np.int64)
    shares: list[list[int]] = np.column_stack([boxes, np.diff(ends, prepend=0)]).tolist()
    return shares


def _at_most(mask: Bools, budget: int, gains: Floats) -> Bools:
    """The mask, or its `budget` pixels of largest gain if it has more."""
    if int(mask.sum()) <= budget:
        return mask
    indices = np.flatnonzero(mask)
    best = indices[np.argsort(-gains.ravel()[indices], kind="stable")[: max(budget, 0)]]
    selected = np.zeros(mask.size, bool)
    selected[best] = True
    return selected.reshape(mask.shape)


def labelled(mask: Bools) -> tuple[int, Ints]:
    """Number of regions (8 neighbours) of a mask, and the region of each pixel, 0 outside."""
    cv2 = require("an attack", "cv2", "attack")
    count, labels = cv2.connectedComponents(np.ascontiguousarray(mask, np.uint8), connectivity=8)
    return count - 1, np.asarray(labels, np.int64)


def count_regions(mask: Bools) -> int:
    """Number of regions (8 neighbours) of a mask."""
    return labelled(mask)[0]


def heaviest(mask: Bools, weights: Floats, count: int) -> Bools:
    """The `count` regions of largest weight of a mask."""
    regions, labels = labelled(mask)
    if regions <= count:
        return mask
    totals = np.bincount(labels.ravel(), weights=weights.ravel(), minlength=regions + 1)[1:]
    return np.isin(labels, np.argsort(-totals, kind="stable")[:count] + 1)


def dilated(mask: Bools) -> Bools:
    """The mask and all pixels that touch it."""
    cv2 = require("an attack", "cv2", "attack")
    return np.asarray(cv2.dilate(np.ascontiguousarray(mask, np.uint8), np.ones((3, 3), np.uint8)), bool)
