"""What a language suite runs: models × sets × precisions as trials, their graphs made, cut into pieces."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from holdfast.core.errors import InputError, ModelError, one_line
from holdfast.core.language import Question, TextSet
from holdfast.engine.executor import Progress
from holdfast.engine.store import Store
from holdfast.evaluate.result import CELLS
from holdfast.noise.language.build import built
from holdfast.noise.language.calibration import QUESTIONS, Reserved, reserve
from holdfast.noise.language.precisions import CLEAN, DEFAULT, is_calibrated
from holdfast.noise.language.result import Outcome
from holdfast.noise.language.subject import Subject
from holdfast.noise.language.work import Piece

REWRITTEN = "rewritten"
PIECE = 25  # questions of a cell
Watch: TypeAlias = Callable[[str, int, str], AbstractContextManager[Progress]]  # what, how many, of what


@dataclass(frozen=True)
class LanguagePlan:
    """Models, sets, precisions, and what integer ones are calibrated on.

    `spare` are the questions to calibrate on for each set (None: some of the tested ones, which are then
    left out); `given` says that the user named them.
    """

    subjects: tuple[Subject, ...]
    sets: tuple[TextSet, ...]
    runs: Path
    precisions: tuple[str, ...] = DEFAULT
    spare: tuple[TextSet | None, ...] = ()
    given: bool = False
    calibration_questions: int = QUESTIONS
    jobs: int = 1  # processes; 0: one a core
    strict: bool = False

    @property
    def store(self) -> Store:
        """Where finished pieces are kept."""
        return Store(self.runs / CELLS)


@dataclass(frozen=True)
class Trial:
    """One model at one precision on one set; without pieces there is nothing to run, and `note` says why."""

    subject: Subject
    text: TextSet
    precision: str
    outcome: Outcome = "measured"
    note: str = ""
    pieces: tuple[Piece, ...] = field(default=(), repr=False)

    @property
    def questions(self) -> tuple[Question, ...]:
        """What it is tested on."""
        return tuple(q for piece in self.pieces for q in piece.questions)


@dataclass(frozen=True)
class Prepared:
    """A plan with every graph made; trials by model, then set, then precision, the file itself first."""

    plan: LanguagePlan
    trials: tuple[Trial, ...]
    reserved: dict[str, Reserved]  # by the set's name
    notes: dict[tuple[str, str], tuple[str, ...]]  # (model, set) -> what to say; set "": of the model


def unwatched(what: str, total: int, unit: str) -> AbstractContextManager[Progress]:
    """Progress that nobody wants to see."""
    return nullcontext(lambda done, found: None)


def prepare(plan: LanguagePlan, watch: Watch = unwatched) -> Prepared:
    """The trials of a plan; every model is opened once, graphs are rewritten and calibrated here."""
    _distinct([s.name for s in plan.subjects], "models")
    _distinct([s.name for s in plan.sets], "sets")
    spare = plan.spare or (None,) * len(plan.sets)
    reserved = {
        text.name: reserve(text, other, plan.calibration_questions, plan.given)
        for text, other in zip(plan.sets, spare, strict=True)
    }
    notes: dict[tuple[str, str], tuple[str, ...]] = {}
    for subject in plan.subjects:  # what cannot be run at all is told before anything is made
        notes |= _opened(subject, plan.sets)
    todo = [
        Trial(subject, text, precision)
        for subject in plan.subjects
        for text in plan.sets
        for precision in (CLEAN, *plan.precisions)
    ]
    done = []
    with watch("precisions", len(todo), "graphs") as step:
        for trial in todo:
            done.append(_made(plan, trial, reserved[trial.text.name]))
            step(1, 0)
    return Prepared(plan, tuple(done), reserved, notes)


def _distinct(names: Sequence[str], what: str) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"expected {what} of different names, got {twice[0]!r} twice")


def _opened(subject: Subject, sets: tuple[TextSet, ...]) -> dict[tuple[str, str], tuple[str, ...]]:
    from holdfast.noise.language.model import open_language

    model = open_language(subject.path, subject.tokenizer)
    said = {(subject.name, text.name): model.notes_on(text.questions) for text in sets}
    return {(subject.name, ""): model.notes, **said}


def _made(plan: LanguagePlan, trial: Trial, reserved: Reserved) -> Trial:
    """The trial with its graph and its pieces, or with the reason why there are none."""
    questions = trial.text.questions
    if trial.precision == CLEAN:
        return dataclasses.replace(trial, pieces=_pieces(trial, None, "", questions))
    try:
        graph = built(trial.subject, trial.precision, reserved, plan.runs / CELLS / REWRITTEN)
    except ModelError as problem:
        why = one_line(problem).removeprefix(f"{trial.subject.path}: ")
        return dataclasses.replace(trial, outcome="impossible", note=why)
    if not graph.changed:
        why = graph.how or "nothing in the graph it could change"
        return dataclasses.replace(trial, outcome="no effect", note=why)
    if is_calibrated(trial.precision):
        questions = tuple(q for q in questions if q.name not in reserved.without)
    pieces = _pieces(trial, graph.path, graph.key, questions)
    return dataclasses.replace(trial, note=graph.how, pieces=pieces)


def _pieces(
    trial: Trial, graph: Path | None, made: str, questions: tuple[Question, ...]
) -> tuple[Piece, ...]:
    subject = trial.subject
    return tuple(
        Piece(
            model=(subject.sha256, made),
            path=subject.path,
            tokenizer=subject.tokenizer,
            graph=graph,
            precision=trial.precision,
            questions=questions[start : start + PIECE],
        )
        for start in range(0, len(questions), PIECE)
    )
