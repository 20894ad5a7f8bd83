"""Class names: from a yaml's `names`, or from a text file beside the data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast.core.errors import DataError
from holdfast.data.files import lines_of

MAX_CLASSES = 65536  # as many as a 16-bit mask can tell apart
_FILES = ("classes.txt", "labels.txt", "obj.names", "names.txt", "synset_words.txt")


def numbered(names: Any, count: Any, where: Path) -> dict[int, str]:
    """Class names by id in the order of the ids, from a list, a mapping, or a mere number of classes."""
    if names is None and isinstance(count, int):
        return {number: str(number) for number in range(min(count, MAX_CLASSES))}
    if isinstance(names, list):
        return {number: str(name) for number, name in enumerate(names)}
    if isinstance(names, dict):
        try:
            ids = {int(key): str(name) for key, name in names.items()}
        except (TypeError, ValueError):
            raise DataError(f"{where}: expected integer class ids, got {list(names)[:5]}") from None
        if ids and not 0 <= min(ids) <= max(ids) < MAX_CLASSES:
            raise DataError(
                f"{where}: expected class ids of 0 to {MAX_CLASSES - 1}, got {min(ids)} to {max(ids)}"
            )
        return dict(sorted(ids.items()))
    raise DataError(f"{where}: expected class names as a list or as `id: name`, got {type(names).__name__}")


def classes_beside(*folders: Path) -> dict[int, str]:
    """Class names by id from the first text file of names in these folders (a name a line); or none."""
    for folder in folders:
        for name in _FILES:
            if (folder / name).is_file():
                return {number: text for number, (_, text) in enumerate(lines_of(folder / name))}
    return {}
