"""Files of a dataset: image folders, splits, label files, class names; and atomic folders."""

import os
import shutil
import tempfile
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from holdfast.core.dataset import Dataset, Entry
from holdfast.core.errors import DataError, InputError, OutputError
from holdfast.core.limits import limit, open_regular, read_file, too_large
from holdfast.core.model import Task
from holdfast.data.images import SUFFIXES
from holdfast.data.problems import IMAGE_WITHOUT_LABEL, SEVERAL_SPLITS, Problems

# Order of preference if a dataset has several splits and none is requested: evaluation splits first.
SPLITS = ("val", "valid", "validation", "val2017", "test", "test2017", "train", "train2017")
_SAME = ("val", "valid", "validation")
MAX_CLASSES = 65536  # the number of values of a 16-bit mask
_NAME_FILES = ("classes.txt", "labels.txt", "obj.names", "names.txt", "synset_words.txt")
T = TypeVar("T")


def is_image(name: str) -> bool:
    """Whether a file's name has the suffix of an image."""
    return "." + name.rpartition(".")[2].lower() in SUFFIXES and not name.startswith(".")


def subfolders(folder: Path) -> list[Path]:
    """The folders directly in a folder, sorted by name; hidden ones are skipped."""
    with os.scandir(folder) as items:
        names = sorted(item.name for item in items if item.is_dir() and not item.name.startswith("."))
    return [folder / name for name in names]


def file_names(folder: Path) -> list[str]:
    """The names of the files directly in a folder, sorted; none if there is no such folder."""
    try:
        with os.scandir(folder) as items:
            return sorted(item.name for item in items if not item.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def yaml_files(path: Path) -> list[Path]:
    """The YAML files directly in a folder, sorted by name; or the path itself if it is a YAML file."""
    files = [path] if path.is_file() else [path / name for name in file_names(path)]
    return [file for file in files if file.suffix.lower() in (".yaml", ".yml")]


def find_yaml(path: Path, fits: Callable[[dict[str, Any]], object]) -> Path | None:
    """The first readable YAML file of a path whose mapping matches."""
    for file in yaml_files(path):
        with suppress(DataError):
            if fits(read_yaml(file)):
                return file
    return None


def yaml_words(config: Path, path: Path) -> str:
    """How a YAML file was found: given directly, or in the given folder."""
    return "a .yaml file" if config == path else f"has {config.name}"


def image_names(folder: Path, *, deep: bool = True) -> list[str]:
    """The images in a folder (and the folders in it), sorted, as paths inside it with forward slashes."""
    if not deep:
        return [name for name in file_names(folder) if is_image(name)]
    paths = []
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        inside = Path(place).relative_to(folder)
        paths += [(inside / name).as_posix() for name in files if is_image(name)]
    return sorted(paths)


class FolderIndex(dict[str, frozenset[str]]):
    """Names by folder. Each folder is listed once, which is far cheaper than one check per file."""

    def __missing__(self, folder: str) -> frozenset[str]:
        try:
            with os.scandir(folder or ".") as items:
                self[folder] = frozenset(item.name for item in items)
        except (OSError, ValueError):  # ValueError: a name with a zero byte
            self[folder] = frozenset()
        return self[folder]

    def has(self, path: str) -> bool:
        """Whether there is a file or folder of that path."""
        folder, name = os.path.split(path)
        return name in self[folder]


def best_folder(names: Sequence[str], candidates: Sequence[Path], disk: FolderIndex) -> Path:
    """The candidate that holds most of the named files; the first one if none holds any."""
    some = names[:: max(1, len(names) // 20)]
    hits = [sum(disk.has(str(folder / name)) for name in some) for folder in candidates]
    return candidates[hits.index(max(hits))]


def choose_split(splits: Mapping[str, T], split: str | None, where: Path, problems: Problems) -> T:
    """The requested split, or the first existing one of val, test, train; a note if there are several."""
    if split is not None:
        same = _SAME if split in _SAME else ()
        longer = [name for name in splits if name.startswith(split)]  # val for val2017
        for name in (split, *same, *(longer if len(longer) == 1 else ())):
            if name in splits:
                return splits[name]
        raise DataError(f"{where}: no split {split!r}; there are: {', '.join(splits) or 'none'}")
    names = sorted(splits, key=lambda name: (SPLITS.index(name) if name in SPLITS else len(SPLITS), name))
    if len(names) > 1:
        note = f"has the splits {', '.join(names)}; using {names[0]}; choose another one with --split"
        problems.add(SEVERAL_SPLITS, where, note)
    return splits[names[0]]


def choose_file(
    path: Path, find: Callable[[Path], dict[str, Path]], split: str | None, problems: Problems, nothing: str
) -> Path:
    """The path if it is a file, else the file of the chosen split among the results of `find`."""
    if not path.is_dir():
        return path
    by_split = find(path)
    if not by_split:
        raise DataError(f"{path}: {nothing}")
    return choose_split(by_split, split, path, problems)


def note_unlabelled(folder: Path, labelled: Container[str], why: str, problems: Problems) -> None:
    """Add a note for each image directly in a folder that is not in `labelled`."""
    for name in image_names(folder, deep=False):
        if name not in labelled:
            problems.add(IMAGE_WITHOUT_LABEL, folder / name, f"{why}; the image is skipped")


def read_text(path: Path, name: str = "label-mb") -> str:
    """The text of a label file (UTF-8, with or without a BOM); raise DataError if it cannot be read."""
    try:
        return read_label_bytes(path, name).decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        got = f"byte {problem.object[problem.start]:#04x} at {problem.start}"
        raise DataError(f"{path}: expected text in UTF-8, got {got}") from None


def read_label_bytes(path: Path, name: str = "label-mb") -> bytes:
    """The bytes of a label file; raise DataError if it cannot be read or is above the limit of that name."""
    return read_file(path, name, DataError)


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """The lines that are not blank, stripped, with their numbers from 1."""
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if text := line.strip():
            yield number, text


def first_line(path: Path, most_bytes: int = 4096) -> str:
    """The first line of a text file that is not blank; empty if there is none or it is no text."""
    try:
        with open_regular(path) as stream:
            head = stream.read(most_bytes)
    except OSError:
        return ""
    lines = [] if b"\0" in head else head.decode("utf-8-sig", "replace").splitlines()
    return next((line.strip() for line in lines if line.strip()), "")


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file; raise DataError if it is not one."""
    import yaml

    try:
        text, loader = read_text(path, "text-mb"), getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        _check_nesting(path, yaml.parse(text, Loader=loader))
        content = yaml.load(text, Loader=loader)  # noqa: S506
    except yaml.YAMLError as problem:
        line = getattr(getattr(problem, "problem_mark", None), "line", -1) + 1
        at = f":{line}" if line else ""
        raise DataError(f"{path}{at}: not valid YAML: {getattr(problem, 'problem', problem)}") from None
    if not isinstance(content, dict):
        raise DataError(f"{path}: expected a YAML mapping, got {type(content).__name__}")
    return {str(key): value for key, value in content.items()}


def _check_nesting(path: Path, events: Iterable[Any]) -> None:
    """Raise DataError if the events of a YAML file nest too deeply or have too many aliases."""
    from yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent

    depth = aliases = 0
    for event in events:
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        aliases += isinstance(event, AliasEvent)
        for name, got in (("depth", depth), ("aliases", aliases)):
            if got > limit(name):
                raise DataError(f"{path}: {too_large(name, f'a {name} of {got:,} in YAML')}")


def yaml_base(content: Mapping[str, Any], config: Path) -> Path:
    """The base folder of the paths in a YAML file: its `path`, or the file's folder if that is missing."""
    base = config.parent / str(content.get("path") or "")
    return base if base.is_dir() else config.parent


def dataset_of(
    path: Path, kind: str, task: Task, classes: Iterable[str], entries: Iterable[Entry], problems: Problems
) -> Dataset:
    """The dataset of a path, named after its folder, and after the file if it is one."""
    place = path.resolve()
    name = place.name if path.is_dir() else f"{place.parent.name}/{place.name}"
    return Dataset(name, kind, task, tuple(classes), tuple(entries), problems=tuple(problems))


def numbered(names: Any, count: Any, where: Path) -> dict[int, str]:
    """Class names by id in the order of the ids, from a list, a mapping, or a mere number of classes."""
    if names is None and isinstance(count, int):
        return {number: str(number) for number in range(min(count, MAX_CLASSES))}
    if isinstance(names, list):
        return {number: str(name) for number, name in enumerate(names)}
    if isinstance(names, dict):
        try:
            ids = {int(key): str(name) for key, name in names.items()}
        except (TypeError, ValueError):
            raise DataError(f"{where}: expected integer class ids, got {list(names)[:5]}") from None
        if ids and not 0 <= min(ids) <= max(ids) < MAX_CLASSES:
            got = f"{min(ids)} to {max(ids)}"
            raise DataError(f"{where}: expected class ids of 0 to {MAX_CLASSES - 1}, got {got}")
        return dict(sorted(ids.items()))
    raise DataError(f"{where}: expected class names as a list or as `id: name`, got {type(names).__name__}")


def classes_in(*folders: Path) -> dict[int, str]:
    """Class names by id from the first text file of names in these folders (one per line), or empty."""
    for folder in folders:
        for name in _NAME_FILES:
            if (folder / name).is_file():
                return {number: text for number, (_, text) in enumerate(lines_of(folder / name))}
    return {}


def check_new(folder: Path) -> None:
    """Raise InputError unless the folder is new or empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder}: expected a new or empty folder, but it is not empty")


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """Create a folder atomically: it is renamed at the end, and removed after an error."""
    check_new(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        place = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as problem:
        raise OutputError(f"{folder}: cannot write: {problem.strerror}; choose another") from problem
    try:
        yield place
        place.chmod(0o755)
        place.replace(folder)
    except OSError as problem:
        text = f"{folder}: could not be written: {problem.strerror}; the folder was removed"
        raise OutputError(text) from problem
    finally:
        shutil.rmtree(place, ignore_errors=True)
