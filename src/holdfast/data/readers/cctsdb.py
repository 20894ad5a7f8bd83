"""CCTSDB, in two layouts.

CCTSDB 2021 (and GTSDB) is a text file with a line `file;x1;y1;x2;y2;class` for each box. The CCTSDB-YOLO
benchmark has images/ and gt_labels/*.txt of one line `class x1 y1 x2 y2` as shares of the image.
"""

from pathlib import Path

from holdfast.core.dataset import Dataset
from holdfast.core.errors import DataError
from holdfast.core.registry import stage
from holdfast.core.types import Size
from holdfast.data import files
from holdfast.data import problems as kinds
from holdfast.data.entries import BoxRow, FileEntry, PixelBoxes, UnitBoxes, pack
from holdfast.data.problems import Problems, check_box

CLASSES = ("mandatory", "prohibitory", "warning")

_Line = tuple[int, str, tuple[float, float, float, float], str]


def recognise(path: Path) -> str:
    """Why a path is a dataset of such lines, empty if it is not."""
    if path.is_file():
        return "a text file of `file;x1;y1;x2;y2;class` lines" if _looks_like_it(path) else ""
    names = ", ".join(file.name for file in _files(path).values())
    return f"has {names} of `file;x1;y1;x2;y2;class` lines" if names else ""


@stage("reader", recognise=recognise, task="detect", rank=20)
def cctsdb(path: Path, *, split: str | None = None) -> Dataset:
    """The dataset of a text file of `file;x1;y1;x2;y2;class` lines, or of a folder that holds one.

    The classes are those of CCTSDB if the file has no others, else the names in the file, sorted.
    """
    problems = Problems()
    nothing = "no .txt or .csv file of `file;x1;y1;x2;y2;class` lines found"
    file = files.choose_file(path, _files, split, problems, nothing)
    lines = _lines(file, problems)
    names = {name for _, _, _, name in lines}
    order = (lambda name: (int(name), name)) if all(name.isdecimal() for name in names) else None
    classes = CLASSES if names <= set(CLASSES) else tuple(sorted(names, key=order))
    disk, index = files.FolderIndex(), {name: number for number, name in enumerate(classes)}
    images = list(dict.fromkeys(name for _, name, _, _ in lines))
    here, above = file.parent, file.parent.parent
    places = [here, here / "images", above, above / "images"]
    folder = files.best_folder(images, [*places, *files.subfolders(here), *files.subfolders(above)], disk)
    rows: dict[str, list[BoxRow]] = {name: [] for name in images}
    first_lines: dict[str, int] = {}
    for number, name, corners, category in lines:
        first_lines.setdefault(name, number)
        row = BoxRow(*corners, index[category])
        if check_box(row, None, f"{file}:{number}", problems):
            rows[name].append(row)
    entries = []
    for name, boxes in rows.items():
        if disk.has(str(folder / name)):
            entries.append(FileEntry(name, str(folder / name), PixelBoxes(pack(boxes))))
        else:
            message = f"no file {folder / name}; the image is skipped"
            problems.add(kinds.MISSING_FILE, f"{file}:{first_lines[name]}", message)
    files.note_unlabelled(folder, rows, f"no line in {file.name}", problems)
    return files.dataset_of(path, "cctsdb", "detect", classes, entries, problems)


def _files(folder: Path) -> dict[str, Path]:
    by_stem: dict[str, Path] = {}
    for place in (folder, folder / "annotations", folder / "labels"):
        for name in files.file_names(place):
            if name.lower().endswith((".txt", ".csv")) and _looks_like_it(place / name):
                by_stem.setdefault(Path(name).stem, place / name)
        if by_stem:
            break
    return by_stem


def _looks_like_it(file: Path) -> bool:
    parts = files.first_line(file).rstrip(";").split(";")
    return len(parts) == 6 and files.is_image(parts[0].rsplit("/", 1)[-1])


def _lines(file: Path, problems: Problems) -> list[_Line]:
    lines: list[_Line] = []
    for number, line in files.lines_of(file):
        parts = [part.strip() for part in line.rstrip(";").split(";")]
        try:
            if len(parts) != 6 or not parts[0] or not parts[5]:
                raise ValueError
            x1, y1, x2, y2 = (float(part) for part in parts[1:5])
        except ValueError:
            message = f"expected `file;x1;y1;x2;y2;class`, got {line[:80]!r}; the line is skipped"
            problems.add(kinds.UNREADABLE_LABEL, f"{file}:{number}", message)
        else:
            lines.append((number, parts[0], (x1, y1, x2, y2), parts[5]))
    return lines


def recognise_yolo(path: Path) -> str:
    """Why a path is a CCTSDB-YOLO benchmark, empty if it is not."""
    names = ", ".join(name or "." for name in _benchmarks(path))
    return f"has images/ and gt_labels/ in {names}" if names else ""


@stage("reader", recognise=recognise_yolo, task="single", rank=15)
def cctsdb_yolo(path: Path, *, split: str | None = None) -> Dataset:
    """The dataset of images/ next to gt_labels/; a folder of several such sets has them as splits."""
    problems = Problems()
    benchmarks = _benchmarks(path)
    if not benchmarks:
        raise DataError(f"{path}: no folder with images/ and gt_labels/*.txt found")
    root = files.choose_split(benchmarks, split, path, problems)
    entries, used = [], set()
    for name in files.image_names(root / "images"):
        file = root / "gt_labels" / (name.rpartition(".")[0] + ".txt")
        used.add(file.name)
        row = _only_row(file, problems) if file.is_file() else None
        if row is not None:
            entries.append(FileEntry(name, str(root / "images" / name), UnitBoxes(pack([row]))))
        elif not file.is_file():
            message = f"no {file}; the image is skipped"
            problems.add(kinds.IMAGE_WITHOUT_LABEL, root / "images" / name, message)
    for name in files.file_names(root / "gt_labels"):
        if name not in used:
            message = "no image of this name; the label is skipped"
            problems.add(kinds.LABEL_WITHOUT_IMAGE, root / "gt_labels" / name, message)
    return files.dataset_of(path, "cctsdb-yolo", "single", CLASSES, entries, problems)


def _benchmarks(path: Path) -> dict[str, Path]:
    places = {"": path} | {place.name: place for place in files.subfolders(path)} if path.is_dir() else {}
    parts = ("images", "gt_labels")
    return {name: place for name, place in places.items() if all((place / part).is_dir() for part in parts)}


def _only_row(file: Path, problems: Problems) -> BoxRow | None:
    try:
        lines = list(files.lines_of(file))
        if len(lines) != 1:
            raise ValueError
        number, x1, y1, x2, y2 = (float(part) for part in lines[0][1].split())
        row = BoxRow(x1, y1, x2, y2, int(number))
    except (ValueError, OverflowError, DataError):
        message = "expected one line `class x1 y1 x2 y2`; the image is skipped"
        problems.add(kinds.UNREADABLE_LABEL, file, message)
        return None
    if not 0 <= row.category < len(CLASSES) or row.category != number:
        message = f"expected a class of 0 to {len(CLASSES) - 1}, got {number:g}; the image is skipped"
        problems.add(kinds.UNKNOWN_CLASS, file, message)
        return None
    return row if check_box(row, Size(1, 1), str(file), problems) else None
