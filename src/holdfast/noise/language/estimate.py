"""What a language suite would cost: pieces, time and disk, from a timed sample of its own questions."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.core.language import Question
from holdfast.engine.cells import count_missing
from holdfast.engine.store import to_json
from holdfast.noise.language.calibration import spread
from holdfast.noise.language.plan import Prepared, Trial
from holdfast.noise.language.work import ScoringWork, packed

SAMPLE = 6  # questions: enough to time, few enough to wait for


@dataclass(frozen=True)
class Estimate:
    """What one model on one set would take: what is still to be run, in one process."""

    model: str
    data: str
    questions: int
    precisions: int  # that would be run, the file as it is among them
    pieces: int
    finished: int  # of those
    seconds: float
    bytes: int
    sample: int
    left_out: tuple[str, ...]  # precisions that would not be run, and why


def estimate(prepared: Prepared) -> list[Estimate]:
    """An estimate for each model and set; some questions of each trial are run now, in one thread."""
    plan = prepared.plan
    return [
        _of(prepared, [t for t in prepared.trials if (t.subject, t.text) == (subject, text)])
        for subject in plan.subjects
        for text in plan.sets
    ]


def graphs_of(prepared: Prepared) -> tuple[int, int]:
    """How many rewritten graphs there are on disk for these trials, and their bytes."""
    graphs = {piece.graph for trial in prepared.trials for piece in trial.pieces if piece.graph is not None}
    return len(graphs), sum(graph.stat().st_size for graph in graphs)


def _of(prepared: Prepared, trials: Sequence[Trial]) -> Estimate:
    store, work = prepared.plan.store, ScoringWork(1)
    able = [t for t in trials if t.pieces]
    missing = {p for t in able for p in t.pieces if count_missing(work, [p], store)}
    finished = sum(p not in missing for t in able for p in t.pieces)
    seconds, written, sample = 0.0, 0, 0
    for trial in able:
        left = [p for p in trial.pieces if p in missing]
        if not left:
            continue
        few = spread(trial.questions, min(SAMPLE, len(trial.questions)))
        took, kept = _timed(trial, few)
        # By length: a long text takes longer than a short one.
        times = sum(_length(p.questions) for p in left) / _length(few)
        seconds, written, sample = seconds + took * times, written + round(kept * times), len(few)
    text = trials[0].text
    skipped = tuple(f"{t.precision}: {t.outcome}, {t.note}" for t in trials if not t.pieces)
    pieces = sum(len(t.pieces) for t in able)
    return Estimate(
        trials[0].subject.name, text.name, len(text.questions), len(able), pieces, finished,
        seconds, written, sample, skipped,
    )  # fmt: skip


def _timed(trial: Trial, few: Sequence[Question]) -> tuple[float, int]:
    """Seconds and bytes of a few questions, the model open and warm."""
    from holdfast.noise.language.model import open_language

    piece = trial.pieces[0]
    model = open_language(piece.path, piece.tokenizer, 1, piece.graph)
    model.score(few[0])
    began = time.perf_counter()
    found = list(model.score_all(few))
    return time.perf_counter() - began, len(to_json(packed(found)))


def _length(questions: Sequence[Question]) -> int:
    return sum(len(e.prompt) + len(e.text) for q in questions for e in q.endings)
