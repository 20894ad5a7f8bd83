"""A language model that scores endings by likelihood; results do not depend on what is scored beside them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from holdfast.core.errors import DataError
from holdfast.core.language import Question, Scored
from holdfast.noise.language.graph.feeds import Feeds, feeds_of
from holdfast.noise.language.model.runner import Runner, likelihood
from holdfast.noise.language.model.tokens import Line, Tokens

WINDOW = 256  # questions that are sorted by length together
MOST_ROWS = 32
MOST_TOKENS = 4096
MOST_LOGITS = 32 << 20  # 128 MB in float32
LEAST_SHARED = 8  # tokens in common below which reading them once does not pay

_Found = tuple[float, bool]


@dataclass(frozen=True, eq=False)
class LanguageModel:
    """A causal language model with its tokenizer, opened in ONNX Runtime; for this process only."""

    path: Path
    tokens: Tokens
    runner: Runner
    words: int  # of the logits
    positions: int | None  # the most tokens it reads; None: no bound is known
    rows: int  # the most rows it is run with at once
    shares: bool  # whether a prompt is read once for all endings
    notes: tuple[str, ...]  # what was found out or decided when it was opened

    def score(self, question: Question) -> Scored:
        """What the model says of one question."""
        return next(self.score_all([question]))

    def score_all(self, questions: Iterable[Question]) -> Iterator[Scored]:
        """What the model says of each question, in their order.

        A question that it cannot read (an ending longer than its positions) has likelihoods of NaN.
        """
        remaining = iter(questions)
        while window := list(itertools.islice(remaining, WINDOW)):
            lines = [self._lines_if_any(question) for question in window]
            found = self._found(lines)
            for question, own, results in zip(window, lines, found, strict=True):
                yield _scored(question, own, results) if own else _unscored(question)

    def lines(self, question: Question) -> tuple[Line, ...]:
        """The endings as the model reads them; prompts too long for it are cut from the left."""
        return tuple(self._cut(self.tokens.line(e, question.name), question.name) for e in question.endings)

    def notes_on(self, questions: Iterable[Question]) -> tuple[str, ...]:
        """What to say of these questions: how many are cut, how many cannot be scored, and why the first."""
        cut, problems = 0, list[str]()
        for question in questions:
            try:
                lines = [self.tokens.line(e, question.name) for e in question.endings]
                cut += any(self._cut(line, question.name) is not line for line in lines)
            except DataError as problem:
                problems.append(str(problem))
        said = []
        if cut:
            counted = "1 question" if cut == 1 else f"{cut} questions"
            said.append(f"{counted} longer than {self.positions} tokens cut from the left")
        if problems:
            counted = "1 question" if len(problems) == 1 else f"{len(problems)} questions"
            said.append(f"{counted} not scored, counted as wrong; first {problems[0]}")
        return tuple(said)

    def feeds(self, questions: Iterable[Question]) -> Iterator[Feeds]:
        """The model's inputs for each question's right ending, one row a time, for calibration.

        Questions that it cannot read are left out.
        """
        for question in questions:
            if lines := self._lines_if_any(question):
                yield feeds_of(self.runner.causal, [lines[question.answer].ids[:-1]])

    def _lines_if_any(self, question: Question) -> tuple[Line, ...]:
        try:
            return self.lines(question)
        except DataError:
            return ()

    def _cut(self, line: Line, name: str) -> Line:
        if self.positions is None or len(line.ids) - 1 <= self.positions:
            return line
        first = self.tokens.first
        surplus = len(line.ids) - 1 - self.positions
        if line.start - surplus < max(1, len(first)):
            raise DataError(
                f"{name}: an ending of {line.tokens} tokens does not fit the {self.positions} positions of "
                f"{self.path.name}"
            )
        return Line((*first, *line.ids[len(first) + surplus :]), line.start - surplus)

    def _found(self, lines: Sequence[tuple[Line, ...]]) -> list[list[_Found]]:
        """Likelihood and greediness of every ending of a window of questions."""
        found: list[list[_Found | None]] = [[None] * len(own) for own in lines]
        single: list[tuple[int, int, Line]] = []
        for place, own in enumerate(lines):
            common = _common(own) if self.shares and len(own) > 1 else 0
            if common >= LEAST_SHARED:
                found[place] = list(self._behind(own, common))
            else:
                single += [(place, ending, line) for ending, line in enumerate(own)]
        single.sort(key=lambda item: len(item[2].ids))
        for batch in _batches([item[2] for item in single], self.rows, self.words):
            logits = self.runner.logits([item[2].ids[:-1] for item in single[batch]])
            for row, (place, ending, line) in zip(logits, single[batch], strict=True):
                found[place][ending] = _of_row(row, line, 0)
        return [[f for f in own if f is not None] for own in found]

    def _behind(self, own: Sequence[Line], common: int) -> Iterator[_Found]:
        """The endings of one question, whose common beginning is read once."""
        after = self.runner.read(own[0].ids[:common])
        for batch in _batches(own, self.rows, self.words):
            logits = self.runner.logits([line.ids[common:-1] for line in own[batch]], after)
            for row, line in zip(logits, own[batch], strict=True):
                yield _of_row(row, line, common)


def _common(own: Sequence[Line]) -> int:
    """How many first tokens all lines share, before the one that foretells the first ending's first."""
    most = min(line.start for line in own) - 1
    columns = zip(*(line.ids[:most] for line in own), strict=True)
    return sum(1 for _ in itertools.takewhile(lambda column: len(set(column)) == 1, columns))


def _batches(lines: Sequence[Line], most_rows: int, words: int) -> Iterator[slice]:
    """Neighbours that are run together: few enough for the memory, by the longest of them."""
    start, longest = 0, 0
    budget = min(MOST_TOKENS, max(1, MOST_LOGITS // words))
    for place, line in enumerate(lines):
        longest = max(longest, len(line.ids))
        count = place - start + 1
        if count > 1 and (count > most_rows or count * longest > budget):
            yield slice(start, place)
            start, longest = place, len(line.ids)
    if start < len(lines):
        yield slice(start, len(lines))


def _of_row(logits: NDArray[Any], line: Line, skipped: int) -> _Found:
    """The likelihood of a line's ending from its logits (length, words), which begin at token `skipped`."""
    rows = logits[line.start - 1 - skipped : len(line.ids) - 1 - skipped]
    return likelihood(rows, line.ids[line.start :])


def _scored(question: Question, lines: Sequence[Line], found: Sequence[_Found]) -> Scored:
    return Scored(
        question.name,
        tuple(total for total, _ in found),
        tuple(line.tokens for line in lines),
        tuple(max(1, len(ending.text.lstrip().encode())) for ending in question.endings),
        tuple(greedy for _, greedy in found),
    )


def _unscored(question: Question) -> Scored:
    """The score of a question that the model cannot read: no number."""
    count = len(question.endings)
    return Scored(question.name, (math.nan,) * count, (1,) * count, (1,) * count, (False,) * count)
