"""The kinds of problems a dataset can have, which of them are only notes, and the check of truth boxes."""

import math
from collections.abc import Iterable, Sequence

from holdfast.core.dataset import DataProblem
from holdfast.core.types import Size
from holdfast.data.entries import BoxRow

MISSING_FILE = "missing file"
EMPTY_FILE = "empty file"
UNREADABLE_IMAGE = "unreadable image"
TRUNCATED_IMAGE = "truncated image"
SIZE_DIFFERS = "stated size differs"
UNREADABLE_LABEL = "unreadable label"
NOT_A_NUMBER = "coordinate is not a number"
EMPTY_BOX = "empty box"
BOX_OUTSIDE = "box outside the image"
UNKNOWN_CLASS = "unknown class"
DUPLICATE_CLASS = "duplicate class name"
DUPLICATE_ID = "duplicate id"
DUPLICATE_FILE = "duplicate file name"
LABEL_WITHOUT_IMAGE = "label without image"
NOT_ONE_OBJECT = "not exactly one object"

# Notes report decisions; they do not mean that the data is wrong.
IMAGE_WITHOUT_LABEL = "image without label"
SEVERAL_FORMATS = "several formats fit"
SEVERAL_SPLITS = "several splits"
CHOICE = "choice"
ODD_IMAGE = "unusual image"

NOTES = frozenset({IMAGE_WITHOUT_LABEL, SEVERAL_FORMATS, SEVERAL_SPLITS, CHOICE, ODD_IMAGE})


class Problems(list[DataProblem]):
    """The problems found while a dataset is read."""

    def add(self, kind: str, where: object, what: str) -> None:
        """Add a problem of a kind at a place, such as a path."""
        self.append(DataProblem(kind, str(where), what))


def grouped(problems: Iterable[DataProblem]) -> dict[str, tuple[DataProblem, ...]]:
    """The problems by kind: faults before notes, the most frequent kind first."""
    groups: dict[str, list[DataProblem]] = {}
    for problem in problems:
        groups.setdefault(problem.kind, []).append(problem)
    order = sorted(groups, key=lambda kind: (kind in NOTES, -len(groups[kind]), kind))
    return {kind: tuple(groups[kind]) for kind in order}


# Annotation tools round; a corner this far outside the border is not a fault.
BORDER_PIXELS = 1.0
BORDER_SHARE = 0.002  # the same for boxes stated as shares of the image


def check_box(row: BoxRow, size: Size | None, where: str, problems: Problems) -> bool:
    """Whether a box is usable; add a problem if it is not, or if it extends outside the image.

    A box outside the border is used as stated, as in the reference scorers. `size` is that of the image
    in the unit of the box, (1, 1) for shares, None if it is not known yet.
    """
    x1, y1, x2, y2 = row[:4]
    if not math.isfinite(x1 + y1 + x2 + y2):
        message = f"expected finite corners, got {_corners(row[:4])}; the box is skipped"
        problems.add(NOT_A_NUMBER, where, message)
        return False
    if x2 <= x1 or y2 <= y1:
        kind = "inverted" if x2 < x1 or y2 < y1 else "empty"
        message = f"{kind} box {_corners(row[:4])}: expected x1 < x2 and y1 < y2; the box is skipped"
        problems.add(EMPTY_BOX, where, message)
        return False
    if size is not None:
        check_inside(row[:4], size, where, problems)
    return True


def check_inside(corners: Sequence[float], size: Size, where: str, problems: Problems) -> None:
    """Add a problem if a box extends outside an image of that size."""
    x1, y1, x2, y2 = corners
    slack = BORDER_SHARE if size == (1, 1) else BORDER_PIXELS
    if x1 < -slack or y1 < -slack or x2 > size.width + slack or y2 > size.height + slack:
        extent = "0 to 1" if size == (1, 1) else f"{size.width}×{size.height}"
        wholly = x1 >= size.width or y1 >= size.height or x2 <= 0 or y2 <= 0
        part = "wholly" if wholly else "partly"
        message = f"box {_corners(corners)} is {part} outside the image ({extent}); used as given"
        problems.add(BOX_OUTSIDE, where, message)


def _corners(corners: Sequence[float]) -> str:
    return "(" + ", ".join(f"{value:.6g}" for value in corners) + ")"
