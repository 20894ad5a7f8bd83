"""Open any dataset: recognise a path's format, read it, reject empty datasets."""

from dataclasses import replace
from pathlib import Path

from holdfast.core.dataset import Dataset
from holdfast.core.errors import DataError, InputError
from holdfast.core.model import TASK_NAMES, Task
from holdfast.core.registry import Part, names, part
from holdfast.data import problems as kinds
from holdfast.data.embedded import embedded_dataset, is_embedded, similar_name
from holdfast.data.entries import FileEntry, PixelBoxes, UnitBoxes
from holdfast.data.files import file_names, is_image, subfolders
from holdfast.data.problems import Problems, grouped


def open_dataset(
    name_or_path: str | Path,
    *,
    task: Task | None = None,
    format: str | None = None,  # noqa: A002 (the name of the option)
    split: str | None = None,
    images: int | None = None,
) -> Dataset:
    """The dataset of a path, or the embedded one called `signs` or `far` (and `:SEED` or `:SEED:COUNT`).

    `task` selects among the matching formats; `format` names the reader instead. Faults of the data are
    listed in `problems`; DataError is raised only if no usable image remains.
    """
    if images is not None and images < 1:
        raise InputError(f"expected a number of images of 1 or more, got {images}")
    embedded = isinstance(name_or_path, str) and is_embedded(name_or_path)
    # The absolute path, so that the dataset can be reopened from another folder.
    place = name_or_path if embedded else str(Path(name_or_path).resolve())
    source = {"data": place, "format": format, "split": split, "images": images}
    if isinstance(name_or_path, str) and embedded and format is None:
        if split is not None:
            seeded = f"{name_or_path.split(':')[0]}:SEED"
            raise InputError(f"{name_or_path}: the embedded dataset has no splits; choose a seed: {seeded}")
        return replace(embedded_dataset(name_or_path, task, images), source=source)
    try:
        path, problems = Path(name_or_path), Problems()
        reader = part("reader", format) if format is not None else None
        if not path.exists():
            near = similar_name(str(name_or_path))
            hint = f"did you mean {near!r}?" if near else "expected a dataset (or `signs`, the embedded one)"
            raise DataError(f"{path}: no such file or folder; {hint}")
        if path.is_dir() and not any(path.iterdir()):
            raise DataError(f"{path}: the folder is empty; expected a dataset")
        reader = reader or _choose(path, task, problems)
        dataset: Dataset = reader.function(path, split=split)
        dataset = _for_task(replace(dataset, problems=(*problems, *dataset.problems)), task, path)
        if not dataset.entries:
            raise DataError(_nothing(dataset, path))
        return replace(dataset.first(images), source=source)
    except OSError as problem:  # e.g. no permission to list a folder, or a missing disk
        raise DataError(f"{name_or_path}: cannot be read: {problem}") from problem


def recognise(path: Path) -> list[tuple[Part, str]]:
    """The readers whose format matches a path, each with the reason, the most specific first."""
    reasons = [(reader, str(reader.facts["recognise"](path))) for reader in _readers()]
    return [(reader, why) for reader, why in reasons if why]


def _readers() -> list[Part]:
    parts = [part("reader", name) for name in names("reader")]
    recognising = [reader for reader in parts if "recognise" in reader.facts]
    return sorted(recognising, key=lambda reader: (reader.facts.get("rank", 50), reader.name))


def _choose(path: Path, task: Task | None, problems: Problems) -> Part:
    fitting = recognise(path)
    if not fitting:
        formats = ", ".join(reader.name for reader in _readers())
        raise DataError(f"{path}: no known dataset format; looked for {formats}; found {_contents(path)}")
    usable = [(r, why) for r, why in fitting if task is None or _serves(r.facts["task"], task)]
    if task and not usable:
        tasks = ", ".join(f"{TASK_NAMES[r.facts['task']]} ({r.name})" for r, _ in fitting)
        hint = "; give one folder per class, or a text file of lines 'file label'"
        got = tasks + (hint if task == "classify" else "")
        raise DataError(f"{path}: expected a dataset for {TASK_NAMES[task]}, got one for {got}")
    (first, reason), *others = usable
    if others:
        also = ", ".join(f"{reader.name} ({why})" for reader, why in others)
        choice = f"read as {first.name}, the most specific format ({reason}); also matches {also}"
        problems.add(kinds.SEVERAL_FORMATS, path, f"{choice}; choose one with --format")
    return first


def _serves(offered: Task, requested: Task) -> bool:
    return offered == requested or {offered, requested} == {"detect", "single"}


def _for_task(dataset: Dataset, task: Task | None, path: Path) -> Dataset:
    """The dataset for that task: boxes serve detect and single, where an image has exactly one object."""
    if task is None or dataset.task == task:
        return dataset
    if not _serves(dataset.task, task):
        got = f"{TASK_NAMES[dataset.task]} ({dataset.format})"
        raise DataError(f"{path}: expected a dataset for {TASK_NAMES[task]}, got one for {got}")
    if task == "detect":
        return replace(dataset, task=task)
    entries, problems = [], Problems(dataset.problems)
    for entry in dataset.entries:
        truth = entry.truth if isinstance(entry, FileEntry) else None
        if not isinstance(truth, PixelBoxes | UnitBoxes) or len(truth) == 1:
            entries.append(entry)
        else:
            message = f"{len(truth)} objects; expected exactly one; the image is skipped"
            problems.add(kinds.NOT_ONE_OBJECT, entry.name, message)
    return replace(dataset, task=task, entries=tuple(entries), problems=tuple(problems))


def _nothing(dataset: Dataset, path: Path) -> str:
    groups = grouped(dataset.problems)
    if not groups:
        return f"{path}: read as {dataset.format}, but it lists no images"
    kinds_text = [f"{kind} ({len(rows)}, first: {rows[0]})" for kind, rows in groups.items()]
    return f"{path}: read as {dataset.format}, but no usable image remains: {'; '.join(kinds_text[:3])}"


def _contents(path: Path) -> str:
    if path.is_file():
        return f"a {path.suffix or 'nameless'} file of {path.stat().st_size} bytes"
    folders = [f"{place.name}/" for place in subfolders(path)]
    files = file_names(path)
    listed = ", ".join([*folders[:6], *files[:6]]) or "only hidden files"
    rest = len(folders[6:]) + len(files[6:])
    alone = "; images need labels next to them (docs/how-to/your-data.md)"
    return f"{listed}{f' and {rest} more' if rest else ''}{alone if any(map(is_image, files)) else ''}"
