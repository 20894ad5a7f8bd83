r"""Question sets for language models: PIQA, LAMBADA, HellaSwag, WinoGrande, in their own files' formats.

Which text is the prompt and which is scored follows lm-evaluation-harness, so that figures can be compared:

- PIQA: prompt "Question: {goal}\nAnswer:", endings " {solution}".
- LAMBADA: the text up to its last space, ending " {rest}": the word the model must say by itself.
- HellaSwag: the context, endings " {ending}". In the original file the context is "{activity_label}: {ctx_a}
  {ctx_b with a capital}" if these fields are there, else `ctx`; marks such as [title] are taken out.
  Its text form is taken as it stands, without a capital and with what is left in brackets there.
- WinoGrande, partial evaluation: prompt = the sentence up to `_` and the option, ending " {what follows}",
  the same for both: what is compared is how likely it is behind the one option and behind the other.
"""

import bz2
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from holdfast.core.errors import DataError, InputError, UnknownName
from holdfast.core.fingerprint import of_bytes
from holdfast.core.language import Ending, Question, TextKind, TextSet
from holdfast.core.limits import limit, too_large
from holdfast.data.files import read_label_bytes

SHIPPED = Path(str(resources.files("holdfast"))) / "models" / "language"  # models and question sets


@dataclass(frozen=True)
class JsonRecord:
    """One JSON object of a file, with the line it stands in."""

    path: Path
    line: int
    values: dict[str, Any]

    @property
    def where(self) -> str:
        """The place as file:line, for messages."""
        return f"{self.path}:{self.line}"

    @property
    def name(self) -> str:
        """The place as a short name."""
        return f"{self.path.name}:{self.line}"

    def text(self, field: str) -> str:
        """A field that must be a text with something in it."""
        value = self._field(field)
        if not isinstance(value, str) or not value.strip():
            raise DataError(f"{self.where}: {field!r}: expected a text, got {shorten(value)}")
        return value

    def texts(self, field: str) -> list[str]:
        """A field that must be a list of texts."""
        value = self._field(field)
        if not isinstance(value, list) or not all(isinstance(v, str) and v.strip() for v in value):
            raise DataError(f"{self.where}: {field!r}: expected a list of texts, got {shorten(value)}")
        return value

    def _field(self, field: str) -> Any:
        if field not in self.values:
            names = ", ".join(self.values) or "none"
            raise DataError(f"{self.where}: the field {field!r} is missing; fields there: {names}")
        return self.values[field]


def shorten(value: object) -> str:
    """A value as a short piece of a message."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


def read_unpacked(path: Path) -> bytes:
    """The bytes of a text file, unpacked if it is bzip2; DataError if they are above the limit."""
    data = read_label_bytes(path)
    if not data.startswith(b"BZh"):
        return data
    try:
        with bz2.open(path) as stream:  # reads piece by piece: a small file cannot fill the memory
            data = stream.read((limit("label-mb") << 20) + 1)
    except (OSError, EOFError) as problem:
        raise DataError(f"{path}: not a whole bzip2 file: {problem}; download it again") from problem
    if len(data) > limit("label-mb") << 20:
        raise DataError(f"{path}: {too_large('label-mb', 'unpacks to more')}")
    return data


def lines_of(path: Path, data: bytes) -> list[str]:
    """The lines of UTF-8 text; only a line feed ends one, as a text may hold Unicode's other line breaks."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = data.count(b"\n", 0, problem.start) + 1
        text = f"expected text in UTF-8, got byte {data[problem.start]:#04x}; save it as UTF-8"
        raise DataError(f"{path}:{line}: {text}") from None
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return lines[:-1] if lines[-1] == "" else lines


def records_of(path: Path, lines: Sequence[str]) -> Iterator[JsonRecord]:
    """The JSON objects, one a line; blank lines are passed over."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            values = json.loads(line)
        except (ValueError, RecursionError) as problem:
            text = f"not valid JSON: {getattr(problem, 'msg', problem)}; expected one object per line"
            raise DataError(f"{path}:{number}: {text}") from None
        if not isinstance(values, dict):
            raise DataError(f"{path}:{number}: expected a JSON object with fields, got {shorten(values)}")
        yield JsonRecord(path, number, values)


QuestionReader: TypeAlias = Callable[[JsonRecord, "Label | None"], Question]


class Label(NamedTuple):
    """A label from a file next to the questions, with its place as file:line."""

    where: str
    text: str


# The fields that tell a kind; LAMBADA's only field is too common to weigh as much as two of another kind.
FIELDS: Mapping[TextKind, tuple[str, ...]] = {
    "piqa": ("goal", "sol1", "sol2"),
    "hellaswag": ("endings", "ctx", "ctx_a", "ctx_b"),
    "winogrande": ("sentence", "option1", "option2"),
    "lambada": ("text",),
}
_TEXT_ROWS = 6  # of HellaSwag's text form: context, number of the right ending, four endings


def kind_of(path: Path, lines: Sequence[str], first: JsonRecord | None) -> TextKind:
    """The kind of set, from the fields of its first record or from the shape of its lines."""
    if first is None:
        if len(lines) >= _TEXT_ROWS and lines[1].strip() in ("0", "1", "2", "3"):
            return "hellaswag"
        raise DataError(
            f"{path}:1: expected questions, one JSON object per line (PIQA, LAMBADA, HellaSwag, WinoGrande)"
            f" or HellaSwag's text form of six lines per question; got {shorten(lines[0])}"
        )
    counts = {kind: sum(field in first.values for field in fields) for kind, fields in FIELDS.items()}
    best = max(counts, key=lambda kind: counts[kind])  # the order of FIELDS decides a tie
    if not counts[best]:
        expected = "; ".join(f"{kind}: {', '.join(fields[:3])}" for kind, fields in FIELDS.items())
        names = ", ".join(first.values) or "none"
        raise DataError(f"{first.where}: no set of questions has these fields: {names}; expected {expected}")
    return best


def piqa(record: JsonRecord, label: Label | None) -> Question:
    """A question of PIQA: which of two solutions serves the goal."""
    prompt = f"Question: {record.text('goal')}\nAnswer:"
    endings = tuple(Ending(prompt, " " + record.text(field)) for field in ("sol1", "sol2"))
    return Question(record.name, endings, _answer(record, "label", label, ("0", "1")))


def lambada(record: JsonRecord, label: Label | None) -> Question:
    """A question of LAMBADA: the last word of a passage."""
    text = record.text("text").strip()
    context, space, word = text.rpartition(" ")
    if not context.strip() or not word:
        raise DataError(f"{record.where}: 'text': expected a passage and its last word, got {shorten(text)}")
    return Question(record.name, (Ending(context, space + word),), 0)


def hellaswag(record: JsonRecord, label: Label | None) -> Question:
    """A question of HellaSwag's original file: which of the endings continues the context."""
    values = record.values
    if {"activity_label", "ctx_a", "ctx_b"} <= values.keys():
        later = values["ctx_b"] if isinstance(values["ctx_b"], str) else ""
        context = f"{record.text('activity_label')}: {record.text('ctx_a')} {later.capitalize()}"
    else:
        context = record.text("ctx")
    prompt, texts = _without_marks(context), record.texts("endings")
    if len(texts) < 2:
        raise DataError(f"{record.where}: 'endings': expected at least two, got {len(texts)}")
    endings = tuple(Ending(prompt, " " + _without_marks(text)) for text in texts)
    if not all(e.prompt.strip() and e.text.strip() for e in endings):
        raise DataError(f"{record.where}: nothing is left of a text when its marks in [ ] are taken out")
    return Question(record.name, endings, _answer(record, "label", label, tuple(map(str, range(len(texts))))))


def _without_marks(text: str) -> str:
    return re.sub(r"\[.*?\]", "", text.strip().replace(" [title]", ". ")).replace("  ", " ")


def winogrande(record: JsonRecord, label: Label | None) -> Question:
    """A question of WinoGrande: which of two options makes the rest of the sentence likelier."""
    sentence = record.text("sentence")
    gaps = sentence.count("_")
    if gaps != 1:
        raise DataError(f"{record.where}: 'sentence': expected one `_`, got {gaps}: {shorten(sentence)}")
    before, _, after = sentence.partition("_")
    if not after.strip():
        raise DataError(f"{record.where}: 'sentence': nothing behind `_` to score: {shorten(sentence)}")
    options = [record.text(field) for field in ("option1", "option2")]
    endings = tuple(Ending(before + option, " " + after.strip()) for option in options)
    return Question(record.name, endings, _answer(record, "answer", label, ("1", "2")))


READERS: dict[TextKind, QuestionReader] = {
    "piqa": piqa, "lambada": lambada, "hellaswag": hellaswag, "winogrande": winogrande,
}  # fmt: skip


def hellaswag_text(path: Path, lines: Sequence[str]) -> list[Question]:
    """The questions of HellaSwag's text form: context, number of the right ending, four endings."""
    rows = lines[: max((n for n, line in enumerate(lines, 1) if line.strip()), default=0)]
    questions = []
    for start in range(0, len(rows), _TEXT_ROWS):
        part = rows[start : start + _TEXT_ROWS]
        if len(part) < _TEXT_ROWS:
            raise DataError(f"{path}:{start + 1}: expected {_TEXT_ROWS} lines per question, got {len(part)}")
        for place, text in enumerate(part):
            if not text.strip():
                raise DataError(f"{path}:{start + place + 1}: expected a text, got an empty line")
        if part[1].strip() not in ("0", "1", "2", "3"):
            raise DataError(f"{path}:{start + 2}: expected the right ending, 0 to 3, got {shorten(part[1])}")
        endings = tuple(Ending(part[0], " " + text) for text in part[2:])
        questions.append(Question(f"{path.name}:{start + 1}", endings, int(part[1])))
    return questions


def _answer(record: JsonRecord, field: str, label: Label | None, choices: tuple[str, ...]) -> int:
    if label is None and field not in record.values:
        raise DataError(
            f"{record.where}: the field {field!r} is missing; put it there, or a label file next to it: "
            f"{record.path.name.split('.')[0]}-labels.lst, one per line"
        )
    value = record.values[field] if label is None else label.text
    text = str(value).strip()
    if isinstance(value, bool) or text not in choices:
        where = f"{record.where}: {field!r}" if label is None else label.where
        raise DataError(f"{where}: expected the label {' or '.join(choices)}, got {shorten(value)}")
    return choices.index(text)


_SUFFIXES = (".bz2", ".jsonl", ".json", ".txt")
_LABELS = "-labels.lst"


def open_text(path: Path, limit: int | None = None) -> TextSet:
    """The questions of a file or of a shipped set, at most `limit`; DataError names a line that is wrong."""
    if limit is not None and limit < 1:
        raise InputError(f"expected a number of questions of 1 or more, got {limit}")
    file = find_text(path)
    sha256 = of_bytes(read_label_bytes(file))
    lines = lines_of(file, read_unpacked(file))
    if not any(line.strip() for line in lines):
        raise DataError(f"{file}: the file is empty; expected a set of questions")
    notes = []
    if next(line for line in lines if line.strip()).lstrip().startswith(("{", "[")):
        records = list(records_of(file, lines))
        kind = kind_of(file, lines, records[0])
        labels: Sequence[Label | None] = [None] * len(records)
        if beside := _label_file(file, records[0], kind):
            data = read_label_bytes(beside, "text-mb")
            labels = _labels(beside, data, len(records), file)
            notes.append(f"labels read from {beside.name}")
            sha256 = of_bytes(f"{sha256}\n{of_bytes(data)}".encode())
        pairs = list(zip(records, labels, strict=True))[:limit]
        questions = [READERS[kind](record, label) for record, label in pairs]
    else:
        kind = kind_of(file, lines, None)
        questions = hellaswag_text(file, lines)[:limit]
    same = [q.name for q in questions if len({(e.prompt, e.text) for e in q.endings}) < len(q.endings)]
    if same:
        notes.append(f"{len(same)} questions have equal endings, the first at {same[0]}")
    return TextSet(_stem(file), kind, tuple(questions), sha256, tuple(notes))


def shipped_texts() -> dict[str, Path]:
    """The question sets that come with the package, by name."""
    files = [f for f in sorted(SHIPPED.glob("road-*")) if f.suffix in _SUFFIXES]
    return {_stem(f): f for f in files if not f.name.endswith(".tokenizer.json")}


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


def _label_file(file: Path, first: JsonRecord, kind: TextKind) -> Path | None:
    """The file of labels next to the questions, when their own records have none."""
    if kind == "lambada" or ("answer" if kind == "winogrande" else "label") in first.values:
        return None
    stem = _stem(file)
    names = (f"{stem}{_LABELS}", f"{stem}_labels.lst", f"{stem}.labels.lst", f"{stem}.lst", "labels.lst")
    return next((file.parent / name for name in names if (file.parent / name).is_file()), None)


def _labels(path: Path, data: bytes, count: int, file: Path) -> list[Label]:
    numbered = enumerate(lines_of(path, data), 1)
    labels = [Label(f"{path}:{number}", line) for number, line in numbered if line.strip()]
    if len(labels) != count:
        expected = f"expected {count} labels, one for each question of {file.name}"
        raise DataError(f"{path}: {expected}, got {len(labels)}")
    return labels


def _stem(file: Path) -> str:
    name = file.name
    while name.endswith(_SUFFIXES):
        name = name.rpartition(".")[0]
    return name or file.name
