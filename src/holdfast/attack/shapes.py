"""Shapes: one contiguous patch per target, its outline, its size and its position.

A patch is inscribed in a square of `side` pixels: the square itself, the disc, or (sign) a regular octagon.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from holdfast.attack.masks import corners, shares
from holdfast.attack.types import Limits, Method, PatchShape, Sticker, Target
from holdfast.core.errors import ImageError, InputError
from holdfast.core.types import Bools, Floats, Ints

STICKER = ("shift", "scale", "rotation", "light", "jpeg")  # what a printed patch must survive
CUT = 1 / (2 + math.sqrt(2))  # of the side: what a regular octagon lacks at each corner of its square
LONGEST = 100_000.0  # centimetres of an object
_NUMBER = r"(\d+(?:\.\d*)?|\.\d+)\s*"
Unit: TypeAlias = Literal["px", "%", "cm"]


@dataclass(frozen=True)
class PatchSize:
    """The side of a patch in pixels or centimetres, or its area as a share of the box of its object."""

    value: float
    unit: Unit


def size_of(method: Method) -> PatchSize | None:
    """The size of the patches; None if the pixel budget determines it.

    Raise InputError if the text is not a size, or not one of a patch on an object.
    """
    width = sign_width(method.sign_size)
    if not method.size:
        return None
    match = re.fullmatch(rf"{_NUMBER}(px|%|cm)", method.size.strip())
    value = float(match[1]) if match else 0.0
    if not match or value <= 0 or (match[2] == "px" and not value.is_integer()):
        raise InputError(
            f"--size: expected whole pixels, a percentage or centimetres above 0, such as 38px, 10% or 12cm, "
            f"got {method.size!r}"
        )
    unit: Unit = "px" if match[2] == "px" else "%" if match[2] == "%" else "cm"
    if unit == "cm" and not width:
        raise InputError(f"--size {method.size}: needs the width of the object, such as --sign-size 60cm")
    if value > {"px": math.inf, "%": 100.0, "cm": width}[unit]:
        whole = f"--sign-size {method.sign_size}" if unit == "cm" else "100%"
        raise InputError(f"--size {method.size}: larger than the object ({whole})")
    return PatchSize(value, unit)


def sign_width(text: str) -> float:
    """The width of the objects in centimetres, from a text such as 60cm; 0 if it is empty."""
    match = re.fullmatch(rf"{_NUMBER}cm", text.strip())
    width = float(match[1]) if match else 0.0
    if text and not 0 < width <= LONGEST:
        raise InputError(f"--sign-size: expected centimetres such as 60cm, got {text!r}")
    return width


def outline(shape: PatchShape, side: int) -> Bools:
    """(side, side): the pixels of a shape whose centres are inside it."""
    if shape == "square":
        return np.ones((side, side), bool)
    centre = np.abs(np.arange(side) - (side - 1) / 2)  # distance of pixels from the middle
    down, across = centre[:, None], centre[None, :]
    if shape == "circle":
        return np.asarray(down**2 + across**2 <= (side / 2) ** 2)
    return np.asarray(down + across <= side * (1 - CUT))


def side_of_area(shape: PatchShape, area: float) -> int:
    """The largest side at which the shape has at most `area` pixels; 0 if even one is too many."""
    side = math.isqrt(int(area))
    while int(outline(shape, side + 1).sum()) <= area:
        side += 1
    return side


def stickers(
    target: Target, method: Method, limits: Limits, gains: Floats, tried: tuple[Sticker, ...] = ()
) -> tuple[Sticker, ...]:
    """One patch per target where the gradient is largest, apart from the others if there is room.

    `gains` (h, w) is how much each changed pixel helps. Positions near one of `tried` come last. Raise
    ImageError if a patch does not fit its object.
    """
    height, width = gains.shape
    boxes = corners(target) if len(target.boxes) else np.array([[0, 0, width, height]])
    widths = np.diff(target.boxes.xyxy[:, ::2], axis=1)[:, 0] if len(target.boxes) else np.array([width])
    size, sign = size_of(method), sign_width(method.sign_size)
    placed: list[Sticker] = []
    for box, wide, side in zip(boxes, widths, _sides(target, method, limits, boxes, widths), strict=True):
        if not side:  # the pixel budget has no pixel for this target
            continue
        room = box
        if not method.inside:  # on or beside the object
            reach = np.array([-side, -side, side, side])
            room = (box + reach).clip(0, [width, height, width, height])
        scores = _scores(gains, outline(method.shape, side), room)
        for near in (_near(scores, room, tried, side / 4), _touching(scores, room, side, placed)):
            if not near.all():
                scores = np.where(near, -np.inf, scores)
        y, x = divmod(int(scores.argmax()), scores.shape[1])
        centimetres = size.value if size and size.unit == "cm" else side * sign / float(wide)
        placed.append(Sticker(int(room[0]) + x, int(room[1]) + y, side, centimetres))
    return tuple(placed)


def mask_of(placed: tuple[Sticker, ...], shape: PatchShape, size: tuple[int, int]) -> Bools:
    """(h, w): the pixels of all patches."""
    mask = np.zeros(size, bool)
    for one in placed:
        mask[one.y : one.y + one.side, one.x : one.x + one.side] |= outline(shape, one.side)
    return mask


def _sides(target: Target, method: Method, limits: Limits, boxes: Ints, widths: Floats) -> list[int]:
    """The side of each target's patch, by the size asked for or by its share of the pixel budget."""
    rooms = (boxes[:, 2:] - boxes[:, :2]).min(axis=1).tolist()
    size = size_of(method)
    if size is None:
        budgets = shares(target, limits.pixels) if len(target.boxes) else [limits.pixels]
        return [min(side_of_area(method.shape, b), room) for b, room in zip(budgets, rooms, strict=True)]
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1).tolist()
    sides = []
    for area, room, wide in zip(areas, rooms, widths.tolist(), strict=True):
        if size.unit == "%":
            side = max(1, side_of_area(method.shape, area * size.value / 100))
        else:
            scale = 1.0 if size.unit == "px" else wide / sign_width(method.sign_size)
            side = max(1, round(size.value * scale))
        # An object that the image's border cuts is as large as what is visible of it.
        if side > room:
            raise ImageError(
                f"--size {method.size}: a patch of {side}×{side} pixels is larger than its object, whose "
                f"shorter side is {room} pixels"
            )
        sides.append(side)
    return sides


def _scores(gains: Floats, shape: Bools, room: Ints) -> Floats:
    """The sum of gains under the shape, per position of its top left pixel in the room (x1, y1, x2, y2)."""
    x1, y1, x2, y2 = room.tolist()
    side = len(shape)
    sums = np.pad(gains[y1:y2, x1:x2], ((0, 0), (1, 0))).cumsum(axis=1)
    total = np.zeros((y2 - y1 - side + 1, x2 - x1 - side + 1))
    first = shape.argmax(
        axis=1
    ).tolist()  # every row of a shape is one run, the same distance from both sides
    for row, left in enumerate(first):
        part = sums[row : row + len(total)]
        right = part[:, side - left : side - left + total.shape[1]]
        total += right - part[:, left : left + total.shape[1]]
    return total


def _touching(scores: Floats, room: Ints, side: int, placed: Sequence[Sticker]) -> Bools:
    """The positions of `_scores` at which a patch would touch the square of an earlier one."""
    y, x = _positions(scores, room)
    touching = np.zeros(scores.shape, bool)
    for one in placed:
        across = (x <= one.x + one.side) & (x + side >= one.x)
        touching |= across & (y <= one.y + one.side) & (y + side >= one.y)
    return touching


def _near(scores: Floats, room: Ints, tried: Sequence[Sticker], reach: float) -> Bools:
    """The positions of `_scores` within `reach` pixels of one of `tried`, along both sides."""
    y, x = _positions(scores, room)
    near = np.zeros(scores.shape, bool)
    for one in tried:
        near |= (np.abs(x - one.x) <= reach) & (np.abs(y - one.y) <= reach)
    return near


def _positions(scores: Floats, room: Ints) -> tuple[Ints, Ints]:
    """Rows (h, 1) and columns (1, w) in the image of the positions of `_scores`."""
    rows, columns = np.ogrid[: scores.shape[0], : scores.shape[1]]
    return rows + int(room[1]), columns + int(room[0])
