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
from holdfast.noise.speech.cells import ClipErrors, Graphs, SpeechWork, graphs_of, measure_systems
from holdfast.noise.speech.clips import ClipSet
from holdfast.noise.speech.options import CLEAN, STFT, System, select_options
from holdfast.noise.speech.result import MeanInterval, SpeechNoise, SpeechRow, mean
from holdfast.noise.speech.spectrum import Vocoder

SpeechCandidate: TypeAlias = suite.Candidate[System]
SAMPLE = 2  # clips an estimate runs: each is seconds of sound through every system
ROUNDING = 1e-15  # mean square errors that double precision makes by itself, amplified by the vocoder
FIELDS = ("mel", "heard", "wave", "own")


@dataclass(frozen=True)
class SpeechPlan:
    """A model, the test clips, the noise options, and the calibration clips (None: some test clips)."""

    model: SpeechModel
    data: ClipSet
    selection: suite.NoiseSelection = field(default_factory=suite.NoiseSelection)
    spare: ClipSet | None = None
    calibration: int = suite.CALIBRATION_ITEMS
    runs: Path = Path("holdfast-runs")
    jobs: int = 1
    strict: bool = False
    vocoder: Vocoder = field(default_factory=Vocoder)


@dataclass(frozen=True)
class PreparedSpeech:
    """A plan with every graph rewritten."""

    plan: SpeechPlan
    candidates: tuple[SpeechCandidate, ...]
    graphs: dict[str, Graphs]
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
    graphs: dict[str, Graphs] = {}
    clean = plan.model.card.spectrum
    for option in select_options(plan.selection):
        system = CLEAN.apply(option)
        if option.missing:
            candidates.append(suite.Candidate(option, "not installed", option.missing))
        elif option.family == suite.PRECISION:
            try:
                made = graphs_of(plan.model, option.name, reserved.items, plan.runs / CELLS / suite.REWRITTEN)
            except ModelError as problem:
                candidates.append(suite.Candidate(option, "impossible", one_line(problem)))
                continue
            if made.changed:
                graphs[option.name] = made
                candidates.append(suite.Candidate(option, "measured", made.how, system))
            else:
                why = made.how or "the graphs have nothing that this precision changes"
                candidates.append(suite.Candidate(option, "no effect", why))
        elif system.operator != CLEAN.operator or system.spectrum(clean) != clean:  # not what the card says
            candidates.append(suite.Candidate(option, "measured", option.summary, system))
    if not candidates:
        raise DataError("no noise option is left to run: the selected options are already those of the card")
    return PreparedSpeech(plan, tuple(candidates), graphs, reserved)


def reserve(plan: SpeechPlan) -> suite.Reserved[str]:
    """Texts of `spare` that are not tested on; else some of the tested, whose clips are then skipped."""
    tested = {clip.text for clip in plan.data.clips}
    others = plan.spare.clips if plan.spare is not None else ()
    free = [clip.text for clip in others if clip.text not in tested]
    if free and plan.spare is not None:
        texts = suite.spread(free, min(plan.calibration, len(free)))
        return suite.Reserved(texts, f"{len(texts)} texts of {plan.spare.name} that are not tested on")
    none = "" if plan.spare is None else f" ({plan.spare.name} has no others)"
    if len(tested) < 2:  # nothing would be left to test on
        return suite.Reserved((), "no text that is not tested on")
    held = tuple(
        dict.fromkeys(clip.text for clip in suite.calibration_subset(plan.data.clips, plan.calibration))
    )
    names = frozenset(clip.name for clip in plan.data.clips if clip.text in held)
    words = f"{len(held)} of the {len(tested)} texts{none}"
    return suite.Reserved(held, f"{words}; calibrated systems skip the clips of these texts", names)


def measure(prepared: PreparedSpeech, watch: suite.Watch = suite.no_progress) -> SpeechNoise:
    """The noise of the model; a killed run continues where it stopped."""
    plan = prepared.plan
    found = _run_systems(prepared, prepared.systems, watch, f"noise {plan.model.name}")
    clean = [one for one in found[CLEAN] if not one.failed]
    lines = {clip.name: f"{clip.name} (line {clip.line})" for clip in plan.data.clips}
    failed = [f"{lines[one.clip]}: {one.failed}" for one in found[CLEAN] if one.failed]
    if not clean:
        several = f"all {len(failed)} clips failed; first {failed[0]}"
        raise DataError(several if len(failed) > 1 else f"the clip failed: {failed[0]}")
    rows: list[SpeechRow] = []
    for row in (_row(one, found) for one in prepared.candidates):  # an option alike an earlier one is marked
        same = (r.option for r in rows if r.family == row.family and not r.alike and _alike(r, row))
        rows.append(dataclasses.replace(row, alike=next(same, "")))
    endless = [one.clip for one in clean if not one.stopped]
    where = f"{len(endless)} of {len(clean)} clips ({', '.join(endless[:3])})"
    note = (
        f"the clean model does not stop on {where}; output ended at max_frames {plan.model.card.max_frames}"
    )
    calibrated = any(one.option.calibrated and one.variant is not None for one in prepared.candidates)
    return SpeechNoise(
        model=plan.model.name,
        sha256=plan.model.sha256,
        kind=plan.model.card.kind,
        clips=len(clean),
        own=_number([one.own for one in clean]),
        copy=_number([one.copy for one in clean]),
        power=sum(one.power for one in clean) / len(clean),
        rows=tuple(rows),
        combined=_combined(prepared, rows, watch),
        spectrum=dataclasses.asdict(plan.model.card.spectrum),
        vocoder=plan.vocoder.describe(),
        calibration=prepared.reserved.words if calibrated else "",
        notes=(note,) if endless else (),
        failed=tuple(failed),
    )


def _run_systems(
    prepared: PreparedSpeech, systems: tuple[System, ...], watch: suite.Watch, what: str
) -> dict[System, tuple[ClipErrors, ...]]:
    plan = prepared.plan
    with watch(what, len(systems) * len(plan.data), "clips × systems") as progress:
        store = cell_store(plan.runs / CELLS)
        return measure_systems(prepared.work(systems), plan.data.clips, store, plan.jobs, progress)


def _row(one: SpeechCandidate, found: dict[System, tuple[ClipErrors, ...]], family: str = "") -> SpeechRow:
    family, name = family or one.option.family, one.option.name
    if one.variant is None:
        return SpeechRow(family, name, one.status, one.note)
    unusable = {m.clip for m in found.get(CLEAN, ()) if m.failed}
    cells = [m for m in found[one.variant] if m.clip not in unusable]
    good = [m for m in cells if not m.failed]
    lost = len(cells) - len(good)
    if not good:
        first = next((m.failed for m in cells), "no clip is left to test on")
        return SpeechRow(family, name, "impossible", f"every clip failed: {first}", failed=lost)
    outcome: suite.Outcome = "measured"
    note = one.note
    if all(m.same and not m.mel for m in good):
        outcome, note = "identical", "all waves are bit-identical"
    elif all(max(m.heard, m.mel or 0.0) < ROUNDING for m in good):
        outcome, note = "no effect", f"identical up to rounding in double precision: {note}"
    values = {key: [getattr(m, key) for m in good] for key in FIELDS}
    numbers: dict[str, Any] = {key: None if None in got else _number(got) for key, got in values.items()}
    return SpeechRow(
        family,
        name,
        outcome,
        note,
        **numbers,
        clips=len(good),
        longer=sum(m.frames != m.clean_frames for m in good),
        unstopped=sum(not m.stopped for m in good),
        failed=lost,
    )


def _alike(first: SpeechRow, second: SpeechRow) -> bool:
    means = [(mean(first, key), mean(second, key)) for key in FIELDS]
    close = (a is not None and b is not None and math.isclose(a, b, rel_tol=1e-6) for a, b in means)
    return first.outcome == second.outcome == "measured" and all(close)


def _number(values: Sequence[float]) -> MeanInterval:
    """The mean over clips with a bootstrap interval, the same for the same numbers."""
    made = mean_interval(values, generator(0, "speech"))
    return MeanInterval(made.estimate, max(made.low, 0.0), made.high)  # squares


def _combined(prepared: PreparedSpeech, rows: Sequence[SpeechRow], watch: suite.Watch) -> SpeechRow | None:
    """The worst precision and the worst STFT option combined; None unless each has an effect."""
    known = {one.option.label: one.option for one in prepared.candidates}
    most_harmful = suite.worst_per_group(suite.distinct_rows(rows), lambda row: row.family)
    worst = {row.family: known[row.label] for row in most_harmful}
    if len(worst) < 2:
        return None
    system = CLEAN.apply(worst[suite.PRECISION]).apply(worst[STFT])
    found = _run_systems(prepared, (CLEAN, system), watch, f"combined {prepared.plan.model.name}")
    option = dataclasses.replace(worst[STFT], name=system.name)
    return _row(suite.Candidate(option, "measured", "", system), found, "combined")


def estimate(plan: SpeechPlan) -> suite.Estimate:
    """The estimate, from a few clips that are run through every system in one process and discarded.

    Rewritten graphs are stored with the run if it has begun.
    """
    with tempfile.TemporaryDirectory(prefix="holdfast-estimate-") as name:
        folder, store = Path(name), cell_store(plan.runs / CELLS)
        begun = not store.is_new
        prepared = prepare(plan if begun else dataclasses.replace(plan, runs=folder / "runs"))
        work, clips = prepared.work(prepared.systems), plan.data.clips
        cells = sum(c.name not in work.without.get(s.precision, ()) for s in work.systems for c in clips)
        found = suite.Estimate(
            model=plan.model.name,
            items=len(clips),
            variants=len(work.systems),
            cells=cells,
            missing=count_missing(work, clips, store) if begun else cells,
            skipped=suite.skipped_options(prepared.candidates),
        )
        if found.missing == 0:
            return found
        few, timed = clips[:SAMPLE], folder / "cells"
        return suite.extrapolate(
            found, len(few), timed, lambda: measure_systems(work, few, FolderStore(timed))
        )
