"""Class-wise greedy non-maximum suppression, vectorised over blocks of candidates."""

import numpy as np

from holdfast.core.types import Bools, Floats, Ints

BLOCK = 192  # candidates compared with one another at a time; small enough to stay in the cache


def nms(
    boxes: Floats,
    scores: Floats,
    classes: Ints,
    iou: float,
    *,
    strict: bool = True,
    plus: float = 0.0,
    max_detections: int | None = None,
) -> Ints:
    """Indices of the boxes to keep, best score first; equal scores keep their order.

    A box is dropped when a retained box of its class with a better score overlaps it by more than `iou`, or,
    if not `strict`, by at least `iou`. `plus` is added to every side: 1 counts the last pixel.
    """
    if max_detections is not None and max_detections <= 1000:
        order = _best(scores, 20 * max_detections)
        keep = order[_keep(boxes[order], classes[order], iou, strict, plus, max_detections)]
        if len(keep) == max_detections or len(order) == len(scores):
            return keep
    order = np.argsort(-scores, kind="stable")
    # Without a limit the search cannot end early: compare boxes class by class.
    stays = np.zeros(len(order), bool)
    by_class = np.argsort(classes[order], kind="stable")
    for members in np.split(by_class, np.flatnonzero(np.diff(classes[order][by_class])) + 1):
        own = order[members]
        stays[members[_keep(boxes[own], classes[own], iou, strict, plus, len(own))]] = True
    return order[stays][:max_detections]


def _best(scores: Floats, count: int) -> Ints:
    """The indices of at least the `count` best scores, sorted; all that equal the last one are among them."""
    if len(scores) <= count:
        return np.argsort(-scores, kind="stable")
    least = np.partition(scores, len(scores) - count)[len(scores) - count]
    chosen = np.flatnonzero(scores >= least)
    return chosen[np.argsort(-scores[chosen], kind="stable")]


def _keep(boxes: Floats, classes: Ints, iou: float, strict: bool, plus: float, limit: int) -> Ints:
    """Positions to keep, at most `limit`, among boxes sorted by descending score."""

    def hits(a: Ints, b: Ints) -> Bools:
        """(n, m): whether box a overlaps box b too much and is of its class."""
        overlap = ious(boxes[a], boxes[b], plus)
        too_much = overlap > iou if strict else overlap >= iou
        return np.asarray(too_much & (classes[a, None] == classes[None, b]), bool)

    keep = np.zeros(0, np.int64)
    for start in range(0, len(boxes), BLOCK):
        if len(keep) >= limit:
            break
        block = np.arange(start, min(start + BLOCK, len(boxes)))
        block = block[~hits(keep, block).any(axis=0)]
        later = np.triu(hits(block, block), 1)  # each removes those after it, if it stays itself
        alive = np.ones(len(block), bool)
        for i in np.flatnonzero(later.any(axis=1)):
            if alive[i]:
                alive &= ~later[i]
        keep = np.concatenate([keep, block[alive]])
    return keep[:limit]


def ious(a: Floats, b: Floats, plus: float = 0.0) -> Floats:
    """Intersection over union (n, m) of boxes a (n, 4) and b (m, 4), xyxy; 0 where both are empty."""

    def side_of(i: int) -> Floats:  # in place: this is where NMS spends its time
        side = np.minimum(a[:, None, i + 2], b[None, :, i + 2])
        side -= np.maximum(a[:, None, i], b[None, :, i])
        side += plus
        return np.maximum(side, 0.0, out=side)

    inter = side_of(0)
    inter *= side_of(1)
    areas = [np.maximum(boxes[:, 2:] - boxes[:, :2] + plus, 0.0).prod(axis=1) for boxes in (a, b)]
    union = areas[0][:, None] + areas[1][None, :]
    union -= inter
    return np.asarray(np.divide(inter, union, out=np.zeros_like(inter), where=union > 0))
