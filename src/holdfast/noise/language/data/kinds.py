r"""Questions from the records of each kind of set: which text is the prompt and which is scored.

The forms are those of lm-evaluation-harness, so that figures can be compared:

- PIQA: prompt "Question: {goal}\nAnswer:", endings " {solution}".
- LAMBADA: the text up to its last space, ending " {rest}": the word the model must say by itself.
- HellaSwag: the context, endings " {ending}". In the original file the context is "{activity_label}: {ctx_a}
  {ctx_b with a capital}" if these fields are there, else `ctx`; marks such as [title] are taken out.
  Its text form is taken as it stands, without a capital and with what is left in brackets there.
- WinoGrande, partial evaluation: prompt = the sentence up to `_` and the option, ending " {what follows}",
  the same for both: what is compared is how likely it is behind the one option and behind the other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from holdfast.core.errors import DataError
from holdfast.core.language import Ending, Question, TextKind
from holdfast.noise.language.data.lines import Record, shown

Read: TypeAlias = Callable[[Record, "Label | None"], Question]


class Label(NamedTuple):
    """A label from a file beside the questions, with its place as file:line."""

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


def kind_of(path: Path, lines: Sequence[str], first: Record | None) -> TextKind:
    """The kind of set, from the fields of its first record or from the shape of its lines."""
    if first is None:
        if len(lines) >= _TEXT_ROWS and lines[1].strip() in ("0", "1", "2", "3"):
            return "hellaswag"
        raise DataError(
            f"{path}:1: expected questions, one JSON object a line (PIQA, LAMBADA, HellaSwag, WinoGrande)"
            f" or HellaSwag's text form of six lines a question; got {shown(lines[0])}"
        )
    found = {kind: sum(field in first.values for field in fields) for kind, fields in FIELDS.items()}
    best = max(found, key=lambda kind: found[kind])  # the order of FIELDS decides a tie
    if not found[best]:
        wanted = "; ".join(f"{kind}: {', '.join(fields[:3])}" for kind, fields in FIELDS.items())
        there = ", ".join(first.values) or "none"
        raise DataError(f"{first.where}: no set of questions has these fields: {there}; expected {wanted}")
    return best


def piqa(record: Record, label: Label | None) -> Question:
    """A question of PIQA: which of two solutions serves the goal."""
    prompt = f"Question: {record.text('goal')}\nAnswer:"
    endings = tuple(Ending(prompt, " " + record.text(field)) for field in ("sol1", "sol2"))
    return Question(record.name, endings, _answer(record, "label", label, ("0", "1")))


def lambada(record: Record, label: Label | None) -> Question:
    """A question of LAMBADA: the last word of a passage."""
    text = record.text("text").strip()
    context, space, word = text.rpartition(" ")
    if not context.strip() or not word:
        raise DataError(f"{record.where}: 'text': expected a passage and its last word, got {shown(text)}")
    return Question(record.name, (Ending(context, space + word),), 0)


def hellaswag(record: Record, label: Label | None) -> Question:
    """A question of HellaSwag's original file: which of the endings continues the context."""
    values = record.values
    if {"activity_label", "ctx_a", "ctx_b"} <= values.keys():
        later = values["ctx_b"] if isinstance(values["ctx_b"], str) else ""
        context = f"{record.text('activity_label')}: {record.text('ctx_a')} {later.capitalize()}"
    else:
        context = record.text("ctx")
    prompt = _without_marks(context)
    texts = record.texts("endings")
    if len(texts) < 2:
        raise DataError(f"{record.where}: 'endings': expected at least two, got {len(texts)}")
    endings = tuple(Ending(prompt, " " + _without_marks(text)) for text in texts)
    if not all(e.prompt.strip() and e.text.strip() for e in endings):
        raise DataError(f"{record.where}: nothing is left of a text when its marks in [ ] are taken out")
    answer = _answer(record, "label", label, tuple(str(i) for i in range(len(texts))))
    return Question(record.name, endings, answer)


def _without_marks(text: str) -> str:
    plain = re.sub(r"\[.*?\]", "", text.strip().replace(" [title]", ". "))
    return plain.replace("  ", " ")


def winogrande(record: Record, label: Label | None) -> Question:
    """A question of WinoGrande: which of two options makes the rest of the sentence likelier."""
    sentence = record.text("sentence")
    gaps = sentence.count("_")
    if gaps != 1:
        raise DataError(f"{record.where}: 'sentence': expected one `_`, got {gaps}: {shown(sentence)}")
    before, _, after = sentence.partition("_")
    if not after.strip():
        raise DataError(f"{record.where}: 'sentence': nothing behind `_` to score: {shown(sentence)}")
    endings = tuple(
        Ending(before + record.text(field), " " + after.strip()) for field in ("option1", "option2")
    )
    return Question(record.name, endings, _answer(record, "answer", label, ("1", "2")))


READERS: dict[TextKind, Read] = {
    "piqa": piqa, "lambada": lambada, "hellaswag": hellaswag, "winogrande": winogrande
}  # fmt: skip


def hellaswag_text(path: Path, lines: Sequence[str]) -> list[Question]:
    """The questions of HellaSwag's text form: context, number of the right ending, four endings."""
    rows = list(lines)
    while rows and not rows[-1].strip():
        rows.pop()
    questions = []
    for start in range(0, len(rows), _TEXT_ROWS):
        part = rows[start : start + _TEXT_ROWS]
        if len(part) < _TEXT_ROWS:
            raise DataError(f"{path}:{start + 1}: expected {_TEXT_ROWS} lines a question, got {len(part)}")
        for place, text in enumerate(part):
            if not text.strip():
                raise DataError(f"{path}:{start + place + 1}: expected a text, got an empty line")
        if part[1].strip() not in ("0", "1", "2", "3"):
            raise DataError(f"{path}:{start + 2}: expected the right ending, 0 to 3, got {shown(part[1])}")
        endings = tuple(Ending(part[0], " " + text) for text in part[2:])
        questions.append(Question(f"{path.name}:{start + 1}", endings, int(part[1])))
    return questions


def _answer(record: Record, field: str, beside: Label | None, choices: tuple[str, ...]) -> int:
    """The place of the right ending, from the field or from the labels' file."""
    if beside is None and field not in record.values:
        raise DataError(
            f"{record.where}: the field {field!r} is missing; put it there, or a file of labels beside it: "
            f"{record.path.name.split('.')[0]}-labels.lst, one a line"
        )
    given = record.values[field] if beside is None else beside.text
    text = str(given).strip()
    if isinstance(given, bool) or text not in choices:
        where = f"{record.where}: {field!r}" if beside is None else beside.where
        raise DataError(f"{where}: expected the label {' or '.join(choices)}, got {shown(given)}")
    return choices.index(text)
