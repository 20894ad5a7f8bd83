"""The work of one process: pieces of question sets through models, one open at a time, into the store."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from holdfast.core.errors import DataError, HoldfastError
from holdfast.core.language import Question, Scored
from holdfast.engine.store import Store, to_json


@dataclass(frozen=True)
class Piece:
    """Some questions for one model at one precision; `graph` is its rewritten graph, None the file itself."""

    key: str
    path: Path
    tokenizer: Path
    graph: Path | None
    precision: str
    questions: tuple[Question, ...]


@dataclass
class Desk:
    """What a process keeps between pieces: the model that is open, and those that cannot be run."""

    source: tuple[Path, Path | None] | None = None
    model: Any = None
    problems: dict[tuple[Path, Path | None], str] = field(default_factory=dict)


@dataclass(frozen=True)
class Scoring:
    """The work on any pieces; a problem of a rewritten graph is an answer, one of the file is raised."""

    store: Store
    threads: int
    strict: bool = False

    @property
    def modules(self) -> tuple[str, ...]:
        """Modules other processes must import first."""
        return ()

    @property
    def files(self) -> tuple[Path, ...]:
        """Files of parts other processes must load first."""
        return ()

    def on(self, threads: int) -> Scoring:
        """The same work: its threads are given by the command alone, so that a resumed run adds up alike."""
        return self

    def work(self, desk: Desk | None, shard: Sequence[Piece]) -> tuple[str, Desk, tuple[int, int]]:
        """What went wrong ("" if nothing), what is open now, and how many questions are done."""
        desk = desk or Desk()
        (piece,) = shard
        if self.store.get(piece.key) is not None:
            return "", desk, (len(piece.questions), len(piece.questions))
        source = (piece.path, piece.graph)
        if source not in desk.problems:
            try:
                self.store.put(piece.key, self._scored(desk, piece))
            except HoldfastError as problem:
                if piece.graph is None or self.strict:
                    raise
                desk.problems[source] = str(problem)
        return desk.problems.get(source, ""), desk, (len(piece.questions), 0)

    def _scored(self, desk: Desk, piece: Piece) -> bytes:
        from holdfast.noise.language.model import open_language

        if desk.source != (piece.path, piece.graph):
            desk.source, desk.model = None, None  # the one before makes room first
            desk.model = open_language(piece.path, piece.tokenizer, self.threads, piece.graph)
            desk.source = (piece.path, piece.graph)
        if self.strict:
            for question in piece.questions:
                desk.model.lines(question)  # raises why a question cannot be read
        found = list(desk.model.score_all(piece.questions))
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


def packed(scored: Sequence[Scored]) -> bytes:
    """Scores as a cell keeps them, to the last digit; names are those of whoever reads them."""
    return to_json([[_plain(s.sums), list(s.tokens), list(s.length), list(s.greedy)] for s in scored])


def _plain(sums: Sequence[float]) -> list[float | str]:
    return [total if math.isfinite(total) else repr(total) for total in sums]  # JSON has no NaN


def unpacked(data: bytes, questions: Sequence[Question]) -> list[Scored]:
    """The scores of a cell, under the names of these questions."""
    return [
        Scored(question.name, tuple(map(float, sums)), tuple(tokens), tuple(length), tuple(greedy))
        for question, (sums, tokens, length, greedy) in zip(questions, orjson.loads(data), strict=True)
    ]
