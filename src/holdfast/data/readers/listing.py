"""Listing: a text file with a line `file label` for each image, such as ImageNet's val.txt."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from holdfast.core.dataset import Dataset
from holdfast.core.registry import stage
from holdfast.data import files
from holdfast.data import problems as kinds
from holdfast.data.entries import FileEntry, StoredLabel
from holdfast.data.problems import Problems

_SEPARATOR = re.compile(r"\s*[,\t]\s*|\s+")


def recognise(path: Path) -> str:
    """Why a path is a listing, empty if it is not."""
    if path.is_file():
        return "a text file of `file label` lines" if _looks_like_listing(path) else ""
    found = _files(path)
    return f"has {', '.join(file.name for file in found.values())} of `file label` lines" if found else ""


@stage("reader", recognise=recognise, task="classify", rank=60)
def listing(path: Path, *, split: str | None = None) -> Dataset:
    """The dataset of a text file of `file label` lines, or of a folder with val.txt, test.txt or train.txt.

    Labels that are numbers are class indices. Without a file of names beside the listing the classes are
    unnamed and `classes` is empty: how many there are is then not known.
    """
    problems = Problems()
    nothing = "no listing found; looked for a .txt file of `file label` lines"
    file = files.choose_file(path, _files, split, problems, nothing)
    pairs = _pairs(file, problems)
    labels = {label for _, _, label in pairs}
    names = tuple(files.classes_beside(file.parent).values())
    number_of: Callable[[str], int | None] = int
    if not all(map(str.isdecimal, labels)):
        names = names or tuple(sorted(labels))
        number_of = {name: number for number, name in enumerate(names)}.get
    disk, here = files.Disk(), file.parent
    places = [here, here / "images", here / file.stem, here.parent, here.parent / "images", here / "data"]
    folder = files.best_folder([name for _, name, _ in pairs], places, disk)
    taken, entries = set[str](), []
    for line, name, label in pairs:
        where, category = f"{file}:{line}", number_of(label)
        if not disk.has(str(folder / name)):
            problems.add(kinds.MISSING_FILE, where, f"no file {folder / name}; left out")
        elif name in taken:
            problems.add(kinds.DUPLICATE_FILE, where, f"{name} is listed before; left out")
        elif category is None or (names and category >= len(names)):
            problems.add(kinds.UNKNOWN_CLASS, where, f"label {label!r} is no class; left out")
        else:
            entries.append(FileEntry(name, str(folder / name), StoredLabel(category)))
        taken.add(name)
    if folder != here.parent:
        files.note_unlabelled(folder, taken, f"not in {file.name}", problems)
    return Dataset(files.data_name(path), "listing", "classify", names, tuple(entries), tuple(problems))


def _files(folder: Path) -> dict[str, Path]:
    """The listings of a folder by split, or the only one whatever its name."""
    names = [name for name in files.file_names(folder) if name.lower().endswith((".txt", ".csv"))]
    found = [name for name in names if _looks_like_listing(folder / name)]
    splits = {Path(name).stem: folder / name for name in found if Path(name).stem in files.SPLITS}
    return splits or {Path(name).stem: folder / name for name in found[:1]}


def _looks_like_listing(file: Path) -> bool:
    if file.suffix.lower() not in (".txt", ".csv", ".lst"):
        return False
    parts = _split(files.first_line(file))
    return parts is not None and files.is_image(parts[0].rsplit("/", 1)[-1])


def _split(line: str) -> tuple[str, str] | None:
    """The file and the label of a line: the label is what follows the image's ending."""
    found = list(_SEPARATOR.finditer(line))
    if ";" in line or not found:
        return None
    for cut in found:
        if files.is_image(line[: cut.start()].rsplit("/", 1)[-1]):
            return line[: cut.start()], line[cut.end() :]
    return line[: found[-1].start()], line[found[-1].end() :]


def _pairs(file: Path, problems: Problems) -> list[tuple[int, str, str]]:
    pairs = []
    for number, line in files.lines_of(file):
        parts = _split(line)
        if parts is None or not all(parts):
            said = f"expected `file label`, got {line[:60]!r}; the line is left out"
            problems.add(kinds.UNREADABLE_LABEL, f"{file}:{number}", said)
        else:
            pairs.append((number, *parts))
    return pairs
