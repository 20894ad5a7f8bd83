"""The kinds of problems a data set can have, and which of them are only notes."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.core.dataset import Problem

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

# Notes tell what was decided; they do not mean that the data is wrong.
IMAGE_WITHOUT_LABEL = "image without label"
SEVERAL_FORMATS = "several formats fit"
SEVERAL_SPLITS = "several splits"
CHOICE = "choice"
ODD_IMAGE = "unusual image"

NOTES = frozenset({IMAGE_WITHOUT_LABEL, SEVERAL_FORMATS, SEVERAL_SPLITS, CHOICE, ODD_IMAGE})


def grouped(problems: Iterable[Problem]) -> dict[str, tuple[Problem, ...]]:
    """The problems by kind: faults before notes, the most frequent kind first."""
    groups: dict[str, list[Problem]] = {}
    for problem in problems:
        groups.setdefault(problem.kind, []).append(problem)
    order = sorted(groups, key=lambda kind: (kind in NOTES, -len(groups[kind]), kind))
    return {kind: tuple(groups[kind]) for kind in order}
