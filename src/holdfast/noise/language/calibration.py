"""Which questions an integer precision is calibrated on: never those it is tested on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.core.errors import InputError
from holdfast.core.fingerprint import of
from holdfast.core.language import Question, TextSet

QUESTIONS = 100


@dataclass(frozen=True)
class Reserved:
    """The questions to calibrate on, which tested ones they cost calibrated precisions, and both in words."""

    questions: tuple[Question, ...]
    without: frozenset[str]
    words: str

    def key(self) -> str:
        """A hash of what the model reads when it is calibrated."""
        return of([content(q) for q in self.questions])


def content(question: Question) -> list[list[str]]:
    """What a question says, whatever file it is in."""
    return [[str(question.answer)], *([e.prompt, e.text] for e in question.endings)]


def reserve(tested: TextSet, spare: TextSet | None, count: int, given: bool = False) -> Reserved:
    """Questions of `spare` that are not tested on; else some of the tested, which are then left out.

    `spare` may be the whole of which the first are tested, or another set (`given` by the user: then it
    must do). They are spread evenly: files are often sorted.
    """
    known = {of(content(q)) for q in tested.questions}
    free = () if spare is None else tuple(q for q in spare.questions if of(content(q)) not in known)
    if spare is not None and free:
        held = spread(free, min(count, len(free)))
        words = f"{len(held)} questions of {spare.name} that are not tested on, each with its right ending"
        return Reserved(held, frozenset(), words)
    if given and spare is not None:
        raise InputError(
            f"--calibration {spare.name}: all its questions are tested on; give a set with others"
        )
    if len(tested.questions) < 2:  # nothing would be left to test on
        return Reserved((), frozenset(), "no question: there is none that is not tested on")
    held = spread(tested.questions, min(count, max(1, len(tested.questions) // 4)))
    words = (
        f"{len(held)} of the {len(tested.questions)} questions, each with its right ending; calibrated "
        "precisions are not tested on them (their Δ is to fp32 on the others)"
    )
    return Reserved(held, frozenset(q.name for q in held), words)


def spread(questions: Sequence[Question], count: int) -> tuple[Question, ...]:
    """So many questions, evenly spread over all."""
    return tuple(questions[(2 * i + 1) * len(questions) // (2 * count)] for i in range(count))
