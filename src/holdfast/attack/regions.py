"""Regions of a mask: pixels that touch one another, corners included."""

from __future__ import annotations

import numpy as np

from holdfast.core.types import Bools, Floats, Ints


def labelled(mask: Bools) -> tuple[int, Ints]:
    """How many regions (8 neighbours) a mask has, and the number of each pixel's, 0 outside."""
    import cv2

    count, labels = cv2.connectedComponents(np.ascontiguousarray(mask, np.uint8), connectivity=8)
    return count - 1, np.asarray(labels, np.int64)


def count_regions(mask: Bools) -> int:
    """How many regions (8 neighbours) a mask has."""
    return labelled(mask)[0]


def heaviest(mask: Bools, weights: Floats, count: int) -> Bools:
    """The mask without all but the `count` regions of largest weight."""
    found, labels = labelled(mask)
    if found <= count:
        return mask
    heavy = np.bincount(labels.ravel(), weights=weights.ravel(), minlength=found + 1)[1:]
    kept = np.argsort(-heavy, kind="stable")[:count] + 1
    return np.asarray(np.isin(labels, kept), bool)


def dilated(mask: Bools) -> Bools:
    """The mask and all pixels that touch it."""
    padded = np.pad(mask, 1)
    rows, columns = mask.shape
    found = np.zeros_like(mask)
    for y in range(3):
        for x in range(3):
            found |= padded[y : y + rows, x : x + columns]
    return found
