"""Image folder: one subfolder per class, sorted by name."""

from __future__ import annotations

from pathlib import Path

from holdfast.core.dataset import Dataset
from holdfast.core.errors import DataError
from holdfast.core.registry import stage
from holdfast.data import files
from holdfast.data.entries import FileEntry, StoredLabel
from holdfast.data.problems import Problems

# Folders with these names hold the parts of other formats, not a class each.
_PARTS = {"images", "data", "labels", "masks", "annotations", "gt_labels"}
_PARTS |= {"JPEGImages", "Annotations", "SegmentationClass"}


def recognise(path: Path) -> str:
    """Why a path is an image folder, empty if it is not."""
    if not path.is_dir():
        return ""
    classes = _classes(next(iter(_splits(path).values()), path))
    return f"has {len(classes)} sub folders with images" if classes else ""


@stage("reader", recognise=recognise, task="classify", rank=90)
def folder(path: Path, *, split: str | None = None) -> Dataset:
    """The dataset of a folder with a subfolder of images for each class."""
    problems = Problems()
    root = path
    splits = _splits(path) if path.is_dir() else {}
    if splits or split is not None:
        root = files.choose_split(splits, split, path, problems)
    classes = _classes(root) if root.is_dir() else []
    if not classes:
        raise DataError(f"{path}: no sub folders with images found; expected one for each class")
    entries = tuple(
        FileEntry(f"{place.name}/{name}", str(place / name), StoredLabel(index))
        for index, place in enumerate(classes)
        for name in files.image_names(place)
    )
    files.note_unlabelled(root, (), "lies in no class's folder", problems)
    names = tuple(place.name for place in classes)
    return Dataset(files.data_name(path), "folder", "classify", names, entries, tuple(problems))


def _classes(path: Path) -> list[Path]:
    """The subfolders that hold images (or folders of images), unless their names say otherwise."""
    found = []
    for place in files.subfolders(path):
        if place.name not in _PARTS and place.name not in files.SPLITS:
            inside = [place, *(p for p in files.subfolders(place) if p.name not in _PARTS)]
            found += [place] if any(files.image_names(p, deep=False) for p in inside) else []
    return found


def _splits(path: Path) -> dict[str, Path]:
    """The splits, if all subfolders are named as splits are and hold folders of classes."""
    places = files.subfolders(path)
    if not places or any(place.name not in files.SPLITS for place in places):
        return {}
    return {place.name: place for place in places if _classes(place)}
