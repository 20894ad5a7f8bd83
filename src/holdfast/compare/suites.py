"""Compare two noise suites of vision, language or speech: points lost by each option in A and in B."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from holdfast.compare import result
from holdfast.compare.result import Change, ComparedNumber, ComparisonContent, StatedNumber
from holdfast.core.errors import InputError
from holdfast.engine.pipelines import read_records
from holdfast.evaluate.classes import Alignment, realign
from holdfast.evaluate.difference import ScoredRun, bootstrap_values, common_images
from holdfast.evaluate.result import CELLS
from holdfast.evaluate.score import Settings
from holdfast.noise.language.result import LanguageSuite
from holdfast.noise.speech.result import SpeechSuite
from holdfast.noise.vision.result import ModelNoise, NoiseRow, NoiseSuite

CLEAN, LOSSES = "training pipeline", "noise options"
COMBINED = "combined"
MSE = "MSE of log mel"


def compare_suites(a: NoiseSuite, b: NoiseSuite, stores: tuple[Path, Path]) -> ComparisonContent:
    """Points lost by every option; paired where the stores next to the runs have the records of both."""
    if a.data != b.data:
        raise InputError(f"A is on {a.data}, B on {b.data}: expected two suites on the same data")
    rows: list[Change] = []
    differs: list[tuple[str, str, str]] = []
    notes: list[str] = []
    for *models, name in paired_models(a.models, b.models):
        for what in ("task", "metric", "rule"):
            first, second = (getattr(model, what) for model in models)
            if first != second:
                values = f"{first} in A, {second} in B"
                raise InputError(f"the {what} differs: {values}; run both with the same one")
        sides = tuple(_Records.of(model, store) for model, store in zip(models, stores, strict=True))
        rows += _rows(sides, f"{name}: " if name else "")
        notes += [
            f"no paired interval, because {which} {side.missing}; the separate intervals are compared"
            for which, side in zip("AB", sides, strict=True)
            if side.missing
        ]
        differs += result.differences(*map(_description, models))
    notes += unpaired_models(a.models, b.models)
    rule = next((m.rule.split(":")[0] for m in b.models if m.task == "detect"), "")
    return ComparisonContent(tuple(rows), tuple(differs), notes=tuple(dict.fromkeys(notes)), rule=rule)


def paired_models(a: Sequence[Any], b: Sequence[Any]) -> list[tuple[Any, Any, str]]:
    """The models to compare, with a name if there are several: one with one, else those of the same name."""
    if len(a) == len(b) == 1:
        return [(a[0], b[0], "")]
    named = {model.model: model for model in b}
    pairs = [(model, named[model.model], model.model) for model in a if model.model in named]
    if not pairs:
        raise InputError(
            "A and B have no model of the same name: expected runs with common models, or of one model each"
        )
    return pairs


def unpaired_models(a: Sequence[Any], b: Sequence[Any]) -> list[str]:
    """Notes on models that only one of the runs has."""
    if len(a) == len(b) == 1:
        return []
    names = [{model.model for model in side} for side in (a, b)]
    only = zip("AB", (names[0] - names[1], names[1] - names[0]), strict=True)
    return [f"only in {which}: {', '.join(sorted(models))}" for which, models in only if models]


def _description(model: ModelNoise) -> dict[str, Any]:
    facts: dict[str, Any] = {"model": model.model, "model file": model.sha256[:12], "images": model.images}
    facts |= {f"pipeline {stage}": value for stage, value in model.pipeline.items()}
    return facts | {"calibration": model.calibration}


@dataclass(frozen=True)
class _Records:
    """The records of a suite, read once each; `missing` says why there are none."""

    cells: Path  # next to the run
    model: ModelNoise
    missing: str = ""
    sides: dict[str, ScoredRun] = field(default_factory=dict)  # by the name of their cells

    @staticmethod
    def of(model: ModelNoise, run: Path) -> _Records:
        records = _Records(run.resolve().parent / CELLS, model)
        if not model.setup or not model.alignment or not model.settings:
            missing = "was written by a version that did not store its records"
            return replace(records, missing=missing)
        try:
            records.side()
        except (InputError, KeyError, ValueError) as problem:
            return replace(records, missing=f"no longer has its records ({problem})")
        return records

    def side(self, row: NoiseRow | None = None) -> ScoredRun:
        """The records of a row, or the clean ones, ready to be compared; InputError if there are none."""
        if self.missing:
            raise InputError(self.missing)
        model, cells = self.model, self.model.cells(self.cells, row)
        if cells.setup not in self.sides:
            alignment = Alignment.from_plain(model.alignment)
            records = realign(read_records(cells).records, alignment, model.task)  # type: ignore[arg-type]
            settings = Settings.from_plain(model.settings)
            self.sides[cells.setup] = ScoredRun(records, model.task, alignment.names, settings)  # type: ignore[arg-type]
        return self.sides[cells.setup]


def _rows(sides: Sequence[_Records], begin: str) -> Iterator[Change]:
    """The clean metric, the points lost by every option, and by the combined options."""
    models = [side.model for side in sides]
    clean = ComparedNumber(CLEAN, f"{begin}{models[0].metric}", "is better")
    if any(side.missing for side in sides):
        yield result.from_stated(clean, *(result.in_points(m.clean, images=m.images) for m in models))
    else:  # not the same images: an error, whatever the runs state
        both = [side.side() for side in sides]
        names = common_images(*both)
        before, after = (100 * bootstrap_values(side, names) for side in both)
        yield result.from_draws(clean, before, after, len(names))
    rows = [{row.label: row for row in model.rows} for model in models]
    options = {label: (rows[0].get(label), rows[1].get(label)) for label in dict.fromkeys(chain(*rows))}
    combined = (models[0].combined, models[1].combined)
    if any(combined):
        same = len({row and row.option for row in combined}) == 1
        options[COMBINED if same else f"{COMBINED} (worst options of each run)"] = combined
    for label, both_rows in options.items():
        about = ComparedNumber(LOSSES, begin + label, "is worse", costs=True)
        try:
            yield _paired_loss(about, sides, both_rows)
        except InputError:  # records are gone, or no image is left
            yield result.from_stated(about, *map(stated_loss, both_rows))


def _paired_loss(about: ComparedNumber, sides: Sequence[_Records], rows: Sequence[NoiseRow | None]) -> Change:
    if not all(row and row.setup for row in rows):
        raise InputError("no cells of this option")
    clean = [side.side() for side in sides]
    noisy = [side.side(row) for side, row in zip(sides, rows, strict=True)]
    common = set(common_images(clean[0], noisy[0])) & set(common_images(clean[1], noisy[1]))
    names = [name for name in common_images(*clean) if name in common]
    if not names:
        raise InputError("no image in common")
    before, after = (
        100 * (bootstrap_values(c, names) - bootstrap_values(n, names))
        for c, n in zip(clean, noisy, strict=True)
    )
    return result.from_draws(about, before, after, len(names), bound=200.0)


def stated_loss(row: Any) -> StatedNumber | None:
    """The points lost that a row of a suite states."""
    if row is None:
        return None
    images = getattr(row, "images", 0) or getattr(row, "questions", 0)
    return result.zero_if_unchanged(StatedNumber(row.points_lost, row.low, row.high, images, row.outcome))


def compare_language(a: LanguageSuite, b: LanguageSuite) -> ComparisonContent:
    """Points lost by every precision on the common question sets, by every scoring rule."""
    rows: list[Change] = []
    notes = ["no paired interval: single questions have no records; the separate intervals are compared"]
    for first, second, name in paired_models(a.models, b.models):
        sets = {(s.data, s.sha256): s for s in second.sets}
        for old in first.sets:
            new = sets.get((old.data, old.sha256))
            if new is None:
                notes.append(f"{old.data}: skipped; B does not have this set, or its questions differ")
                continue
            begin = f"{name}: {old.data}" if name else old.data
            rules = {rule.rule: rule for rule in new.rules}
            for rule in old.rules:
                if rule.rule in rules:
                    rows += _language_rows(begin, rule, rules[rule.rule], old.questions)
    if not rows:
        raise InputError("A and B have no question set in common")
    notes += unpaired_models(a.models, b.models)
    return ComparisonContent(tuple(rows), _differing_models(a.models, b.models), notes=tuple(notes))


def _language_rows(begin: str, old: Any, new: Any, questions: int) -> Iterator[Change]:
    clean = ComparedNumber(CLEAN, f"{begin}, {old.rule}: accuracy", "is better")
    yield result.from_stated(clean, *(result.in_points(r.clean, images=questions) for r in (old, new)))
    rows: list[Mapping[str, Any]] = [{row.precision: row for row in rule.rows} for rule in (old, new)]
    for precision in dict.fromkeys([*rows[0], *rows[1]]):
        about = ComparedNumber(LOSSES, f"{begin}, {old.rule}: {precision}", "is worse", costs=True)
        yield result.from_stated(about, *(stated_loss(side.get(precision)) for side in rows))


def compare_speech(a: SpeechSuite, b: SpeechSuite) -> ComparisonContent:
    """The MSE of the log mel of the wave under every option, against each run's clean system."""
    if a.data != b.data:
        raise InputError(f"A is on {a.data}, B on {b.data}: expected two suites on the same clips")
    rows: list[Change] = []
    for first, second, name in paired_models(a.models, b.models):
        begin = f"{name}: " if name else ""
        own = ComparedNumber(CLEAN, f"{begin}MSE against the recording", "is worse", MSE)
        rows.append(result.from_stated(own, *(_number(m.own, m.clips) for m in (first, second))))
        old, new = ({row.label: row for row in model.rows} for model in (first, second))
        for label in dict.fromkeys([*old, *new]):
            about = ComparedNumber(LOSSES, f"{begin}{label}", "is worse", MSE, costs=True)
            rows.append(result.from_stated(about, *(_speech_error(side.get(label)) for side in (old, new))))
    notes = ["no paired interval: single clips have no records; the separate intervals are compared"]
    notes += unpaired_models(a.models, b.models)
    return ComparisonContent(tuple(rows), _differing_models(a.models, b.models), notes=tuple(notes))


def _speech_error(row: Any) -> StatedNumber | None:
    if row is None:
        return None
    if row.heard is not None:
        return _number(row.heard, row.clips)
    return result.zero_if_unchanged(StatedNumber(None, images=row.clips, words=row.outcome))


def _number(number: Any, clips: int) -> StatedNumber:
    return StatedNumber(number.mean, number.low, number.high, clips)


def _differing_models(*runs: Sequence[Any]) -> tuple[tuple[str, str, str], ...]:
    names = [", ".join(f"{model.model} {model.sha256[:12]}" for model in models) for models in runs]
    return result.differences({"models": names[0]}, {"models": names[1]})
