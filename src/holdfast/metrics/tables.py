"""Tables: all boxes of a data set as columns, one row a box."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from holdfast.core.errors import InputError
from holdfast.core.types import Bools, Floats, Ints
from holdfast.metrics.boxes import as_boxes, xywh_to_xyxy, xyxy_to_xywh


@dataclass(frozen=True, eq=False)
class TruthTable:
    """The true boxes: image and category are *indices* 0, 1, 2 …, never the ids of a file.

    Boxes are kept as xywh, in the order of the file; `area` may differ from w·h (COCO's is the mask's).
    """

    image: Ints
    category: Ints
    xywh: Floats
    area: Floats
    crowd: Bools
    difficult: Bools

    def __len__(self) -> int:
        return len(self.image)

    @property
    def xyxy(self) -> Floats:
        """The boxes as corners, (n, 4)."""
        return xywh_to_xyxy(self.xywh)


@dataclass(frozen=True, eq=False)
class DetectionTable:
    """The detected boxes with one score each; image and category are indices as in `TruthTable`."""

    image: Ints
    category: Ints
    xywh: Floats
    score: Floats

    def __len__(self) -> int:
        return len(self.image)

    @property
    def xyxy(self) -> Floats:
        """The boxes as corners, (n, 4)."""
        return xywh_to_xyxy(self.xywh)


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
    no = np.zeros(n, dtype=bool)
    return TruthTable(
        _indices(image, n, "image"),
        _indices(category, n, "category"),
        boxes,
        boxes[:, 2] * boxes[:, 3] if area is None else _column(area, n, "area"),
        no if crowd is None else _column(crowd, n, "crowd").astype(bool),
        no if difficult is None else _column(difficult, n, "difficult").astype(bool),
    )


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
    return DetectionTable(
        _indices(image, n, "image"), _indices(category, n, "category"), boxes, _column(score, n, "score")
    )


def check_range(table: TruthTable | DetectionTable, images: int, classes: int, name: str) -> None:
    """Nothing, if every index of the table lies inside `images` and `classes`."""
    for field, column, limit in (("image", table.image, images), ("category", table.category, classes)):
        wrong = np.flatnonzero(column >= limit)
        if len(wrong):
            row = int(wrong[0])
            raise InputError(f"{name} row {row}: {field} index {column[row]} but there are only {limit}")


def _boxes(xyxy: ArrayLike | None, xywh: ArrayLike | None) -> Floats:
    if (xyxy is None) == (xywh is None):
        raise InputError("give the boxes either as xyxy or as xywh, not both and not neither")
    boxes = as_boxes(xywh, "xywh") if xywh is not None else xyxy_to_xywh(np.asarray(xyxy))
    wrong = np.flatnonzero(~np.isfinite(boxes).all(axis=1) | (boxes[:, 2:] < 0).any(axis=1))
    if len(wrong):
        row = int(wrong[0])
        raise InputError(
            f"boxes row {row}: expected finite numbers and sides ≥ 0, got xywh {boxes[row].tolist()}"
        )
    return boxes


def _column(values: ArrayLike, n: int, name: str) -> Floats:
    column = np.asarray(values, dtype=np.float64).reshape(-1)
    if len(column) != n:
        raise InputError(f"{name}: expected {n} values, one a box, got {len(column)}")
    wrong = np.flatnonzero(np.isnan(column))
    if len(wrong):
        raise InputError(f"{name} row {int(wrong[0])}: expected a number, got NaN")
    return column


def _indices(values: ArrayLike, n: int, name: str) -> Ints:
    column = np.asarray(values).reshape(-1)
    if len(column) != n:
        raise InputError(f"{name}: expected {n} indices, one a box, got {len(column)}")
    if len(column) and (not np.issubdtype(column.dtype, np.integer) or int(column.min()) < 0):
        raise InputError(f"{name}: expected indices 0, 1, 2 …, got {column.dtype} from {column.min()}")
    return column.astype(np.int64)
