"""A folder that is there whole or not at all."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.core.errors import InputError, OutputError


def check_new(folder: Path) -> None:
    """Nothing; InputError if there is something where a folder is to be written."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder}: expected a new or empty folder, got one with something in it")


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A folder to write into, which takes its place at the end; after an error nothing is kept."""
    check_new(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        place = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as problem:
        raise OutputError(f"{folder}: cannot write there: {problem.strerror}; choose another") from problem
    try:
        yield place
        place.chmod(0o755)
        place.replace(folder)
    except OSError as problem:
        raise OutputError(
            f"{folder}: could not be written: {problem.strerror}; nothing was kept"
        ) from problem
    finally:
        shutil.rmtree(place, ignore_errors=True)
