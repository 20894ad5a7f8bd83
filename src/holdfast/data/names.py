"""Class names: from a yaml's `names`, or from a text file beside the data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast.core.errors import DataError
from holdfast.data.files import lines_of

_FILES = ("classes.txt", "labels.txt", "obj.names", "names.txt", "synset_words.txt")


def numbered(names: Any, count: Any, where: Path) -> dict[int, str]:
    """Class names by id in the order of the ids, from a list, a mapping, or a mere number of classes."""
    if names is None and isinstance(count, int):
        return {number: str(number) for number in range(count)}
    if isinstance(names, list):
        return {number: str(name) for number, name in enumerate(names)}
    if isinstance(names, dict):
        try:
            return {key: str(names[original]) for key, original in sorted((int(k), k) for k in names)}
        except (TypeError, ValueError):
            raise DataError(f"{where}: expected integer class ids, got {list(names)[:5]}") from None
    raise DataError(f"{where}: expected class names as a list or as `id: name`, got {type(names).__name__}")


def classes_beside(*folders: Path) -> dict[int, str]:
    """Class names by id from the first text file of names in these folders (a name a line); or none."""
    for folder in folders:
        for name in _FILES:
            if (folder / name).is_file():
                return {number: text for number, (_, text) in enumerate(lines_of(folder / name))}
    return {}
