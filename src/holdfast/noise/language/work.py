"""Questions to language models: a cell per piece of a question set and precision."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.core.errors import DataError, HoldfastError
from holdfast.core.language import Question, Scored
from holdfast.engine.cells import Computed, Missing, Setup, Work
from holdfast.noise.language.calibration import content


@dataclass(frozen=True)
class Piece:
    """Some questions for one model at one precision; `graph` is its rewritten graph, None the file itself."""

    model: tuple[str, str]  # the hash of the model, and of its rewritten graph
    path: Path
    tokenizer: Path
    graph: Path | None
    precision: str
    questions: tuple[Question, ...]


@dataclass
class OpenModel:
    """The model that is open in a process, one at a time, and why some cannot be run."""

    source: tuple[Path, Path | None] | None = None
    model: Any = None
    problems: dict[tuple[Path, Path | None], str] = field(default_factory=dict)


@dataclass(frozen=True)
class ScoringWork(Work[Piece, OpenModel]):
    """The scores of pieces. A problem of a rewritten graph is a result, one of the file itself is raised.

    The number of threads is part of the work: a resumed run must add up in the same order.
    """

    threads: int
    strict: bool = False

    def setups(self) -> list[Setup]:
        """Everything is the content of a piece."""
        return [Setup("language", "scores")]

    def contents(self, item: Piece) -> list[Any]:
        """The model and the questions."""
        return [[item.model, [content(question) for question in item.questions]]]

    def open(self, threads: int) -> OpenModel:
        """No model is open at first."""
        return OpenModel()

    def tally(self, item: Piece, cells: int, found: int) -> tuple[int, int]:
        """Progress counts questions."""
        return len(item.questions) * cells, len(item.questions) * found

    def compute(self, state: OpenModel, batch: Sequence[Missing]) -> Iterator[Computed]:
        """The scores of each piece, or {"problem": ...} of a rewritten graph that cannot be run."""
        for position, (piece, _) in enumerate(batch):
            source = (piece.path, piece.graph)
            if source not in state.problems:
                try:
                    yield Computed(position, 0, self._scores(state, piece))
                    continue
                except HoldfastError as problem:
                    if piece.graph is None or self.strict:
                        raise
                    state.problems[source] = str(problem)
            yield Computed(position, 0, {"problem": state.problems[source]}, stored=False)

    def _scores(self, state: OpenModel, piece: Piece) -> list[Any]:
        from holdfast.noise.language.model import open_language

        if state.source != (piece.path, piece.graph):
            state.source, state.model = None, None  # the one before makes room first
            state.model = open_language(piece.path, piece.tokenizer, self.threads, piece.graph)
            state.source = (piece.path, piece.graph)
        if self.strict:
            for question in piece.questions:
                state.model.lines(question)  # raises why a question cannot be read
        found = list(state.model.score_all(piece.questions))
        if self.strict:
            _check(found, piece.precision)
        return packed(found)


def _check(found: Sequence[Scored], precision: str) -> None:
    for one in found:
        if has_failed(one):
            raise DataError(f"{one.name}: no likelihood at {precision}: the model gives no numbers (NaN)")


def has_failed(scored: Scored) -> bool:
    """Whether a model has no opinion of a question, for its numbers are none."""
    return any(math.isnan(total) for total in scored.sums)


def packed(scored: Sequence[Scored]) -> list[Any]:
    """Scores as a cell keeps them, to the last digit, without the names of the questions."""
    return [[_plain(s.sums), list(s.tokens), list(s.length), list(s.greedy)] for s in scored]


def _plain(sums: Sequence[float]) -> list[float | str]:
    return [total if math.isfinite(total) else repr(total) for total in sums]  # JSON has no NaN


def unpacked(plain: Sequence[Any], questions: Sequence[Question]) -> list[Scored]:
    """The scores of a cell, under the names of these questions."""
    return [
        Scored(question.name, tuple(map(float, sums)), tuple(tokens), tuple(length), tuple(greedy))
        for question, (sums, tokens, length, greedy) in zip(questions, plain, strict=True)
    ]
