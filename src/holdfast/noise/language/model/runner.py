"""Token numbers through an ONNX language model: logits of a batch, with or without what was read before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import DataError, ModelError
from holdfast.graph.session import condense, open_session
from holdfast.noise.language.graph.causal import Causal
from holdfast.noise.language.graph.feeds import Feeds, Read, Rows, feeds_of


@dataclass(frozen=True, eq=False)
class Runner:
    """An ONNX language model opened in ONNX Runtime."""

    causal: Causal
    session: Any
    where: str

    def logits(self, rows: Rows, after: Read | None = None) -> NDArray[Any]:
        """The logits (rows, longest, words) of rows of tokens, all read behind `after` if it is given."""
        found = self._run([self.causal.logits], feeds_of(self.causal, rows, after), rows)[0]
        longest = max(map(len, rows))
        if found.ndim != 3 or found.shape[1] < longest or found.shape[0] < len(rows):
            raise ModelError(
                f"{self.where}: output {self.causal.logits!r}: expected the shape (batch, length, words) for "
                f"{len(rows)} rows of {longest} tokens, got {found.shape}"
            )
        return found[: len(rows), :longest]

    def read(self, ids: Sequence[int]) -> Read:
        """What the model keeps of one row of tokens, for rows that go on from there."""
        past = self.causal.past
        names = [p.present or "" for p in past]
        found = self._run(names, feeds_of(self.causal, [ids]), [ids])
        return Read(len(ids), {p.name: value[:1] for p, value in zip(past, found, strict=True)})

    def _run(self, names: list[str], feeds: Feeds, rows: Rows) -> list[NDArray[Any]]:
        try:
            return [np.asarray(v) for v in self.session.run(names, feeds)]
        except Exception as problem:
            raise DataError(
                f"{self.where}: ONNX Runtime cannot run {len(rows)} rows of {max(map(len, rows))} tokens: "
                f"{condense(problem, 300)}"
            ) from problem


def open_runner(causal: Causal, source: bytes | Path, where: str, threads: int) -> Runner:
    """A language model's session on the CPU, all graph optimisations on; threads 0 means all cores."""
    try:
        session = open_session(source, threads=threads, inter_threads=1)
    except Exception as problem:
        raise ModelError(f"{where}: ONNX Runtime cannot load it: {condense(problem, 300)}") from problem
    return Runner(causal, session, where)


def likelihood(logits: NDArray[Any], targets: Sequence[int], chunk: int = 64) -> tuple[float, bool]:
    """The log-likelihood of tokens (n,) under logits (n, words), and whether each is the first choice.

    In float64, a few rows at a time: a row of 50 000 words is 400 KB. Of equal ones the first is the choice.
    """
    total, greedy = 0.0, True
    for start in range(0, len(targets), chunk):
        rows = np.asarray(logits[start : start + chunk], dtype=np.float64)
        wanted = np.asarray(targets[start : start + chunk])
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            rows = rows - rows.max(
                axis=1, keepdims=True
            )  # an infinite logit gives NaN, which is told as such
            own = rows[np.arange(len(wanted)), wanted] - np.log(np.exp(rows).sum(axis=1))
        total += float(own.sum())
        usable = ~np.isnan(rows).any(axis=1)
        greedy = greedy and bool((usable & (rows.argmax(axis=1) == wanted)).all())
    return total, greedy
