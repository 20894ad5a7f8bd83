"""Class names: of a darknet .names file, COCO's 80, or numbers."""

from __future__ import annotations

from pathlib import Path

from holdfast.core.errors import CardError
from holdfast.graph.classes import BUILT_IN, numbered


def read_names(path: Path, wanted: int) -> tuple[str, ...]:
    """The class names of a .names file, which must be `wanted` many."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise CardError(f"{path}: no such file; give a .names file with one class a line") from None
    except (OSError, UnicodeDecodeError) as problem:
        raise CardError(f"{path}: expected a .names file with one class a line, got: {problem}") from problem
    classes = tuple(line.strip() for line in text.strip().splitlines())
    if len(classes) != wanted:
        raise CardError(f"{path}: expected {wanted} names, as classes= in [yolo] says, got {len(classes)}")
    return classes


def default_names(count: int) -> tuple[str, ...]:
    """COCO's names for 80 classes, else numbers."""
    return BUILT_IN["coco80"] if count == len(BUILT_IN["coco80"]) else numbered(count)
