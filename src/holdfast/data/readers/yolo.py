"""YOLO: one text file per image, `class x y width height` as shares of the image, and a yaml of names."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.core.dataset import Dataset
from holdfast.core.errors import DataError
from holdfast.core.registry import stage
from holdfast.core.types import Size
from holdfast.data import files
from holdfast.data import problems as kinds
from holdfast.data.entries import BoxRow, FileEntry, UnitBoxes, pack
from holdfast.data.problems import Problems, check_box

_UNIT = Size(1, 1)
_KEYS = ("val", "test", "train")


def recognise(path: Path) -> str:
    """Why a path is a YOLO dataset, empty if it is not."""
    if (config := files.find_yaml(path, _is_config)) is not None:
        return f"{files.yaml_words(config, path)} with names and images"
    return "has labels/*.txt next to images/" if path.is_dir() and _plain_splits(path) else ""


@stage("reader", recognise=recognise, task="detect", rank=40)
def yolo(path: Path, *, split: str | None = None) -> Dataset:
    """The dataset of a YOLO yaml file, or of a folder with one, or of images/ and labels/ without one."""
    problems = Problems()
    config = files.find_yaml(path, _is_config) if path.is_dir() else path
    if config is not None:
        content = files.read_yaml(config)
        names = files.numbered(content.get("names"), content.get("nc"), config)
        splits = {key: content[key] for key in _KEYS if content.get(key)}
        if not splits:
            raise DataError(f"{config}: expected at least one of {', '.join(_KEYS)} with a folder of images")
        value = files.choose_split(splits, split, config, problems)
        base = files.yaml_base(content, config)
        images, base = _images(value, base, config, problems), Path(os.path.normpath(base))
    else:
        plain = _plain_splits(path)
        if not plain:
            looked = f"a .yaml file with names and one of {', '.join(_KEYS)}"
            looked += ", and for images/ next to labels/ with .txt files"
            raise DataError(f"{path}: no YOLO dataset found; looked for {looked}")
        _note_unreadable(path, problems)
        names = files.classes_in(path, path / "labels")
        base, images = path, _folder(files.choose_split(plain, split, path, problems))
    rows = _labels(images, names, problems)
    if not names:
        most = max((row.category for boxes in rows.values() for row in boxes), default=-1)
        names = {number: str(number) for number in range(most + 1)}
    index = {key: number for number, key in enumerate(names)}
    entries = []
    for image, boxes in rows.items():
        name = image.relative_to(base) if image.is_relative_to(base) else image
        indexed = [row._replace(category=index[row.category]) for row in boxes]
        entries.append(FileEntry(name.as_posix(), str(image), UnitBoxes(pack(indexed))))
    return files.dataset_of(path, "yolo", "detect", names.values(), entries, problems)


def _note_unreadable(folder: Path, problems: Problems) -> None:
    """Note every yaml file that cannot be read: it may be the one with the names."""
    for file in files.yaml_files(folder):
        try:
            files.read_yaml(file)
        except DataError as problem:
            what = str(problem).removeprefix(f"{file}: ")
            problems.add(kinds.UNREADABLE_LABEL, file, f"{what}; the classes have no names")


def _is_config(content: dict[str, Any]) -> bool:
    lists = [content[key] for key in _KEYS if content.get(key)]
    return ("names" in content or "nc" in content) and any(isinstance(v, str | list) for v in lists)


def _plain_splits(folder: Path) -> dict[str, Path]:
    """Folders of images with text labels without a yaml: images/, images/<split>, <split>/images."""
    candidates = {"": folder / "images"}
    if (folder / "images").is_dir():
        candidates |= {place.name: place for place in files.subfolders(folder / "images")}
    splits = [place for place in files.subfolders(folder) if place.name in files.SPLITS]
    candidates |= {place.name: place / "images" for place in splits}
    return {name: place for name, place in candidates.items() if _has_labels(_labels_folder(place), place)}


def _has_labels(labels: Path, images: Path) -> bool:
    stems = {name.rpartition(".")[0] for name in files.image_names(images, deep=False)}
    texts = (name[:-4] for name in files.file_names(labels) if name.endswith(".txt"))
    return labels != images and any(stem in stems for stem in texts)


def _images(value: Any, base: Path, config: Path, problems: Problems) -> Sequence[Path]:
    """The images of a split: a folder, a text file of paths, or a list of these."""
    paths: list[Path] = []
    for item in value if isinstance(value, list) else [value]:
        # Some exporters write ../valid/images for a folder next to the YAML file.
        candidates = [base / str(item), config.parent / str(item), config.parent / str(item).lstrip("./")]
        place = next((p for p in candidates if p.exists()), None)
        if place is None:
            raise DataError(f"{config}: no {item!r} in {base}; expected a folder or a list of images")
        paths += _folder(place) if place.is_dir() else _listed(place, problems)
    unique = dict.fromkeys(Path(os.path.normpath(path)) for path in paths)
    if len(unique) < len(paths):
        message = f"{len(paths) - len(unique)} images are listed more than once; each is used once"
        problems.add(kinds.DUPLICATE_FILE, config, message)
    return tuple(unique)


def _folder(folder: Path) -> list[Path]:
    return [folder / name for name in files.image_names(folder)]


def _listed(file: Path, problems: Problems) -> list[Path]:
    disk, images = files.FolderIndex(), []
    for number, line in files.lines_of(file):
        image = file.parent / line
        if disk.has(str(image)):
            images.append(image)
        else:
            problems.add(kinds.MISSING_FILE, f"{file}:{number}", f"no image file {image}; skipped")
    return images


def _labels_folder(folder: Path) -> Path:
    """The label folder of an image folder: its last component `images` replaced by `labels`."""
    parts = list(folder.parts)
    if "images" not in parts:
        return folder
    at = len(parts) - 1 - parts[::-1].index("images")
    return Path(*parts[:at], "labels", *parts[at + 1 :])


def _labels(images: Sequence[Path], names: dict[int, str], problems: Problems) -> dict[Path, list[BoxRow]]:
    """The boxes of each image; an image without a label file is a background image, as in training."""
    disk = files.FolderIndex()
    folders = {folder: _labels_folder(folder) for folder in {image.parent for image in images}}
    rows, used = dict[Path, list[BoxRow]](), set[str]()
    for image in images:
        file = folders[image.parent] / (image.stem + ".txt")
        if str(file) in used:
            message = f"{file.name} also belongs to another image of the same name"
            problems.add(kinds.DUPLICATE_FILE, image, message)
        used.add(str(file))
        exists = disk.has(str(file))
        rows[image] = _rows(file, names, problems) if exists else []
        if not exists:
            problems.add(kinds.IMAGE_WITHOUT_LABEL, image, f"no {file}; read as an image without objects")
    for folder, labels in folders.items():
        # including images of other lists
        stems = {name.rpartition(".")[0] for name in files.image_names(folder, deep=False)}
        for name in files.file_names(labels):
            if name.endswith(".txt") and name != "classes.txt" and name[:-4] not in stems:
                message = "no image of this name; the labels are skipped"
                problems.add(kinds.LABEL_WITHOUT_IMAGE, labels / name, message)
    return rows


def _rows(file: Path, names: dict[int, str], problems: Problems) -> list[BoxRow]:
    rows: list[BoxRow] = []
    try:
        lines = list(files.lines_of(file))
    except DataError as problem:
        problems.add(kinds.UNREADABLE_LABEL, file, f"{problem}; its boxes are skipped")
        return rows
    for number, line in lines:
        where = f"{file}:{number}"
        row = _row(line, where, problems)
        if row is None:
            continue
        if row.category not in (names or range(files.MAX_CLASSES)):
            expected = f"the yaml names {len(names)}" if names else f"expected less than {files.MAX_CLASSES}"
            message = f"unknown class {row.category} ({expected}); the box is skipped"
            problems.add(kinds.UNKNOWN_CLASS, where, message)
        elif check_box(row, _UNIT, where, problems):
            rows.append(row)
    return rows


def _row(line: str, where: str, problems: Problems) -> BoxRow | None:
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
        return BoxRow(x - width / 2, y - height / 2, x + width / 2, y + height / 2, int(number))
    if len(values) >= 6 and len(values) % 2 == 0:
        xs, ys = values[::2], values[1::2]
        return BoxRow(min(xs), min(ys), max(xs), max(ys), int(number))
    message = f"expected `class x y width height`, got {line[:60]!r}; the line is skipped"
    problems.add(kinds.UNREADABLE_LABEL, where, message)
    return None
