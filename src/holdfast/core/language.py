"""Questions for a language model, scored by likelihood, and the model's scores."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

TextKind: TypeAlias = Literal["piqa", "lambada", "hellaswag", "winogrande"]


@dataclass(frozen=True)
class Ending:
    """A text whose likelihood after a prompt is computed."""

    prompt: str
    text: str


@dataclass(frozen=True)
class Question:
    """Endings of which one is right; a single ending must be the model's own continuation."""

    name: str  # file:line of its source
    endings: tuple[Ending, ...]
    answer: int


@dataclass(frozen=True)
class TextSet:
    """The questions of one file; `sha256` is of the file's bytes (and of its labels')."""

    name: str
    kind: TextKind
    questions: tuple[Question, ...]
    sha256: str
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class ScoredQuestion:
    """The scores of a model for one question, one entry per ending."""

    name: str
    sums: tuple[float, ...]  # log-likelihood of the ending, natural logarithm
    tokens: tuple[int, ...]  # how many tokens it is
    length: tuple[int, ...]  # how many bytes it is in UTF-8, without the space that joins it
    greedy: tuple[bool, ...]  # whether each of its tokens is the model's first choice
