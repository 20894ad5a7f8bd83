"""Boxes: areas, overlaps, and all boxes of a dataset as columns, one row per box."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from holdfast.core.errors import InputError
from holdfast.core.types import Bools, Floats, Ints


def as_boxes(boxes: ArrayLike, name: str = "boxes") -> Floats:
    """The boxes as a (n, 4) float64 array; an empty list becomes (0, 4)."""
    array = np.asarray(boxes, dtype=np.float64)
    if array.size == 0:
        return array.reshape(0, 4)
    if array.ndim != 2 or array.shape[1] != 4:
        raise InputError(f"{name}: expected an array of shape (n, 4), got {array.shape}")
    return array


def xywh_to_xyxy(boxes: ArrayLike) -> Floats:
    """Corners (x1, y1, x2, y2) of boxes in the form corner and size (x, y, w, h)."""
    xywh = as_boxes(boxes)
    return np.concatenate([xywh[:, :2], xywh[:, :2] + xywh[:, 2:]], axis=1)


def xyxy_to_xywh(boxes: ArrayLike) -> Floats:
    """Corner and size (x, y, w, h) of boxes in the form of corners (x1, y1, x2, y2)."""
    xyxy = as_boxes(boxes)
    return np.concatenate([xyxy[:, :2], xyxy[:, 2:] - xyxy[:, :2]], axis=1)


def area(boxes: ArrayLike, *, plus_one: bool = False) -> Floats:
    """Area of each xyxy box, (n,); with `plus_one` the last pixel counts: (x2 − x1 + 1)(y2 − y1 + 1)."""
    xyxy = as_boxes(boxes)
    size = np.maximum(xyxy[:, 2:] - xyxy[:, :2] + float(plus_one), 0.0)
    return size[:, 0] * size[:, 1]


def iou(a: ArrayLike, b: ArrayLike, *, crowd: ArrayLike | None = None, plus_one: bool = False) -> Floats:
    """Overlap of every xyxy box of `a` (n) with every one of `b` (m), (n, m): |a ∩ b| / |a ∪ b|.

    `crowd` (m) marks boxes of `b` that stand for a whole region: there the ratio is |a ∩ b| / |a|.
    Disjoint boxes and empty boxes have overlap 0.
    """
    first, second = as_boxes(a, "a"), as_boxes(b, "b")
    low = np.maximum(first[:, None, :2], second[None, :, :2])
    high = np.minimum(first[:, None, 2:], second[None, :, 2:])
    size = np.maximum(high - low + float(plus_one), 0.0)
    inner = size[..., 0] * size[..., 1]
    area_a, area_b = area(first, plus_one=plus_one)[:, None], area(second, plus_one=plus_one)[None, :]
    union = area_a + area_b - inner
    if crowd is not None:
        union = np.where(np.asarray(crowd, dtype=bool)[None, :], area_a, union)
    return _quotient(inner, union)


def pair_iou(a: Floats, b: Floats, crowd: Bools | None = None, *, plus_one: bool = False) -> Floats:
    """Overlap of row i of `a` with row i of `b`, (n,), both **xywh**.

    Same ratio as `iou`, but from corner and size in the order of operations of COCO's C code,
    so that an overlap that lies exactly on a threshold falls on the same side.
    """
    extra = float(plus_one)
    width = np.minimum(a[:, 0] + a[:, 2], b[:, 0] + b[:, 2]) - np.maximum(a[:, 0], b[:, 0]) + extra
    height = np.minimum(a[:, 1] + a[:, 3], b[:, 1] + b[:, 3]) - np.maximum(a[:, 1], b[:, 1]) + extra
    inner = np.maximum(width, 0.0) * np.maximum(height, 0.0)
    area_a = (a[:, 2] + extra) * (a[:, 3] + extra)
    union = area_a + (b[:, 2] + extra) * (b[:, 3] + extra) - inner
    if crowd is not None:
        union = np.where(crowd, area_a, union)
    return _quotient(inner, union)


def _quotient(inner: Floats, union: Floats) -> Floats:
    """The ratio, 0 for disjoint boxes."""
    return np.divide(inner, union, out=np.zeros_like(inner), where=inner > 0.0)


@dataclass(frozen=True, eq=False)
class _BoxTable:
    """Boxes as xywh in the order of the file; image and category are *indices* 0, 1, 2 …, never file ids."""

    image: Ints
    category: Ints
    xywh: Floats

    def __len__(self) -> int:
        return len(self.image)

    @property
    def xyxy(self) -> Floats:
        """The boxes as corners, (n, 4)."""
        return xywh_to_xyxy(self.xywh)


@dataclass(frozen=True, eq=False)
class TruthTable(_BoxTable):
    """The true boxes; `area` may differ from w·h (COCO's is the mask's)."""

    area: Floats
    crowd: Bools
    difficult: Bools


@dataclass(frozen=True, eq=False)
class DetectionTable(_BoxTable):
    """The detected boxes with one score each."""

    score: Floats


def truth_table(
    image: ArrayLike,
    category: ArrayLike,
    *,
    xyxy: ArrayLike | None = None,
    xywh: ArrayLike | None = None,
    area: ArrayLike | None = None,
    crowd: ArrayLike | None = None,
    difficult: ArrayLike | None = None,
) -> TruthTable:
    """A checked `TruthTable`; area defaults to w·h, crowd and difficult to no."""
    boxes = _boxes(xyxy, xywh)
    n = len(boxes)
    columns = _indices(image, n, "image"), _indices(category, n, "category"), boxes
    areas = _column(boxes[:, 2] * boxes[:, 3] if area is None else area, n, "area")
    crowds = _column(np.zeros(n) if crowd is None else crowd, n, "crowd").astype(bool)
    difficults = _column(np.zeros(n) if difficult is None else difficult, n, "difficult").astype(bool)
    return TruthTable(*columns, areas, crowds, difficults)


def detection_table(
    image: ArrayLike,
    category: ArrayLike,
    score: ArrayLike,
    *,
    xyxy: ArrayLike | None = None,
    xywh: ArrayLike | None = None,
) -> DetectionTable:
    """A checked `DetectionTable`."""
    boxes = _boxes(xyxy, xywh)
    n = len(boxes)
    columns = _indices(image, n, "image"), _indices(category, n, "category"), boxes
    return DetectionTable(*columns, _column(score, n, "score"))


def check_range(table: TruthTable | DetectionTable, images: int, classes: int, name: str) -> None:
    """Raise InputError unless every index of the table is below `images` and `classes`."""
    for field, column, limit in (("image", table.image, images), ("category", table.category, classes)):
        wrong = np.flatnonzero(column >= limit)
        if len(wrong):
            got = f"{field} index {column[wrong[0]]}"
            raise InputError(f"{name} row {wrong[0]}: {got} but there are only {limit}")


def _boxes(xyxy: ArrayLike | None, xywh: ArrayLike | None) -> Floats:
    if (xyxy is None) == (xywh is None):
        raise InputError("expected boxes either as xyxy or as xywh, got both or neither")
    boxes = as_boxes(xywh, "xywh") if xywh is not None else xyxy_to_xywh(np.asarray(xyxy))
    wrong = np.flatnonzero(~np.isfinite(boxes).all(axis=1) | (boxes[:, 2:] < 0).any(axis=1))
    if len(wrong):
        got = boxes[wrong[0]].tolist()
        raise InputError(f"boxes row {wrong[0]}: expected finite numbers and sides ≥ 0, got xywh {got}")
    return boxes


def _column(values: ArrayLike, n: int, name: str) -> Floats:
    column = np.asarray(values, dtype=np.float64).reshape(-1)
    if len(column) != n:
        raise InputError(f"{name}: expected {n} values, one per box, got {len(column)}")
    wrong = np.flatnonzero(np.isnan(column))
    if len(wrong):
        raise InputError(f"{name} row {int(wrong[0])}: expected a number, got NaN")
    return column


def _indices(values: ArrayLike, n: int, name: str) -> Ints:
    column = np.asarray(values).reshape(-1)
    if len(column) != n:
        raise InputError(f"{name}: expected {n} indices, one per box, got {len(column)}")
    if len(column) and (not np.issubdtype(column.dtype, np.integer) or int(column.min()) < 0):
        raise InputError(f"{name}: expected indices 0, 1, 2 …, got {column.dtype} from {column.min()}")
    return column.astype(np.int64)


def single_values(
    boxes: ArrayLike, classes: ArrayLike, true_boxes: ArrayLike, true_classes: ArrayLike
) -> Floats:
    """IoU · equal(class) of each image, (n,), the output of CCTSDB-YOLO; boxes are xyxy, one per image."""
    first, second = as_boxes(boxes, "boxes"), as_boxes(true_boxes, "true_boxes")
    predicted, expected = np.asarray(classes).reshape(-1), np.asarray(true_classes).reshape(-1)
    sizes = {len(first), len(second), len(predicted), len(expected)}
    if len(sizes) != 1:
        raise InputError(f"expected one box and one class per image on both sides, got sizes {sorted(sizes)}")
    proper = (area(first) > 0) & (area(second) > 0)  # corners in the wrong order enclose nothing
    overlap = pair_iou(xyxy_to_xywh(first), xyxy_to_xywh(second))
    return np.where(proper & (predicted == expected), overlap, 0.0)


def single_result(values: Floats) -> dict[str, float]:
    """The mean of the outputs of all images and the share above 0.5; NaN without images."""
    columns = {"iou_equal": values, "above_half": values > 0.5}
    return {name: float(column.mean()) if len(values) else float("nan") for name, column in columns.items()}
