"""One door to all question sets: recognise the kind from the content, read it, refuse what holds nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from holdfast.core.errors import DataError, InputError, UnknownName
from holdfast.core.fingerprint import of_bytes
from holdfast.core.language import Question, TextKind, TextSet
from holdfast.data.files import read_label_bytes
from holdfast.noise.language.data.kinds import READERS, Label, hellaswag_text, kind_of
from holdfast.noise.language.data.lines import Record, lines_of, records_of, unpacked

_SUFFIXES = (".bz2", ".jsonl", ".json", ".txt")
_LABELS = "-labels.lst"


@dataclass(frozen=True)
class _Labels:
    """The labels of a file beside the questions, one a line."""

    path: Path
    lines: tuple[Label, ...]
    data: bytes


def open_text(path: Path, limit: int | None = None) -> TextSet:
    """The questions of a file, or of a shipped set by its name; the first `limit` of them if given.

    The kind is found from the fields of the first line. A line that cannot be used is a DataError naming it.
    """
    if limit is not None and limit < 1:
        raise InputError(f"expected a number of questions of 1 or more, got {limit}")
    file = find_text(path)
    packed = read_label_bytes(file)
    lines = lines_of(file, unpacked(file))
    if not any(line.strip() for line in lines):
        raise DataError(f"{file}: the file is empty; expected a set of questions")
    if next(line for line in lines if line.strip()).lstrip().startswith(("{", "[")):
        found, questions, labels = _from_records(file, lines, limit)
    else:
        found, labels = kind_of(file, lines, None), None
        questions = hellaswag_text(file, lines)[:limit]
    sha256 = of_bytes(packed)
    if labels is not None:
        sha256 = of_bytes(f"{sha256}\n{of_bytes(labels.data)}".encode())
    return TextSet(_stem(file), found, tuple(questions), sha256, _notes(questions, labels))


def shipped_texts() -> dict[str, Path]:
    """The question sets that come with the package, by name."""
    folder = Path(str(resources.files("holdfast"))) / "models" / "language"
    files = sorted(folder.glob("road-*")) if folder.is_dir() else []
    kept = [f for f in files if f.suffix in _SUFFIXES and not f.name.endswith(".tokenizer.json")]
    return {_stem(f): f for f in kept}


def find_text(path: Path) -> Path:
    """The file of a shipped question set or of the user's, or an error that names the nearest one."""
    if path.is_file():
        return path
    shipped = shipped_texts()
    if str(path) in shipped:
        return shipped[str(path)]
    if path.is_dir():
        raise DataError(f"{path}: is a folder; give the file of a question set")
    if len(path.parts) == 1 and not path.suffix:
        raise UnknownName("question set", str(path), shipped)
    raise DataError(f"{path}: no such file; give a question set or one of: {', '.join(shipped) or 'none'}")


def _from_records(
    file: Path, lines: Sequence[str], limit: int | None
) -> tuple[TextKind, list[Question], _Labels | None]:
    records = list(records_of(file, lines))
    found = kind_of(file, lines, records[0])
    field = "answer" if found == "winogrande" else "label"
    labels = None if found == "lambada" else _labels(file, records, field)
    beside: tuple[Label | None, ...] = (None,) * len(records) if labels is None else labels.lines
    read = READERS[found]
    pairs = list(zip(records, beside, strict=True))[:limit]
    return found, [read(record, label) for record, label in pairs], labels


def _labels(file: Path, records: Sequence[Record], field: str) -> _Labels | None:
    """The labels beside the file, when its own records have none; they must be as many as the questions."""
    if field in records[0].values:
        return None
    stem = _stem(file)
    names = (f"{stem}{_LABELS}", f"{stem}_labels.lst", f"{stem}.labels.lst", f"{stem}.lst", "labels.lst")
    path = next((file.parent / name for name in names if (file.parent / name).is_file()), None)
    if path is None:
        return None
    data = read_label_bytes(path, 64 << 20)
    numbered = enumerate(lines_of(path, data), 1)
    lines = tuple(Label(f"{path}:{number}", line) for number, line in numbered if line.strip())
    if len(lines) != len(records):
        raise DataError(
            f"{path}: expected {len(records)} labels, one for each question of {file.name}, got {len(lines)}"
        )
    return _Labels(path, lines, data)


def _stem(file: Path) -> str:
    name = file.name
    while name.endswith(_SUFFIXES):
        name = name.rpartition(".")[0]
    return name or file.name


def _notes(questions: Sequence[Question], labels: _Labels | None) -> tuple[str, ...]:
    notes = [] if labels is None else [f"labels read from {labels.path.name}"]
    same = [q.name for q in questions if len({(e.prompt, e.text) for e in q.endings}) < len(q.endings)]
    if same:
        notes.append(f"{len(same)} questions have equal endings, the first at {same[0]}")
    return tuple(notes)
