"""CCTSDB 2021: a text file with a line `file;x1;y1;x2;y2;class` for each box. GTSDB writes the same."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holdfast.core.dataset import Dataset, Problem
from holdfast.core.errors import DataError
from holdfast.core.registry import stage
from holdfast.data import problems as kinds
from holdfast.data.boxes import check_box
from holdfast.data.entries import FileEntry, PixelBoxes, Row, pack
from holdfast.data.files import (
    Disk,
    best_folder,
    choose_split,
    data_name,
    file_names,
    first_line,
    image_names,
    is_image,
    lines_of,
    subfolders,
)

CLASSES = ("mandatory", "prohibitory", "warning")

_Line = tuple[int, str, tuple[float, float, float, float], str]


def recognise(path: Path) -> str:
    """Why a path is such a data set, empty if it is not."""
    if path.is_file():
        return "a text file of `file;x1;y1;x2;y2;class` lines" if _looks_like_it(path) else ""
    found = _files(path)
    return (
        f"has {', '.join(f.name for f in found.values())} of `file;x1;y1;x2;y2;class` lines" if found else ""
    )


@stage("reader", recognise=recognise, task="detect", rank=20)
def cctsdb(path: Path, *, split: str | None = None) -> Dataset:
    """The data set of a text file of `file;x1;y1;x2;y2;class` lines, or of a folder that holds one.

    The classes are those of CCTSDB if the file names no others, else the names found, sorted.
    """
    problems: list[Problem] = []
    file = path
    if path.is_dir():
        found = _files(path)
        if not found:
            raise DataError(f"{path}: no .txt or .csv file of `file;x1;y1;x2;y2;class` lines found")
        _, file = choose_split(found, split, path, problems)
    lines = _lines(file, problems)
    names = {name for _, _, _, name in lines}
    order = (lambda name: (int(name), name)) if all(name.isdecimal() for name in names) else None
    classes = CLASSES if names <= set(CLASSES) else tuple(sorted(names, key=order))
    entries = _entries(lines, classes, file, problems)
    return Dataset(data_name(path), "cctsdb", "detect", classes, entries, tuple(problems))


def _files(folder: Path) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for place in (folder, folder / "annotations", folder / "labels"):
        for name in file_names(place):
            if name.lower().endswith((".txt", ".csv")) and _looks_like_it(place / name):
                found.setdefault(Path(name).stem, place / name)
        if found:
            break
    return found


def _looks_like_it(file: Path) -> bool:
    parts = first_line(file).rstrip(";").split(";")
    return len(parts) == 6 and is_image(parts[0].rsplit("/", 1)[-1])


def _lines(file: Path, problems: list[Problem]) -> list[_Line]:
    lines: list[_Line] = []
    for number, line in lines_of(file):
        parts = [part.strip() for part in line.rstrip(";").split(";")]
        try:
            if len(parts) != 6 or not parts[0] or not parts[5]:
                raise ValueError
            x1, y1, x2, y2 = (float(part) for part in parts[1:5])
        except ValueError:
            said = f"expected `file;x1;y1;x2;y2;class`, got {line[:80]!r}; the line is left out"
            problems.append(Problem(kinds.UNREADABLE_LABEL, f"{file}:{number}", said))
        else:
            lines.append((number, parts[0], (x1, y1, x2, y2), parts[5]))
    return lines


def _entries(
    lines: Sequence[_Line], classes: tuple[str, ...], file: Path, problems: list[Problem]
) -> tuple[FileEntry, ...]:
    disk, index = Disk(), {name: number for number, name in enumerate(classes)}
    names = list(dict.fromkeys(name for _, name, _, _ in lines))
    here, above = file.parent, file.parent.parent
    places = [here, here / "images", above, above / "images", *subfolders(here), *subfolders(above)]
    folder = best_folder(names, places, disk)
    rows: dict[str, list[Row]] = {name: [] for name in names}
    first_lines: dict[str, int] = {}
    for number, name, corners, category in lines:
        first_lines.setdefault(name, number)
        row = Row(*corners, index[category])
        if check_box(row, None, f"{file}:{number}", problems):
            rows[name].append(row)
    entries = []
    for name, found in rows.items():
        if disk.has(str(folder / name)):
            entries.append(FileEntry(name, str(folder / name), PixelBoxes(pack(found))))
        else:
            said = f"no file {folder / name}; the image is left out"
            problems.append(Problem(kinds.MISSING_FILE, f"{file}:{first_lines[name]}", said))
    for name in image_names(folder, deep=False):
        if name not in rows:
            said = f"no line in {file.name}; the image is left out"
            problems.append(Problem(kinds.IMAGE_WITHOUT_LABEL, str(folder / name), said))
    return tuple(entries)
