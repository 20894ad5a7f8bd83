"""The language suite: models × question sets × precisions, each compared with the unchanged model."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

from holdfast.core.errors import DataError, ModelError, one_line
from holdfast.core.fingerprint import generator
from holdfast.core.language import Question, ScoredQuestion, TextSet
from holdfast.core.sources import versions
from holdfast.engine.cells import count_missing, run
from holdfast.engine.execution import cell_store
from holdfast.engine.executor import cores
from holdfast.engine.store import Store, to_json
from holdfast.evaluate.result import CELLS
from holdfast.metrics.points import points
from holdfast.metrics.text import DEFAULT_RULES, TextRule, compare, hits, rules_for
from holdfast.noise import suite
from holdfast.noise.language import cells
from holdfast.noise.language.open import LanguageSubject, open_language
from holdfast.noise.language.result import (
    CLEAN,
    LanguageNoise,
    LanguageSuite,
    PrecisionRow,
    RuleNoise,
    SetNoise,
)

Results: TypeAlias = Mapping[cells.QuestionBatch, Any]  # scores as stored, or {"problem": ...}
BATCH = 25  # questions of a cell
SAMPLE = 6  # questions an estimate runs: enough to time, few enough to wait for
IDENTICAL = "all likelihoods are identical to fp32"


@dataclass(frozen=True)
class LanguagePlan:
    """Models, question sets, precisions, and the calibration questions of integer precisions."""

    subjects: tuple[LanguageSubject, ...]
    sets: tuple[TextSet, ...]
    runs: Path
    precisions: tuple[str, ...] = cells.DEFAULT
    calibration: tuple[TextSet | None, ...] = ()  # of each set; None: some of its own, which are then skipped
    given: bool = False  # whether the user named them
    calibration_questions: int = suite.CALIBRATION_ITEMS
    jobs: int = 1  # worker processes; 0: one per core
    strict: bool = False

    @property
    def store(self) -> Store:
        """The store of finished cells."""
        return cell_store(self.runs / CELLS)


@dataclass(frozen=True)
class PrecisionTrial:
    """One model at one precision on one set; without batches there is nothing to run, and `note` says why."""

    subject: LanguageSubject
    text: TextSet
    precision: str
    outcome: suite.Outcome = "measured"
    note: str = ""
    batches: tuple[cells.QuestionBatch, ...] = field(default=(), repr=False)

    @property
    def questions(self) -> tuple[Question, ...]:
        """What it is tested on."""
        return tuple(q for batch in self.batches for q in batch.questions)


@dataclass(frozen=True)
class PreparedLanguage:
    """A plan with every graph converted; trials by model, set and precision, the unchanged model first."""

    plan: LanguagePlan
    trials: tuple[PrecisionTrial, ...]
    reserved: dict[str, suite.Reserved[Question]]  # by the set's name
    notes: dict[tuple[str, str], tuple[str, ...]]  # (model, set) -> notes; set "": notes on the model


def prepare(plan: LanguagePlan, watch: suite.Watch = suite.no_progress) -> PreparedLanguage:
    """The trials of a plan; every model is opened once, graphs are rewritten and calibrated here."""
    suite.check_distinct([s.name for s in plan.subjects], "models")
    suite.check_distinct([s.name for s in plan.sets], "sets")
    pairs = zip(plan.sets, plan.calibration or (None,) * len(plan.sets), strict=True)
    reserved = {
        text.name: cells.reserve(text, other, plan.calibration_questions, plan.given) for text, other in pairs
    }
    notes: dict[tuple[str, str], tuple[str, ...]] = {}
    for subject in plan.subjects:  # what cannot be run at all is reported before anything is built
        model = open_language(subject.path, subject.tokenizer)
        notes[subject.name, ""] = model.notes
        notes |= {(subject.name, text.name): model.notes_on(text.questions) for text in plan.sets}
    chosen = list(product(plan.subjects, plan.sets, (CLEAN, *plan.precisions)))
    trials = []
    with watch("precisions", len(chosen), "graphs") as step:
        for subject, text, precision in chosen:
            trial = PrecisionTrial(subject, text, precision)
            trials.append(_build(plan, trial, reserved[text.name]))
            step(1, 0)
    return PreparedLanguage(plan, tuple(trials), reserved, notes)


def _build(plan: LanguagePlan, trial: PrecisionTrial, reserved: suite.Reserved[Question]) -> PrecisionTrial:
    """The trial with its graph and its batches, or with the reason why there are none."""
    questions, subject, precision = trial.text.questions, trial.subject, trial.precision
    graph: Path | None = None
    key = note = ""
    if precision != CLEAN:
        try:
            converted = cells.convert_graph(subject, precision, reserved, plan.runs / CELLS / suite.REWRITTEN)
        except ModelError as problem:
            why = one_line(problem).removeprefix(f"{subject.path}: ")
            return replace(trial, outcome="impossible", note=why)
        if not converted.changed:
            why = converted.how or "the graph has nothing that this precision changes"
            return replace(trial, outcome="no effect", note=why)
        graph, key, note = converted.paths[".onnx"], converted.key, converted.how
        if suite.is_calibrated(precision):
            questions = tuple(q for q in questions if q.name not in reserved.without)
    parts = [questions[start : start + BATCH] for start in range(0, len(questions), BATCH)]
    batches = tuple(cells.QuestionBatch(subject, precision, graph, key, part) for part in parts)
    return replace(trial, note=note, batches=batches)


def measure(prepared: PreparedLanguage, watch: suite.Watch = suite.no_progress) -> LanguageSuite:
    """All numbers; a killed run continues where it stopped."""
    plan, results = prepared.plan, run_batches(prepared, watch)
    models = []
    for subject in plan.subjects:
        sets = tuple(_set(prepared, subject.name, text.name, results) for text in plan.sets)
        models.append(LanguageNoise(subject.name, subject.sha256, sets, prepared.notes[subject.name, ""]))
    return LanguageSuite(tuple(models), plan.precisions, versions=versions("language"))


def run_batches(
    prepared: PreparedLanguage, watch: suite.Watch = suite.no_progress
) -> dict[cells.QuestionBatch, Any]:
    """Batch -> its scores as stored, or {"problem": ...} where its model cannot be run."""
    plan = prepared.plan
    batches = list(dict.fromkeys(batch for trial in prepared.trials for batch in trial.batches))
    # One number of threads per command, whatever is left to do: sums must add up in the same order.
    work = cells.ScoringWork(max(1, cores() // (plan.jobs or cores())), plan.strict)
    with watch("language", sum(len(batch.questions) for batch in batches), "questions") as step:
        scores = run(work, batches, plan.store, jobs=plan.jobs, progress=step).read()
    results = dict(zip(batches, scores, strict=True))
    problems = {batch.graph: result for batch, result in results.items() if isinstance(result, dict)}
    return {batch: problems.get(batch.graph, result) for batch, result in results.items()}


def scores_of(results: Results, trial: PrecisionTrial) -> list[ScoredQuestion]:
    """The scores of a finished trial, in the order of its questions."""
    return [s for batch in trial.batches for s in cells.unpack_scores(results[batch], batch.questions)]


def _set(prepared: PreparedLanguage, model: str, data: str, results: Results) -> SetNoise:
    trials = [t for t in prepared.trials if (t.subject.name, t.text.name) == (model, data)]
    text = trials[0].text
    clean = {s.name: s for s in scores_of(results, trials[0])}
    failed = tuple(name for name, s in clean.items() if cells.has_failed(s))
    if len(failed) == len(clean):
        why = "".join(f"; {note}" for note in prepared.notes[model, data])
        lack = f"gives no likelihood (NaN) for any of the {len(clean)} questions of {data}"
        raise DataError(f"{model}: {lack}{why}")
    if failed and prepared.plan.strict:  # of batches that a run without it has left
        raise DataError(f"{failed[0]}: no likelihood of {model} at {CLEAN}; run without --strict to skip it")
    answers = {q.name: q.answer for q in text.questions}
    default = DEFAULT_RULES[text.kind]
    rules = []
    for rule in sorted(rules_for(text.kind), key=lambda r: r != default):
        right = hits(list(clean.values()), [answers[name] for name in clean], rule)
        rows = tuple(_row(t, rule, clean, answers, results) for t in trials[1:])
        rules.append(RuleNoise(rule, float(right.mean()), rows))
    calibrated = any(suite.is_calibrated(t.precision) for t in trials[1:])
    # Greedy decoding of a word has no chance level.
    chances = [1 / len(q.endings) if len(q.endings) > 1 else 0.0 for q in text.questions]
    return SetNoise(
        data=data,
        kind=text.kind,
        sha256=text.sha256,
        questions=len(clean),
        chance=sum(chances) / len(chances),
        rules=tuple(rules),
        calibration=prepared.reserved[data].words if calibrated else "",
        notes=(*text.problems, *prepared.notes[model, data]),
        failed=failed,
    )


def _row(
    trial: PrecisionTrial, rule: TextRule, clean: Mapping[str, ScoredQuestion], answers: Mapping[str, int],
    results: Results,
) -> PrecisionRow:  # fmt: skip
    """The row of a precision: its scores against those of the unchanged model, or why there are none."""
    if not trial.batches:
        return PrecisionRow(trial.precision, trial.outcome, trial.note)
    problem = next((r["problem"] for b in trial.batches if isinstance(r := results[b], dict)), "")
    if problem:
        return PrecisionRow(trial.precision, "impossible", problem)
    after = scores_of(results, trial)
    if all(map(cells.has_failed, after)):
        why = f"no likelihood (NaN) for any of {len(after)} questions; {trial.note}"
        return PrecisionRow(trial.precision, "impossible", why, failed=len(after))
    before = [clean[s.name] for s in after]
    change = compare(before, after, [answers[s.name] for s in after], rule, generator(0, "difference"))
    same = before == after
    return PrecisionRow(
        trial.precision,
        "no effect" if same else "measured",
        f"{IDENTICAL}; {trial.note}" if same else trial.note,
        value=change.after,
        points_lost=points(change.drop.estimate),
        low=points(_round_to_question(change.drop.low, len(after))),
        high=points(_round_to_question(change.drop.high, len(after))),
        changed=change.changed,
        lost=change.flips.lost,
        gained=change.flips.gained,
        questions=len(after),
        failed=sum(map(cells.has_failed, after)),
    )


def _round_to_question(share: float, questions: int) -> float:
    """The end of an interval as a whole number of questions: between them it is the noise of the draws."""
    return round(share * questions) / questions


def estimate(prepared: PreparedLanguage) -> list[suite.Estimate]:
    """An estimate for each model and set, from some questions of each trial run in one thread."""
    pairs = product(prepared.plan.subjects, prepared.plan.sets)
    return [_estimate(prepared, [t for t in prepared.trials if (t.subject, t.text) == p]) for p in pairs]


def graphs_of(prepared: PreparedLanguage) -> tuple[int, int]:
    """The number of converted graphs on disk for these trials, and their size in bytes."""
    graphs = {batch.graph for trial in prepared.trials for batch in trial.batches if batch.graph is not None}
    return len(graphs), sum(graph.stat().st_size for graph in graphs)


def _estimate(prepared: PreparedLanguage, trials: Sequence[PrecisionTrial]) -> suite.Estimate:
    store, work = prepared.plan.store, cells.ScoringWork(1)
    able = [t for t in trials if t.batches]
    missing = {b for t in able for b in t.batches if count_missing(work, [b], store)}
    seconds, written, sample = 0.0, 0, 0
    for trial in able:
        left = [b for b in trial.batches if b in missing]
        if not left:
            continue
        few = suite.spread(trial.questions, min(SAMPLE, len(trial.questions)))
        model = open_language(trial.subject.path, trial.subject.tokenizer, 1, left[0].graph)
        model.score(few[0])  # warm
        began = time.perf_counter()
        scores = list(model.score_all(few))
        took, size = time.perf_counter() - began, len(to_json(cells.pack_scores(scores)))
        # By length: a long text takes longer than a short one.
        times = sum(_length(b.questions) for b in left) / _length(few)
        seconds, written, sample = seconds + took * times, written + round(size * times), len(few)
    text = trials[0].text
    return suite.Estimate(
        model=trials[0].subject.name,
        data=text.name,
        items=len(text.questions),
        variants=len(able),
        cells=sum(len(t.batches) for t in able),
        missing=sum(b in missing for t in able for b in t.batches),
        seconds=seconds,
        bytes=written,
        sample=sample,
        skipped=tuple(f"{t.precision}: {t.outcome}, {t.note}" for t in trials if not t.batches),
    )


def _length(questions: Sequence[Question]) -> int:
    return sum(len(e.prompt) + len(e.text) for q in questions for e in q.endings)
