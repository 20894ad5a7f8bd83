"""The noise suite of one acoustic model: every option alone, then the worst precision and the worst STFT."""

import dataclasses
import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from holdfast.core.errors import DataError, ModelError, one_line
from holdfast.core.fingerprint import generator
from holdfast.engine.cells import count_missing
from holdfast.engine.execution import cell_store
from holdfast.engine.store import FolderStore
from holdfast.evaluate.result import CELLS
from holdfast.metrics.intervals import mean_interval
from holdfast.noise import suite
from holdfast.noise.speech.card import SpeechModel
from holdfast.noise.speech.cells import ClipErrors, SpeechWork, graphs_of, measure_systems
from holdfast.noise.speech.clips import ClipSet
from holdfast.noise.speech.options import CLEAN, STFT, System, select_options
from holdfast.noise.speech.result import MeanInterval, SpeechNoise, SpeechRow, mean
from holdfast.noise.speech.spectrum import Vocoder
from holdfast.stages.families import NoiseOption

SpeechCandidate: TypeAlias = suite.Candidate[System]
SAMPLE = 2  # clips an estimate runs: each is seconds of sound through every system
ROUNDING = 1e-15  # mean square errors that double precision makes by itself, amplified by the vocoder
FIELDS = ("mel", "heard", "wave", "own")


@dataclass(frozen=True)
class SpeechPlan:
    """A model, the test clips, the noise options, and the calibration clips."""

    model: SpeechModel
    data: ClipSet
    selection: suite.NoiseSelection = field(default_factory=suite.NoiseSelection)
    calibration: ClipSet | None = None  # None: some of the test clips, which are then skipped
    calibration_clips: int = suite.CALIBRATION_ITEMS
    runs: Path = Path("holdfast-runs")
    jobs: int = 1
    strict: bool = False
    vocoder: Vocoder = field(default_factory=Vocoder)


@dataclass(frozen=True)
class PreparedSpeech:
    """A plan with every graph rewritten."""

    plan: SpeechPlan
    candidates: tuple[SpeechCandidate, ...]
    graphs: dict[str, suite.ConvertedGraphs]
    reserved: suite.Reserved[str]  # texts to calibrate on

    @property
    def systems(self) -> tuple[System, ...]:
        """The clean one and all that are to be measured alone."""
        return (CLEAN, *(one.variant for one in self.candidates if one.variant is not None))

    def work(self, systems: tuple[System, ...]) -> SpeechWork:
        """The work of measuring these systems on any clip."""
        plan = self.plan
        calibrated = {one.option.name for one in self.candidates if one.option.calibrated}
        without = dict.fromkeys(calibrated, self.reserved.without)
        return SpeechWork(plan.model, systems, self.graphs, plan.vocoder, without, strict=plan.strict)


def prepare(plan: SpeechPlan) -> PreparedSpeech:
    """The systems of the suite; graphs are rewritten and integer precisions calibrated here."""
    reserved = reserve(plan)
    candidates: list[SpeechCandidate] = []
    graphs: dict[str, suite.ConvertedGraphs] = {}
    clean = plan.model.card.spectrum
    for option in select_options(plan.selection):
        system = CLEAN.apply(option)
        if option.missing:
            candidates.append(suite.Candidate(option, "not installed", option.missing))
        elif option.family == suite.PRECISION:
            candidates.append(_rewritten(plan, option, reserved.items, graphs))
        elif system.operator != CLEAN.operator or system.spectrum(clean) != clean:  # not what the card says
            candidates.append(suite.Candidate(option, "measured", option.summary, system))
    if not candidates:
        raise DataError("no noise option is left to run: the selected options are already those of the card")
    return PreparedSpeech(plan, tuple(candidates), graphs, reserved)


def _rewritten(
    plan: SpeechPlan, option: NoiseOption, texts: tuple[str, ...], graphs: dict[str, suite.ConvertedGraphs]
) -> SpeechCandidate:
    """The candidate of a precision; its graphs are added to `graphs`."""
    try:
        rewritten = graphs_of(plan.model, option.name, texts, plan.runs / CELLS / suite.REWRITTEN)
    except ModelError as problem:
        return suite.Candidate(option, "impossible", one_line(problem))
    if not rewritten.changed:
        why = rewritten.how or "the graphs have nothing that this precision changes"
        return suite.Candidate(option, "no effect", why)
    graphs[option.name] = rewritten
    return suite.Candidate(option, "measured", rewritten.how, CLEAN.apply(option))


def reserve(plan: SpeechPlan) -> suite.Reserved[str]:
    """Texts that are not tested on; else some of the tested, whose clips are then skipped."""
    tested, others = {clip.text for clip in plan.data.clips}, plan.calibration
    free = [clip.text for clip in others.clips if clip.text not in tested] if others else []
    if others and free:
        texts = suite.spread(free, min(plan.calibration_clips, len(free)))
        return suite.Reserved(texts, f"{len(texts)} texts of {others.name} that are not tested on")
    none = f" ({others.name} has no others)" if others else ""
    if len(tested) < 2:  # nothing would be left to test on
        return suite.Reserved((), "no text that is not tested on")
    subset = suite.calibration_subset(plan.data.clips, plan.calibration_clips)
    texts = tuple(dict.fromkeys(clip.text for clip in subset))
    names = frozenset(clip.name for clip in plan.data.clips if clip.text in texts)
    words = f"{len(texts)} of the {len(tested)} texts{none}"
    return suite.Reserved(texts, f"{words}; calibrated systems skip the clips of these texts", names)


def measure(prepared: PreparedSpeech, watch: suite.Watch = suite.no_progress) -> SpeechNoise:
    """The noise of the model; a killed run continues where it stopped."""
    plan = prepared.plan
    errors = _run_systems(prepared, prepared.systems, watch, f"noise {plan.model.name}")
    clean = [clip for clip in errors[CLEAN] if not clip.failed]
    lines = {clip.name: f"{clip.name} (line {clip.line})" for clip in plan.data.clips}
    failed = [f"{lines[clip.clip]}: {clip.failed}" for clip in errors[CLEAN] if clip.failed]
    if not clean:
        several = f"all {len(failed)} clips failed; first {failed[0]}"
        raise DataError(several if len(failed) > 1 else f"the clip failed: {failed[0]}")
    rows: list[SpeechRow] = []
    for row in (_row(candidate, errors) for candidate in prepared.candidates):
        same = (r.option for r in rows if r.family == row.family and not r.alike and _alike(r, row))
        rows.append(dataclasses.replace(row, alike=next(same, "")))
    endless = [clip.clip for clip in clean if not clip.stopped]
    where = f"{len(endless)} of {len(clean)} clips ({', '.join(endless[:3])})"
    ended = f"output ended at max_frames {plan.model.card.max_frames}"
    calibrated = any(c.option.calibrated and c.variant is not None for c in prepared.candidates)
    return SpeechNoise(
        model=plan.model.name,
        sha256=plan.model.sha256,
        kind=plan.model.card.kind,
        clips=len(clean),
        own=_mean([clip.own for clip in clean]),
        copy=_mean([clip.copy for clip in clean]),
        power=sum(clip.power for clip in clean) / len(clean),
        rows=tuple(rows),
        combined=_combined(prepared, rows, watch),
        spectrum=dataclasses.asdict(plan.model.card.spectrum),
        vocoder=plan.vocoder.describe(),
        calibration=prepared.reserved.words if calibrated else "",
        notes=(f"the clean model does not stop on {where}; {ended}",) if endless else (),
        failed=tuple(failed),
    )


def _run_systems(
    prepared: PreparedSpeech, systems: tuple[System, ...], watch: suite.Watch, what: str
) -> dict[System, tuple[ClipErrors, ...]]:
    plan = prepared.plan
    with watch(what, len(systems) * len(plan.data), "clips × systems") as progress:
        store = cell_store(plan.runs / CELLS)
        return measure_systems(prepared.work(systems), plan.data.clips, store, plan.jobs, progress)


def _row(candidate: SpeechCandidate, errors: dict[System, tuple[ClipErrors, ...]]) -> SpeechRow:
    family, name, note = candidate.option.family, candidate.option.name, candidate.note
    if candidate.variant is None:
        return SpeechRow(family, name, candidate.status, note)
    unusable = {m.clip for m in errors.get(CLEAN, ()) if m.failed}
    cells = [m for m in errors[candidate.variant] if m.clip not in unusable]
    good = [m for m in cells if not m.failed]
    failed = len(cells) - len(good)
    if not good:
        first = next((m.failed for m in cells), "no clip is left to test on")
        return SpeechRow(family, name, "impossible", f"every clip failed: {first}", failed=failed)
    outcome: suite.Outcome = "measured"
    if all(m.same and not m.mel for m in good):
        outcome, note = "identical", "all waves are bit-identical"
    elif all(max(m.heard, m.mel or 0.0) < ROUNDING for m in good):
        outcome, note = "no effect", f"identical up to rounding in double precision: {note}"
    values = {key: [getattr(m, key) for m in good] for key in FIELDS}
    numbers: dict[str, Any] = {key: None if None in of else _mean(of) for key, of in values.items()}
    numbers["longer"] = sum(m.frames != m.clean_frames for m in good)
    numbers["unstopped"] = sum(not m.stopped for m in good)
    return SpeechRow(family, name, outcome, note, **numbers, clips=len(good), failed=failed)


def _alike(first: SpeechRow, second: SpeechRow) -> bool:
    means = [(mean(first, key), mean(second, key)) for key in FIELDS]
    close = (a is not None and b is not None and math.isclose(a, b, rel_tol=1e-6) for a, b in means)
    return first.outcome == second.outcome == "measured" and all(close)


def _mean(values: Sequence[float]) -> MeanInterval:
    """The mean over clips with a bootstrap interval, the same for the same numbers."""
    interval = mean_interval(values, generator(0, "speech"))
    return MeanInterval(interval.estimate, max(interval.low, 0.0), interval.high)  # squares


def _combined(prepared: PreparedSpeech, rows: Sequence[SpeechRow], watch: suite.Watch) -> SpeechRow | None:
    """The worst precision and the worst STFT option combined; None unless each has an effect."""
    known = {candidate.option.label: candidate.option for candidate in prepared.candidates}
    most_harmful = suite.worst_per_group(suite.distinct_rows(rows), lambda row: row.family)
    worst = {row.family: known[row.label] for row in most_harmful}
    if len(worst) < 2:
        return None
    system = CLEAN.apply(worst[suite.PRECISION]).apply(worst[STFT])
    errors = _run_systems(prepared, (CLEAN, system), watch, f"combined {prepared.plan.model.name}")
    option = dataclasses.replace(worst[STFT], family="combined", name=system.name)
    return _row(suite.Candidate(option, "measured", "", system), errors)


def estimate(plan: SpeechPlan) -> suite.Estimate:
    """The estimate, from a few clips; rewritten graphs are stored with the run if it has begun."""
    with tempfile.TemporaryDirectory(prefix="holdfast-estimate-") as name:
        folder, store = Path(name), cell_store(plan.runs / CELLS)
        begun = not store.is_new
        prepared = prepare(plan if begun else dataclasses.replace(plan, runs=folder / "runs"))
        work, clips = prepared.work(prepared.systems), plan.data.clips
        cells = sum(c.name not in work.without.get(s.precision, ()) for s in work.systems for c in clips)
        untimed = suite.Estimate(
            model=plan.model.name,
            items=len(clips),
            variants=len(work.systems),
            cells=cells,
            missing=count_missing(work, clips, store) if begun else cells,
            skipped=suite.skipped_options(prepared.candidates),
        )
        if untimed.missing == 0:
            return untimed
        few, timed = clips[:SAMPLE], FolderStore(folder / "cells")
        return suite.extrapolate(
            untimed, len(few), folder / "cells", lambda: measure_systems(work, few, timed)
        )
