"""YOLO: one text file an image, `class x y width height` as shares of the image, and a yaml of names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.core.dataset import Dataset, Problem
from holdfast.core.errors import DataError
from holdfast.core.registry import stage
from holdfast.core.types import Size
from holdfast.data import problems as kinds
from holdfast.data.boxes import check_box
from holdfast.data.entries import FileEntry, Row, UnitBoxes, pack
from holdfast.data.files import (
    SPLITS,
    Disk,
    choose_split,
    data_name,
    file_names,
    image_names,
    lines_of,
    read_yaml,
    subfolders,
)
from holdfast.data.names import MAX_CLASSES, classes_beside, numbered

_UNIT = Size(1, 1)
_KEYS = ("val", "test", "train")


@dataclass(frozen=True)
class _Images:
    """The images of one split: a base for their names, and their paths."""

    base: Path
    paths: tuple[Path, ...]


def recognise(path: Path) -> str:
    """Why a path is a YOLO data set, empty if it is not."""
    if path.is_file():
        found = path.suffix.lower() in (".yaml", ".yml") and _is_config(path)
        return "a .yaml file with names and images" if found else ""
    config = _config(path)
    if config is not None:
        return f"has {config.name} with names and images"
    return "has labels/*.txt beside images/" if _plain_splits(path) else ""


@stage("reader", recognise=recognise, task="detect", rank=40)
def yolo(path: Path, *, split: str | None = None) -> Dataset:
    """The data set of a YOLO yaml file, or of a folder that holds one, or of images/ and labels/ alone."""
    problems: list[Problem] = []
    config = _config(path) if path.is_dir() else path
    if config is not None:
        content = read_yaml(config)
        names = numbered(content.get("names"), content.get("nc"), config)
        splits = {key: content[key] for key in _KEYS if content.get(key)}
        if not splits:
            raise DataError(f"{config}: expected at least one of {', '.join(_KEYS)} with a folder of images")
        _, value = choose_split(splits, split, config, problems)
        images = _images(value, _base(content.get("path"), config), config, problems)
    else:
        plain = _plain_splits(path)
        if not plain:
            raise DataError(
                f"{path}: no YOLO data set found; looked for a .yaml file with names and one of "
                f"{', '.join(_KEYS)}, and for images/ beside labels/ with .txt files"
            )
        _tell_broken(path, problems)
        names = classes_beside(path, path / "labels")
        _, folder = choose_split(plain, split, path, problems)
        images = _folder(folder, path)
    rows = _labels(images.paths, names, problems)
    classes = tuple(names.values()) if names else _unnamed(rows)
    index = {key: number for number, key in enumerate(names or range(len(classes)))}
    entries = tuple(
        FileEntry(_inside(images.base, image), str(image), UnitBoxes(pack(_indexed(found, index))))
        for image, found in rows.items()
    )
    return Dataset(data_name(path), "yolo", "detect", classes, entries, tuple(problems))


def _config(folder: Path) -> Path | None:
    return next((file for file in _yaml_files(folder) if _is_config(file)), None)


def _yaml_files(folder: Path) -> list[Path]:
    return [folder / name for name in file_names(folder) if name.lower().endswith((".yaml", ".yml"))]


def _tell_broken(folder: Path, problems: list[Problem]) -> None:
    """Note every yaml file that cannot be read: it may be the one with the names."""
    for file in _yaml_files(folder):
        try:
            read_yaml(file)
        except DataError as problem:
            what = str(problem).removeprefix(f"{file}: ")
            problems.append(Problem(kinds.UNREADABLE_LABEL, str(file), f"{what}; the classes have no names"))


def _is_config(file: Path) -> bool:
    try:
        content = read_yaml(file)
    except DataError:
        return False
    lists = [content[key] for key in _KEYS if content.get(key)]
    return ("names" in content or "nc" in content) and any(isinstance(v, str | list) for v in lists)


def _plain_splits(folder: Path) -> dict[str, Path]:
    """Folders of images with text labels where no yaml tells: images/, images/<split>, <split>/images."""
    candidates = {"": folder / "images"}
    if (folder / "images").is_dir():
        candidates |= {place.name: place for place in subfolders(folder / "images")}
    candidates |= {place.name: place / "images" for place in subfolders(folder) if place.name in SPLITS}
    return {name: place for name, place in candidates.items() if _has_labels(_labels_folder(place), place)}


def _has_labels(labels: Path, images: Path) -> bool:
    stems = {name.rpartition(".")[0] for name in image_names(images, deep=False)}
    return labels != images and any(
        name.endswith(".txt") and name[:-4] in stems for name in file_names(labels)
    )


def _base(stated: Any, config: Path) -> Path:
    """The folder that the paths in a yaml start from: its `path`, or where the file lies if that is gone."""
    base = config.parent / str(stated or "")
    return base if base.is_dir() else config.parent


def _images(value: Any, base: Path, config: Path, problems: list[Problem]) -> _Images:
    """The images of a split: a folder, a text file of paths, or a list of these."""
    paths: list[Path] = []
    for item in value if isinstance(value, list) else [value]:
        # Some exporters write ../valid/images for a folder that lies beside the yaml.
        tries = [base / str(item), config.parent / str(item), config.parent / str(item).lstrip("./")]
        place = next((p for p in tries if p.exists()), None)
        if place is None:
            raise DataError(f"{config}: no {item!r} in {base}; expected a folder or a list of images")
        paths += _folder(place, base).paths if place.is_dir() else _listed(place, problems)
    unique = dict.fromkeys(Path(os.path.normpath(path)) for path in paths)
    if len(unique) < len(paths):
        said = f"{len(paths) - len(unique)} images are listed more than once; each is taken once"
        problems.append(Problem(kinds.DUPLICATE_FILE, str(config), said))
    return _Images(Path(os.path.normpath(base)), tuple(unique))


def _folder(folder: Path, base: Path) -> _Images:
    return _Images(base, tuple(folder / name for name in image_names(folder)))


def _listed(file: Path, problems: list[Problem]) -> list[Path]:
    disk, found = Disk(), []
    for number, line in lines_of(file):
        image = file.parent / line
        if disk.has(str(image)):
            found.append(image)
        else:
            said = f"no image file {image}; left out"
            problems.append(Problem(kinds.MISSING_FILE, f"{file}:{number}", said))
    return found


def _labels_folder(folder: Path) -> Path:
    """The folder that mirrors a folder of images: its last part named images, made labels."""
    parts = list(folder.parts)
    if "images" not in parts:
        return folder
    at = len(parts) - 1 - parts[::-1].index("images")
    return Path(*parts[:at], "labels", *parts[at + 1 :])


def _labels(images: Sequence[Path], names: dict[int, str], problems: list[Problem]) -> dict[Path, list[Row]]:
    """The boxes of each image; an image without a label file is a background image, as in training."""
    disk = Disk()
    folders = {folder: _labels_folder(folder) for folder in {image.parent for image in images}}
    rows: dict[Path, list[Row]] = {}
    used: set[str] = set()
    for image in images:
        file = folders[image.parent] / (image.stem + ".txt")
        rows[image] = []
        if str(file) in used:
            said = f"{file.name} belongs to another image of the same name too"
            problems.append(Problem(kinds.DUPLICATE_FILE, str(image), said))
        used.add(str(file))
        if disk.has(str(file)):
            rows[image] = _rows(file, names, problems)
        else:
            said = f"no {file}; taken as an image without objects"
            problems.append(Problem(kinds.IMAGE_WITHOUT_LABEL, str(image), said))
    for folder, labels in folders.items():
        stems = {name.rpartition(".")[0] for name in image_names(folder, deep=False)}  # of other lists too
        for name in file_names(labels):
            if name.endswith(".txt") and name != "classes.txt" and name[:-4] not in stems:
                said = "no image of this name; the labels are left out"
                problems.append(Problem(kinds.LABEL_WITHOUT_IMAGE, str(labels / name), said))
    return rows


def _rows(file: Path, names: dict[int, str], problems: list[Problem]) -> list[Row]:
    rows = []
    try:
        lines = list(lines_of(file))
    except DataError as problem:
        problems.append(Problem(kinds.UNREADABLE_LABEL, str(file), f"{problem}; its boxes are left out"))
        return []
    for number, line in lines:
        where = f"{file}:{number}"
        row = _row(line, where, problems)
        if row is None:
            continue
        if row.category not in (names or range(MAX_CLASSES)):
            known = f"the yaml names {len(names)}" if names else f"expected less than {MAX_CLASSES}"
            said = f"unknown class {row.category} ({known}); the box is left out"
            problems.append(Problem(kinds.UNKNOWN_CLASS, where, said))
        elif check_box(row, _UNIT, where, problems):
            rows.append(row)
    return rows


def _row(line: str, where: str, problems: list[Problem]) -> Row | None:
    """A line as a box: `class x y width height`, or `class x1 y1 x2 y2 x3 y3 ...` for a polygon."""
    parts = line.split()
    try:
        number, values = float(parts[0]), [float(part) for part in parts[1:]]
        if number != int(number) or number < 0:
            raise ValueError
    except (ValueError, OverflowError):
        values = []
    if len(values) == 4:
        x, y, width, height = values
        return Row(x - width / 2, y - height / 2, x + width / 2, y + height / 2, int(number))
    if len(values) >= 6 and len(values) % 2 == 0:
        xs, ys = values[::2], values[1::2]
        return Row(min(xs), min(ys), max(xs), max(ys), int(number))
    said = f"expected `class x y width height`, got {line[:60]!r}; the line is left out"
    problems.append(Problem(kinds.UNREADABLE_LABEL, where, said))
    return None


def _unnamed(rows: dict[Path, list[Row]]) -> tuple[str, ...]:
    most = max((row.category for found in rows.values() for row in found), default=-1)
    return tuple(str(number) for number in range(most + 1))


def _indexed(rows: list[Row], index: dict[int, int]) -> list[Row]:
    return [row._replace(category=index[row.category]) for row in rows]


def _inside(base: Path, image: Path) -> str:
    try:
        return image.relative_to(base).as_posix()
    except ValueError:
        return image.as_posix()
