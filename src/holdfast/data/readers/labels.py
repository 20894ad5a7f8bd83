"""Labelled images: a subfolder per class, or a text file of `file label` lines such as ImageNet's val.txt."""

import re
from collections.abc import Callable
from pathlib import Path

from holdfast.core.dataset import Dataset
from holdfast.core.errors import DataError
from holdfast.core.registry import stage
from holdfast.data import files
from holdfast.data import problems as kinds
from holdfast.data.entries import FileEntry, StoredLabel
from holdfast.data.problems import Problems

_SEPARATOR = re.compile(r"\s*[,\t]\s*|\s+")
# Folders with these names are parts of other formats, not classes.
_PARTS = {"images", "data", "labels", "masks", "annotations", "gt_labels"}
_PARTS |= {"JPEGImages", "Annotations", "SegmentationClass"}


def recognise_folder(path: Path) -> str:
    """Why a path is an image folder, empty if it is not."""
    if not path.is_dir():
        return ""
    classes = _classes(next(iter(_splits(path).values()), path))
    return f"has {len(classes)} sub folders with images" if classes else ""


@stage("reader", recognise=recognise_folder, task="classify", rank=90)
def folder(path: Path, *, split: str | None = None) -> Dataset:
    """The dataset of a folder with a subfolder of images for each class."""
    problems = Problems()
    splits = _splits(path) if path.is_dir() else {}
    chosen = splits or split is not None
    root = files.choose_split(splits, split, path, problems) if chosen else path
    classes = _classes(root) if root.is_dir() else []
    if not classes:
        raise DataError(f"{path}: no sub folders with images found; expected one per class")
    entries = [
        FileEntry(f"{place.name}/{name}", str(place / name), StoredLabel(index))
        for index, place in enumerate(classes)
        for name in files.image_names(place)
    ]
    files.note_unlabelled(root, (), "is in no class folder", problems)
    names = (place.name for place in classes)
    return files.dataset_of(path, "folder", "classify", names, entries, problems)


def _classes(path: Path) -> list[Path]:
    """The subfolders with images (or folders of images), except splits and parts of other formats."""
    classes = []
    for place in files.subfolders(path):
        if place.name not in _PARTS and place.name not in files.SPLITS:
            inside = [place, *(p for p in files.subfolders(place) if p.name not in _PARTS)]
            classes += [place] if any(files.image_names(p, deep=False) for p in inside) else []
    return classes


def _splits(path: Path) -> dict[str, Path]:
    """The splits, if all subfolders have names of splits and contain folders of classes."""
    places = files.subfolders(path)
    if not places or any(place.name not in files.SPLITS for place in places):
        return {}
    return {place.name: place for place in places if _classes(place)}


def recognise_listing(path: Path) -> str:
    """Why a path is a listing, empty if it is not."""
    if path.is_file():
        return "a text file of `file label` lines" if _looks_like_listing(path) else ""
    names = ", ".join(file.name for file in _files(path).values())
    return f"has {names} of `file label` lines" if names else ""


@stage("reader", recognise=recognise_listing, task="classify", rank=60)
def listing(path: Path, *, split: str | None = None) -> Dataset:
    """The dataset of a text file of `file label` lines, or of a folder with val.txt, test.txt or train.txt.

    Labels that are numbers are class indices. Without a file of names next to the listing the classes are
    unnamed and `classes` is empty: their number is unknown.
    """
    problems = Problems()
    nothing = "no listing found; looked for a .txt file of `file label` lines"
    file = files.choose_file(path, _files, split, problems, nothing)
    pairs = _pairs(file, problems)
    labels = {label for _, _, label in pairs}
    names = tuple(files.classes_in(file.parent).values())
    number_of: Callable[[str], int | None] = int
    if not all(map(str.isdecimal, labels)):
        names = names or tuple(sorted(labels))
        number_of = {name: number for number, name in enumerate(names)}.get
    disk, here = files.FolderIndex(), file.parent
    places = [here, here / "images", here / file.stem, here.parent, here.parent / "images", here / "data"]
    place = files.best_folder([name for _, name, _ in pairs], places, disk)
    listed, entries = set[str](), []
    for line, name, label in pairs:
        where, category = f"{file}:{line}", number_of(label)
        if not disk.has(str(place / name)):
            problems.add(kinds.MISSING_FILE, where, f"no file {place / name}; skipped")
        elif name in listed:
            problems.add(kinds.DUPLICATE_FILE, where, f"{name} is already listed; skipped")
        elif category is None or (names and category >= len(names)):
            problems.add(kinds.UNKNOWN_CLASS, where, f"label {label!r} is not a class; skipped")
        else:
            entries.append(FileEntry(name, str(place / name), StoredLabel(category)))
        listed.add(name)
    if place != here.parent:
        files.note_unlabelled(place, listed, f"not in {file.name}", problems)
    return files.dataset_of(path, "listing", "classify", names, entries, problems)


def _files(folder: Path) -> dict[str, Path]:
    """The listings of a folder by split, or the first one of any name."""
    names = [name for name in files.file_names(folder) if name.lower().endswith((".txt", ".csv"))]
    listings = [name for name in names if _looks_like_listing(folder / name)]
    splits = {Path(name).stem: folder / name for name in listings if Path(name).stem in files.SPLITS}
    return splits or {Path(name).stem: folder / name for name in listings[:1]}


def _looks_like_listing(file: Path) -> bool:
    if file.suffix.lower() not in (".txt", ".csv", ".lst"):
        return False
    parts = _split(files.first_line(file))
    return parts is not None and files.is_image(parts[0].rsplit("/", 1)[-1])


def _split(line: str) -> tuple[str, str] | None:
    """The file and the label of a line; the label follows the image's suffix."""
    separators = list(_SEPARATOR.finditer(line))
    if ";" in line or not separators:
        return None
    for separator in separators:
        if files.is_image(line[: separator.start()].rsplit("/", 1)[-1]):
            return line[: separator.start()], line[separator.end() :]
    return line[: separators[-1].start()], line[separators[-1].end() :]


def _pairs(file: Path, problems: Problems) -> list[tuple[int, str, str]]:
    pairs = []
    for number, line in files.lines_of(file):
        parts = _split(line)
        if parts is None or not all(parts):
            message = f"expected `file label`, got {line[:60]!r}; the line is skipped"
            problems.add(kinds.UNREADABLE_LABEL, f"{file}:{number}", message)
        else:
            pairs.append((number, *parts))
    return pairs
