"""The CCTSDB-YOLO benchmark: images/ and gt_labels/*.txt of `class x1 y1 x2 y2` as shares of the image."""

from __future__ import annotations

from pathlib import Path

from holdfast.core.dataset import Dataset, Problem
from holdfast.core.errors import DataError
from holdfast.core.registry import stage
from holdfast.core.types import Size
from holdfast.data import problems as kinds
from holdfast.data.boxes import check_box
from holdfast.data.entries import FileEntry, Row, UnitBoxes, pack
from holdfast.data.files import choose_split, data_name, file_names, image_names, lines_of, subfolders
from holdfast.data.readers.cctsdb import CLASSES


def recognise(path: Path) -> str:
    """Why a path is such a data set, empty if it is not."""
    return (
        f"has images/ and gt_labels/ in {', '.join(n or '.' for n in found)}"
        if (found := _sets(path))
        else ""
    )


@stage("reader", recognise=recognise, task="single", rank=15)
def cctsdb_yolo(path: Path, *, split: str | None = None) -> Dataset:
    """The data set of images/ beside gt_labels/; a folder of several such sets has them as splits."""
    problems: list[Problem] = []
    found = _sets(path)
    if not found:
        raise DataError(f"{path}: no folder with images/ and gt_labels/*.txt found")
    _, root = choose_split(found, split, path, problems)
    entries, used = [], set()
    for name in image_names(root / "images"):
        file = root / "gt_labels" / (name.rpartition(".")[0] + ".txt")
        used.add(file.name)
        row = _row(file, problems) if file.is_file() else None
        if row is not None:
            entries.append(FileEntry(name, str(root / "images" / name), UnitBoxes(pack([row]))))
        elif not file.is_file():
            said = f"no {file}; the image is left out"
            problems.append(Problem(kinds.IMAGE_WITHOUT_LABEL, str(root / "images" / name), said))
    for name in file_names(root / "gt_labels"):
        if name not in used:
            said = "no image of this name; the label is left out"
            problems.append(Problem(kinds.LABEL_WITHOUT_IMAGE, str(root / "gt_labels" / name), said))
    return Dataset(data_name(path), "cctsdb-yolo", "single", CLASSES, tuple(entries), tuple(problems))


def _sets(path: Path) -> dict[str, Path]:
    if not path.is_dir():
        return {}
    places = {"": path} | {place.name: place for place in subfolders(path)}
    return {
        name: place
        for name, place in places.items()
        if (place / "images").is_dir() and (place / "gt_labels").is_dir()
    }


def _row(file: Path, problems: list[Problem]) -> Row | None:
    try:
        lines = list(lines_of(file))
        if len(lines) != 1:
            raise ValueError
        number, x1, y1, x2, y2 = (float(part) for part in lines[0][1].split())
        row = Row(x1, y1, x2, y2, int(number))
    except (ValueError, OverflowError, DataError):
        said = "expected one line `class x1 y1 x2 y2`; the image is left out"
        problems.append(Problem(kinds.UNREADABLE_LABEL, str(file), said))
        return None
    if not 0 <= row.category < len(CLASSES) or row.category != number:
        said = f"expected a class of 0 to {len(CLASSES) - 1}, got {number:g}; the image is left out"
        problems.append(Problem(kinds.UNKNOWN_CLASS, str(file), said))
        return None
    return row if check_box(row, Size(1, 1), str(file), problems) else None
