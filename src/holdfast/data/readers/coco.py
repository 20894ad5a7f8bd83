"""COCO json: one file with images, annotations and categories, next to a folder of images."""

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import orjson

from holdfast.core.dataset import Dataset
from holdfast.core.errors import DataError
from holdfast.core.registry import stage
from holdfast.core.types import Size
from holdfast.data import files
from holdfast.data import problems as kinds
from holdfast.data.entries import BoxRow, FileEntry, PixelBoxes, pack
from holdfast.data.problems import Problems, check_box

_USUAL = ("_annotations.coco.json", "annotations.json", "instances.json", "labels.json")


def recognise(path: Path) -> str:
    """Why a path is a COCO dataset, empty if it is not."""
    if path.is_file():
        return "a .json file" if path.suffix.lower() == ".json" else ""
    names = [file.relative_to(path).as_posix() for file in list(_files(path).values())[:3]]
    return f"has {', '.join(names)}" if names else ""


@stage("reader", recognise=recognise, task="detect", rank=10)
def coco(path: Path, *, split: str | None = None, image_folder: Path | None = None) -> Dataset:
    """The dataset of a COCO json file, or of a folder with one file per split."""
    problems = Problems()
    nothing = (
        f"no COCO json found; looked for {', '.join(_USUAL)}, annotations/instances_*.json, "
        "other .json files with images and annotations, and the same in folders of splits"
    )
    file = files.choose_file(path, _files, split, problems, nothing)
    content = _parse(file)
    index, classes = _categories(content["categories"], str(file), problems)
    rows = _annotations(content, index, file, problems)
    entries = _entries(content["images"], rows, file, image_folder, problems)
    return files.dataset_of(path, "coco", "detect", classes, entries, problems)


def _files(folder: Path) -> dict[str, Path]:
    """The json files of a folder by split; a file without a split is named by its stem."""
    by_split: dict[str, Path] = {}
    for place in (folder, folder / "annotations"):
        names = [name for name in files.file_names(place) if name.lower().endswith(".json")]
        usual = [name for name in names if name in _USUAL or name.startswith("instances_")]
        usual = usual or [name for name in names if _looks_like_coco(place / name)]
        for name in usual:
            by_split.setdefault(Path(name).stem.removeprefix("instances_"), place / name)
    for place in files.subfolders(folder):
        inside = [place / name for name in _USUAL if (place / name).is_file()]
        if inside and place.name != "annotations":
            by_split.setdefault(place.name, inside[0])
    return by_split


def _looks_like_coco(file: Path) -> bool:
    with file.open("rb") as stream:
        ends = stream.read(4096)
        stream.seek(max(0, file.stat().st_size - 4096))
        ends += stream.read()
    return b'"images"' in ends or b'"annotations"' in ends or b'"categories"' in ends


def _parse(file: Path) -> dict[str, list[Any]]:
    data = files.read_label_bytes(file)
    try:
        content = orjson.loads(data)
    except orjson.JSONDecodeError:
        try:
            content = json.loads(data)  # accepts NaN as written by Python's json
        except json.JSONDecodeError as problem:
            raise DataError(f"{file}:{problem.lineno}: not valid JSON: {problem.msg}") from None
        except UnicodeDecodeError:
            raise DataError(f"{file}: not valid JSON: not text in UTF-8") from None
    if not isinstance(content, dict):
        raise DataError(f"{file}: expected a COCO json object, got a JSON {type(content).__name__}")
    required = ("images", "annotations", "categories")
    missing = [key for key in required if not isinstance(content.get(key), list)]
    if missing:
        keys = (
            f"missing {', '.join(missing)}; got the keys {', '.join(map(str, list(content)[:8])) or 'none'}"
        )
        raise DataError(f"{file}: not a COCO dataset: expected lists under {', '.join(required)}; {keys}")
    for key in required:
        for number, item in enumerate(content[key]):
            if not isinstance(item, dict):
                kind = type(item).__name__
                raise DataError(f"{file}: {key}[{number}]: expected a JSON object, got {kind}")
    return content


def _categories(
    items: list[dict[str, Any]], where: str, problems: Problems
) -> tuple[dict[Any, int], tuple[str, ...]]:
    """Class indices by category id, consecutive in the order of the ids, and the class names."""
    names: dict[int, str] = {}
    for number, item in enumerate(items):
        key = item.get("id")
        if not isinstance(key, int):
            message = f"expected an integer id, got {key!r}; the category is skipped"
            problems.add(kinds.UNREADABLE_LABEL, f"{where}: categories[{number}]", message)
        elif key in names:
            message = f"category id {key} is already used by {names[key]!r}; {item.get('name')!r} is skipped"
            problems.add(kinds.DUPLICATE_ID, f"{where}: categories[{number}]", message)
        else:
            name = str(item.get("name", key))
            if name in names.values():
                message = f"two categories are named {name!r}; they are separate classes"
                problems.add(kinds.DUPLICATE_CLASS, f"{where}: category {key}", message)
            names[key] = name
    ids = sorted(names)
    return {key: index for index, key in enumerate(ids)}, tuple(names[key] for key in ids)


def _annotations(
    content: dict[str, list[Any]], index: dict[Any, int], file: Path, problems: Problems
) -> dict[Any, list[BoxRow]]:
    sizes = {_hashable(item.get("id")): _size(item) for item in content["images"]}
    rows: dict[Any, list[BoxRow]] = defaultdict(list)
    ids = Counter(_hashable(item["id"]) for item in content["annotations"] if "id" in item)
    for key, times in ids.items():
        if times > 1:
            message = f"annotation id {key} occurs {times} times; all are used"
            problems.add(kinds.DUPLICATE_ID, f"{file}: annotation {key}", message)
    for number, item in enumerate(content["annotations"]):
        image = _hashable(item.get("image_id"))
        where = f"{file}: annotation {item.get('id', f'[{number}]')}"
        row = _row(item, image in sizes, index, where, problems)
        if row is not None and check_box(row, sizes[image], where, problems):
            rows[image].append(row)
    return rows


def _row(
    item: dict[str, Any], has_image: bool, index: dict[Any, int], where: str, problems: Problems
) -> BoxRow | None:
    category, box = index.get(_hashable(item.get("category_id"))), item.get("bbox")
    if not has_image:
        message = f"image id {item.get('image_id')!r} is not in the list of images; the box is skipped"
        problems.add(kinds.LABEL_WITHOUT_IMAGE, where, message)
        return None
    if category is None:
        message = f"category id {item.get('category_id')!r} is not in the list; the box is skipped"
        problems.add(kinds.UNKNOWN_CLASS, where, message)
        return None
    try:
        x, y, width, height = map(float, box or ())
    except (TypeError, ValueError, OverflowError):
        got = str(box)[:80]
        message = f"expected a bbox of four numbers (x, y, width, height), got {got}; the box is skipped"
        kind = kinds.NOT_A_NUMBER if isinstance(box, list) and None in box else kinds.UNREADABLE_LABEL
        problems.add(kind, where, message)
        return None
    area = item.get("area")
    stated = area if isinstance(area, int | float) and 0 <= area < 1e300 else -1.0
    return BoxRow(x, y, x + width, y + height, category, crowd=bool(item.get("iscrowd")), area=stated)


def _entries(
    images: list[Any],
    rows: dict[Any, list[BoxRow]],
    file: Path,
    image_folder: Path | None,
    problems: Problems,
) -> list[FileEntry]:
    disk = files.FolderIndex()
    names = [item["file_name"] for item in images if isinstance(item.get("file_name"), str)]
    split = file.stem.removeprefix("instances_")  # images are in one of the usual folders
    inside = ("", split, f"images/{split}", "images", "data")
    places = [place / name for place in (file.parent, file.parent.parent) for name in inside]
    folder = image_folder or files.best_folder(names, places, disk)
    ids, listed, entries = set[Any](), set[str](), []
    for number, item in enumerate(images):
        key, name = _hashable(item.get("id")), item.get("file_name")
        where = f"{file}: image {key if key is not None else f'[{number}]'}"
        path = str(folder / str(name))
        if not isinstance(name, str) or not name:
            message = f"expected a file_name, got {name!r}; the image is skipped"
            problems.add(kinds.MISSING_FILE, where, message)
        elif key in ids:
            problems.add(kinds.DUPLICATE_ID, where, f"image id {key!r} is already used; {name} is skipped")
        elif name in listed:
            message = f"{name} is listed more than once; this one is skipped"
            problems.add(kinds.DUPLICATE_FILE, where, message)
        elif not disk.has(path):
            problems.add(kinds.MISSING_FILE, where, f"no file {path}; the image is skipped")
        else:
            entries.append(FileEntry(name, path, PixelBoxes(pack(rows.get(key, ()))), _size(item)))
        ids.add(key)
        listed.add(str(name))
    files.note_unlabelled(folder, listed, f"not in {file.name}", problems)
    return entries


def _size(item: dict[str, Any]) -> Size | None:
    width, height = item.get("width"), item.get("height")
    if isinstance(width, int) and isinstance(height, int) and width > 0 and height > 0:
        return Size(width, height)
    return None


def _hashable(key: Any) -> Any:
    return key if isinstance(key, int | str | float | None) else repr(key)


def ids_of(path: Path, split: str | None = None) -> tuple[dict[str, int], dict[str, int]]:
    """The ids of a COCO file: those of its images by file name, and of its categories by name."""
    content = _parse(files.choose_file(path, _files, split, Problems(), "no COCO json found"))
    images = {str(item.get("file_name")): item.get("id") for item in content["images"]}
    categories = {str(item.get("name")): item.get("id") for item in content["categories"]}
    whole = ({name: key for name, key in ids.items() if isinstance(key, int)} for ids in (images, categories))
    return next(whole), next(whole)
