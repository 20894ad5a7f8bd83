"""Two suites of language or of speech: what every precision or option costs, as the manifests state it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from holdfast.compare.change import Change, Stated, Subject, from_stated, in_points
from holdfast.compare.result import Body, differences
from holdfast.compare.suites import CLEAN, COSTS, paired_models, stated, unpaired_models
from holdfast.core.errors import InputError
from holdfast.noise.language.result import LanguageSuite
from holdfast.noise.speech.result import SpeechSuite


def compare_language(a: LanguageSuite, b: LanguageSuite) -> Body:
    """What every precision costs on the sets both have, by every rule of scoring."""
    rows: list[Change] = []
    notes = ["records of single questions are not kept: no paired interval, only whether intervals overlap"]
    for first, second, name in paired_models(a.models, b.models):
        sets = {(s.data, s.sha256): s for s in second.sets}
        for old in first.sets:
            new = sets.get((old.data, old.sha256))
            if new is None:
                notes.append(f"{old.data}: not in B, or other questions there")
                continue
            begin = f"{name}: {old.data}" if name else old.data
            rules = {rule.rule: rule for rule in new.rules}
            for rule in old.rules:
                if rule.rule in rules:
                    rows += _language_rows(begin, rule, rules[rule.rule], old.questions)
    if not rows:
        raise InputError("A and B have no set of questions in common")
    notes += unpaired_models(a.models, b.models)
    return Body(
        tuple(rows),
        differences({"models": _names(a.models)}, {"models": _names(b.models)}),
        notes=tuple(notes),
    )


def _language_rows(begin: str, old: Any, new: Any, questions: int) -> Iterator[Change]:
    clean = Subject(CLEAN, f"{begin}, {old.rule}: accuracy", "is better")
    yield from_stated(clean, *(in_points(r.clean, images=questions) for r in (old, new)))
    rows: list[Mapping[str, Any]] = [{row.precision: row for row in rule.rows} for rule in (old, new)]
    for precision in dict.fromkeys([*rows[0], *rows[1]]):
        about = Subject(COSTS, f"{begin}, {old.rule}: {precision}", "is worse", costs=True)
        yield from_stated(about, stated(rows[0].get(precision)), stated(rows[1].get(precision)))


def compare_speech(a: SpeechSuite, b: SpeechSuite) -> Body:
    """The error of what is heard under every option, against each run's own clean system."""
    if a.data != b.data:
        raise InputError(f"A is on {a.data}, B on {b.data}: errors on different clips say nothing")
    rows: list[Change] = []
    for first, second, name in paired_models(a.models, b.models):
        begin = f"{name}: " if name else ""
        own = Subject(CLEAN, f"{begin}error against the recording", "is worse", "of log mel")
        rows.append(from_stated(own, _number(first.own, first.clips), _number(second.own, second.clips)))
        old, new = ({row.label: row for row in model.rows} for model in (first, second))
        for label in dict.fromkeys([*old, *new]):
            about = Subject(COSTS, f"{begin}{label}", "is worse", "of log mel", costs=True)
            rows.append(from_stated(about, *(_heard(side.get(label)) for side in (old, new))))
    notes = ["records of single clips are not kept: no paired interval, only whether intervals overlap"]
    notes += unpaired_models(a.models, b.models)
    return Body(
        tuple(rows),
        differences({"models": _names(a.models)}, {"models": _names(b.models)}),
        notes=tuple(notes),
    )


def _heard(row: Any) -> Stated | None:
    if row is None:
        return None
    if row.heard is None:
        nothing = row.outcome in ("identical", "no effect")
        return Stated(0.0, 0.0, 0.0, row.clips, row.outcome) if nothing else Stated(None, words=row.outcome)
    return _number(row.heard, row.clips)


def _number(number: Any, clips: int) -> Stated:
    return Stated(number.mean, number.low, number.high, clips)


def _names(models: Sequence[Any]) -> str:
    return ", ".join(f"{model.model} {model.sha256[:12]}" for model in models)
