"""Finding and reading the files of a data set: image folders, splits, label files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.core.dataset import Problem
from holdfast.core.errors import DataError
from holdfast.data.images import SUFFIXES
from holdfast.data.problems import SEVERAL_SPLITS

# When a data set has several splits and none is asked for: what a finished model is measured on comes first.
SPLITS = ("val", "valid", "validation", "val2017", "test", "test2017", "train", "train2017")
_SAME = dict.fromkeys(("val", "valid", "validation"), ("val", "valid", "validation"))
MAX_LABEL_BYTES = 4 << 30


def is_image(name: str) -> bool:
    """Whether a file's name ends as an image's does."""
    return "." + name.rpartition(".")[2].lower() in SUFFIXES and not name.startswith(".")


def subfolders(folder: Path) -> list[Path]:
    """The folders directly in a folder, sorted by name; hidden ones are left out."""
    with os.scandir(folder) as found:
        names = sorted(item.name for item in found if item.is_dir() and not item.name.startswith("."))
    return [folder / name for name in names]


def file_names(folder: Path) -> list[str]:
    """The names of the files directly in a folder, sorted; none if there is no such folder."""
    try:
        with os.scandir(folder) as found:
            return sorted(item.name for item in found if not item.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def image_names(folder: Path, *, deep: bool = True) -> list[str]:
    """The images in a folder (and the folders in it), sorted, as paths inside it with forward slashes."""
    if not deep:
        return [name for name in file_names(folder) if is_image(name)]
    found = []
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        inside = os.path.relpath(place, folder).replace(os.sep, "/")
        prefix = "" if inside == "." else inside + "/"
        found += [prefix + name for name in files if is_image(name)]
    return sorted(found)


def has_images(folder: Path) -> bool:
    """Whether at least one image lies directly in a folder."""
    try:
        with os.scandir(folder) as found:
            return any(is_image(item.name) for item in found)
    except (FileNotFoundError, NotADirectoryError):
        return False


@dataclass
class Disk:
    """Which files exist: each folder is listed once, which is far cheaper than asking file by file."""

    _folders: dict[str, frozenset[str]] = field(default_factory=dict)

    def has(self, path: str) -> bool:
        """Whether there is a file or folder of that path."""
        folder, name = os.path.split(path)
        if folder not in self._folders:
            try:
                with os.scandir(folder or ".") as found:
                    self._folders[folder] = frozenset(item.name for item in found)
            except (OSError, ValueError):  # ValueError: a name with a zero byte
                self._folders[folder] = frozenset()
        return name in self._folders[folder]


def best_folder(names: Sequence[str], candidates: Sequence[Path], disk: Disk) -> Path:
    """The candidate that holds most of the named files; the first one if none holds any."""
    some = names[:: max(1, len(names) // 20)]
    hits = [sum(disk.has(str(folder / name)) for name in some) for folder in candidates]
    return candidates[hits.index(max(hits))]


def choose_split(
    found: dict[str, Any], split: str | None, where: Path, problems: list[Problem]
) -> tuple[str, Any]:
    """The split asked for, or the first of val, test, train that is there; a note if there are several."""
    if split is not None:
        same = _SAME.get(split, ())
        longer = [name for name in found if name.startswith(split)]  # val for val2017
        for name in (split, *same, *(longer if len(longer) == 1 else ())):
            if name in found:
                return name, found[name]
        raise DataError(f"{where}: no split {split!r}; there are: {', '.join(found) or 'none'}")
    names = sorted(found, key=lambda name: (SPLITS.index(name) if name in SPLITS else len(SPLITS), name))
    if len(names) > 1:
        said = f"has the splits {', '.join(names)}; {names[0]} is taken, another one by --split"
        problems.append(Problem(SEVERAL_SPLITS, str(where), said))
    return names[0], found[names[0]]


def read_text(path: Path, limit: int = MAX_LABEL_BYTES) -> str:
    """The text of a label file (UTF-8, with or without a mark); DataError if it cannot be read as such."""
    try:
        return read_label_bytes(path, limit).decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise DataError(
            f"{path}: expected text in UTF-8, got byte {problem.object[problem.start]:#04x} "
            f"at {problem.start}"
        ) from None


def read_label_bytes(path: Path, limit: int = MAX_LABEL_BYTES) -> bytes:
    """The bytes of a label file; DataError if it cannot be read or is absurdly large."""
    try:
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            if size > limit:
                raise DataError(f"{path}: {size >> 20} MB; label files up to {limit >> 20} MB are read")
            return stream.read(size + 1)
    except OSError as problem:
        raise DataError(f"{path}: cannot be read: {problem.strerror or problem}") from problem


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """The lines that are not blank, stripped, with their numbers from 1."""
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if text := line.strip():
            yield number, text


def first_line(path: Path, most_bytes: int = 4096) -> str:
    """The first line of a text file that is not blank; empty if there is none or it is no text."""
    try:
        with path.open("rb") as stream:
            head = stream.read(most_bytes)
    except OSError:
        return ""
    if b"\0" in head:
        return ""
    text = head.decode("utf-8-sig", "replace")
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file; DataError if it is not one."""
    import yaml

    try:
        content = yaml.load(read_text(path, 64 << 20), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    except yaml.YAMLError as problem:
        line = getattr(getattr(problem, "problem_mark", None), "line", -1) + 1
        at = f":{line}" if line else ""
        raise DataError(f"{path}{at}: not valid YAML: {getattr(problem, 'problem', problem)}") from None
    if not isinstance(content, dict):
        raise DataError(f"{path}: expected a YAML mapping, got {type(content).__name__}")
    return {str(key): value for key, value in content.items()}


def data_name(path: Path) -> str:
    """A short name for a data set: its folder's name, and the file's if a file was given."""
    whole = path.resolve()
    return whole.name if path.is_dir() else f"{whole.parent.name}/{whole.name}"
