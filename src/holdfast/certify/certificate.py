"""What the detections on masked images prove about one object, for patches of every size and place.

Let m be a detection on the image with a mask that covers the whole patch: no content of the patch changes it.
The defence drops m only if a reported box b covers at least a share τ of m, else it reports a box around m.
In both cases a reported box covers more than the share T of the object g if

    (τ |m| − |m ∖ g|) / |g| > T

The left side is the *gain* of the mask. Every mask with a gain above T certifies the places it covers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from holdfast.core.types import Bools, Detections, Floats, Ints, Size
from holdfast.metrics.boxes import area
from holdfast.stages.masks import covering

NEAR = 0.1  # of the image's width and height: how far a patch is "close" to an object
DIGITS = 6  # of a gain, rounded down
NO_GAIN = -1.0
Region: TypeAlias = Literal["far", "close", "over", "everywhere"]
REGIONS: tuple[Region, ...] = ("far", "close", "over", "everywhere")


class Places(NamedTuple):
    """A rectangle of places of a patch's upper left pixel: left ≤ x < right, top ≤ y < bottom."""

    left: int
    top: int
    right: int
    bottom: int

    @property
    def total(self) -> int:
        """How many places it has."""
        return max(0, self.right - self.left) * max(0, self.bottom - self.top)

    def within(self, other: Places) -> Places:
        """The places that are in both."""
        low = max(self.left, other.left), max(self.top, other.top)
        return Places(
            *low, max(low[0], min(self.right, other.right)), max(low[1], min(self.bottom, other.bottom))
        )


def all_places(size: Size, side: int) -> Places:
    """Every place of a patch of that side in the image."""
    return Places(0, 0, max(0, size.width - side + 1), max(0, size.height - side + 1))


@dataclass(frozen=True)
class ObjectCertificate:
    """The gain of every mask for one object: with detections of its class, and of any class."""

    label: str
    box: tuple[float, ...]  # x1, y1, x2, y2 in the pixels where the patch is
    area: float  # as the data states it
    gains: tuple[float, ...]
    any_class: tuple[float, ...]

    def good(self, overlap: float, *, matched: bool = True) -> Bools:
        """The masks (n,) with a detection that proves a covered share of more than `overlap`."""
        return np.array(self.gains if matched else self.any_class) > overlap


@dataclass(frozen=True)
class ImageCertificate:
    """The masks of an image, in the pixels where the patch is, and its objects."""

    name: str
    size: Size
    masks: tuple[tuple[int, ...], ...]
    objects: tuple[ObjectCertificate, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", Size(*self.size))  # a list in a file

    def certifying(self, number: int, overlap: float = 0.0, *, matched: bool = True) -> Ints:
        """The masks (n, 4) that certify the places they cover, for one object."""
        masks = np.array(self.masks, np.int64).reshape(-1, 4)
        return masks[self.objects[number].good(overlap, matched=matched)]

    def is_certified(
        self, number: int, places: Any, side: int, overlap: float = 0.0, *, matched: bool = True
    ) -> Bools:
        """Whether a patch of that side at each place x, y (n, 2) cannot hide the object, (n,)."""
        masks = self.certifying(number, overlap, matched=matched)
        return np.asarray(covering(masks, places, side).any(axis=0))

    def vulnerable(self, number: int, side: int, overlap: float = 0.0, *, matched: bool = True) -> Places:
        """The rectangle of places that half-planes leave uncertified; it has none if the object is safe."""
        return vulnerable_rectangle(self.certifying(number, overlap, matched=matched), self.size, side)

    def verdicts(
        self, number: int, side: int, overlap: float = 0.0, *, matched: bool = True
    ) -> dict[Region, tuple[int, int]]:
        """Per region the number of its places, and of those that are not certified."""
        masks = self.certifying(number, overlap, matched=matched)
        rectangle = vulnerable_rectangle(masks, self.size, side)
        left = uncovered(masks, rectangle, side)
        every, (over, near) = all_places(self.size, side), regions(self.objects[number].box, self.size, side)
        inside = {"everywhere": every, "near": near, "over": over}
        counts = {name: (part.total, _count(left, rectangle, part)) for name, part in inside.items()}
        (n_all, open_all), (n_near, open_near), (n_over, open_over) = counts.values()
        return {
            "far": (n_all - n_near, open_all - open_near),
            "close": (n_near - n_over, open_near - open_over),
            "over": (n_over, open_over),
            "everywhere": (n_all, open_all),
        }


@dataclass(frozen=True)
class AttackedPlace:
    """The attack on one object by a patch at one place."""

    image: str
    number: int  # of the object in the image
    label: str
    x: int
    y: int
    side: int
    certified: bool
    hidden: bool
    queries: int


def vulnerable_rectangle(masks: Ints, size: Size, side: int) -> Places:
    """The places that no half-plane among the masks covers.

    Half-planes of one direction are nested, so the widest of each direction decides: a patch at x is covered
    from the left up to x + side ≤ x2, and from the right from x ≥ x1 on.
    """
    width, height = size
    x1, y1, x2, y2 = masks.T
    tall, wide = (y1 <= 0) & (y2 >= height), (x1 <= 0) & (x2 >= width)
    left = x2[tall & (x1 <= 0)].max(initial=0) - side + 1
    right = x1[tall & (x2 >= width)].min(initial=width)
    top = y2[wide & (y1 <= 0)].max(initial=0) - side + 1
    bottom = y1[wide & (y2 >= height)].min(initial=height)
    places = Places(int(left), int(top), int(right), int(bottom)).within(all_places(size, side))
    return places if places.total else Places(0, 0, 0, 0)


def uncovered(masks: Ints, places: Places, side: int) -> Bools:
    """Whether no mask covers the patch at each of the places, (rows, columns)."""
    left, top, right, bottom = places
    free = np.ones((max(0, bottom - top), max(0, right - left)), bool)
    x1, y1, x2, y2 = masks.T
    meets = (x1 < right) & (x2 - side >= left) & (y1 < bottom) & (y2 - side >= top)
    for x1, y1, x2, y2 in masks[meets].tolist():
        rows = slice(max(0, y1 - top), max(0, y2 - side + 1 - top))
        free[rows, max(0, x1 - left) : max(0, x2 - side + 1 - left)] = False
    return free


def regions(box: Sequence[float], size: Size, side: int) -> tuple[Places, Places]:
    """The places where the patch meets the box, and those where it is over or close to it.

    Close: the gap is at most a tenth of the image's width and of its height.
    """
    every = all_places(size, side)
    x1, y1, x2, y2 = box
    # The patch has the area x … x + side: it meets the box if x < x2 and x + side > x1.
    low = np.floor(np.array([x1, y1]) - side).astype(int) + 1
    high = np.ceil(np.array([x2, y2])).astype(int)
    over = Places(*low.tolist(), *high.tolist()).within(every)
    gap = NEAR * np.array(size)
    low = np.ceil(np.array([x1, y1]) - gap - side).astype(int)
    high = np.floor(np.array([x2, y2]) + gap).astype(int) + 1
    return over, Places(*low.tolist(), *high.tolist()).within(every)


def _count(left: Bools, at: Places, part: Places) -> int:
    common = part.within(at)
    rows = slice(common.top - at.top, common.bottom - at.top)
    return int(left[rows, common.left - at.left : common.right - at.left].sum()) if common.total else 0


def gains_of(
    boxes: Floats, classes: Ints, detections: Detections, masks: Ints, *, count: int, share: float
) -> tuple[Floats, Floats]:
    """The gain of each of `count` masks for each object (n, 4): (n, count), class-matched and any class.

    `masks` (k,) is the mask of each detection; `share` is the τ of the defence.
    """
    matched, any_class = (np.full((len(boxes), count), NO_GAIN) for _ in range(2))
    if len(boxes) and len(detections):
        low = np.maximum(boxes[:, None, :2], detections.boxes[None, :, :2])
        high = np.minimum(boxes[:, None, 2:], detections.boxes[None, :, 2:])
        inner = np.maximum(high - low, 0.0).prod(axis=2)
        own = area(detections.boxes)[None, :]
        gains = (share * own - (own - inner)) / area(boxes)[:, None]
        gains = np.maximum(np.floor(gains * 10**DIGITS) / 10**DIGITS, NO_GAIN)
        same = classes[:, None] == detections.classes[None, :]
        for n in range(len(boxes)):
            np.maximum.at(any_class[n], masks, gains[n])
            np.maximum.at(matched[n], masks[same[n]], gains[n][same[n]])
    return matched, any_class
