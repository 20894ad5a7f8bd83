"""The noise suite of one acoustic model: every option alone, then the worst precision and the worst STFT."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.core.errors import DataError, ModelError, one_line
from holdfast.core.seeds import generator
from holdfast.engine.executor import Progress
from holdfast.engine.store import Store
from holdfast.evaluate.result import CELLS
from holdfast.metrics.intervals import mean_interval
from holdfast.noise.speech.cells import SpeechWork, measure_systems
from holdfast.noise.speech.clip import Measured
from holdfast.noise.speech.clips import ClipSet
from holdfast.noise.speech.model.vocoder import Vocoder
from holdfast.noise.speech.options import CLEAN, PRECISION, STFT, SpeechOption, System, Wanted
from holdfast.noise.speech.result import Number, Outcome, Row, SpeechNoise, harm, measured
from holdfast.noise.speech.rewritten import Graphs, graphs_of
from holdfast.noise.speech.system import SpeechModel
from holdfast.noise.vision.run import REWRITTEN, Watch

TEXTS = 100  # to calibrate on, at most
ROUNDING = 1e-15  # mean square errors that double precision makes by itself, amplified by the vocoder
FIELDS = ("mel", "heard", "wave", "own")


@dataclass(frozen=True)
class SpeechPlan:
    """A model, the clips it is tested on, which noises, and clips to calibrate on (None: of the tested)."""

    model: SpeechModel
    data: ClipSet
    wanted: Wanted = field(default_factory=Wanted)
    spare: ClipSet | None = None
    calibration: int = TEXTS
    runs: Path = Path("holdfast-runs")
    jobs: int = 1
    strict: bool = False
    vocoder: Vocoder = field(default_factory=Vocoder)


@dataclass(frozen=True)
class Asked:
    """An option of the suite: the system that measures it, or in words why there is none."""

    option: SpeechOption
    status: Outcome
    note: str = ""
    system: System | None = None


@dataclass(frozen=True)
class Prepared:
    """A plan with every graph rewritten."""

    plan: SpeechPlan
    asked: tuple[Asked, ...]
    graphs: dict[str, Graphs]
    held: frozenset[str]  # clips that calibrated systems are not tested on
    calibration: str

    @property
    def systems(self) -> tuple[System, ...]:
        """The clean one and all that are to be measured alone."""
        return (CLEAN, *(one.system for one in self.asked if one.system is not None))

    def work(self, systems: tuple[System, ...]) -> SpeechWork:
        """The work of measuring these systems on any clip."""
        plan = self.plan
        calibrated = {one.option.name for one in self.asked if one.option.calibrated}
        without = dict.fromkeys(calibrated, self.held)
        return SpeechWork(plan.model, systems, self.graphs, plan.vocoder, without, plan.strict)


def prepare(plan: SpeechPlan) -> Prepared:
    """The systems of the suite; graphs are rewritten and integer precisions calibrated here."""
    texts, held, words = _reserved(plan)
    asked: list[Asked] = []
    graphs: dict[str, Graphs] = {}
    calibrated = False
    for option in plan.wanted.taken():
        if option.missing:
            asked.append(Asked(option, "not installed", option.missing))
        elif option.family == PRECISION:
            asked.append(_precision(option, plan, texts, graphs))
            calibrated = calibrated or (option.calibrated and asked[-1].system is not None)
        elif (system := option.of(CLEAN)).other_spectrum and _differs(system, plan):
            asked.append(Asked(option, "measured", option.summary, system))
    if not asked:
        raise DataError("no noise is left to run: what is asked for is how the card has it anyway")
    return Prepared(plan, tuple(asked), graphs, held, words if calibrated else "")


def _differs(system: System, plan: SpeechPlan) -> bool:
    """Whether the option is not what the card says anyway."""
    clean = plan.model.card.spectrum
    return bool(system.operator != CLEAN.operator or system.spectrum(clean) != clean)


def _precision(
    option: SpeechOption, plan: SpeechPlan, texts: tuple[str, ...], graphs: dict[str, Graphs]
) -> Asked:
    try:
        made = graphs_of(plan.model, option.name, texts, plan.runs / CELLS / REWRITTEN)
    except ModelError as problem:
        return Asked(option, "impossible", one_line(problem))
    if not made.changed:
        return Asked(option, "no effect", made.how or "nothing in the graphs it could change")
    graphs[option.name] = made
    return Asked(option, "measured", made.how, option.of(CLEAN))


def _reserved(plan: SpeechPlan) -> tuple[tuple[str, ...], frozenset[str], str]:
    """Texts to calibrate on, the clips that costs, and where they come from in words."""
    tested = {clip.text for clip in plan.data.clips}
    if plan.spare is not None:
        free = tuple(clip.text for clip in plan.spare.clips if clip.text not in tested)[: plan.calibration]
        if free:
            said = f"{len(free)} texts of {plan.spare.name} that are not tested on"
            return free, frozenset(), said
    clips, total = plan.data.clips, len(plan.data)
    if len(tested) < 2:  # nothing would be left to test on
        return (), frozenset(), "no text: there is none that is not tested on"
    count = min(plan.calibration, max(1, total // 4))
    held = tuple(dict.fromkeys(clips[(2 * i + 1) * total // (2 * count)].text for i in range(count)))
    said = f"{len(held)} of the {len(tested)} texts, on whose clips calibrated systems are then not tested"
    return held, frozenset(clip.name for clip in clips if clip.text in held), said


def unwatched(what: str, total: int) -> AbstractContextManager[Progress]:
    """Progress that nobody wants to see."""
    return contextlib.nullcontext(lambda done, found: None)


def measure(prepared: Prepared, watch: Watch = unwatched) -> SpeechNoise:
    """The noise of the model; a killed run goes on where it was."""
    plan = prepared.plan
    found = _swept(prepared, prepared.systems, watch, f"noise {plan.model.name}")
    clean = [one for one in found[CLEAN] if not one.failed]
    lines = {clip.name: f"{clip.name} (line {clip.line})" for clip in plan.data.clips}
    failed = [f"{lines[one.clip]}: {one.failed}" for one in found[CLEAN] if one.failed]
    if not clean:
        raise DataError(
            f"none of the {len(failed)} clips can be used; first {failed[0]}"
            if len(failed) > 1
            else f"the clip cannot be used: {failed[0]}"
        )
    rows = _told_apart([_row(one, found) for one in prepared.asked])
    return SpeechNoise(
        model=plan.model.name,
        sha256=plan.model.sha256,
        kind=plan.model.card.kind,
        clips=len(clean),
        own=_number([one.own for one in clean]),
        copy=_number([one.copy for one in clean]),
        power=sum(one.power for one in clean) / len(clean),
        rows=rows,
        combined=_combined(prepared, rows, watch),
        spectrum=dataclasses.asdict(plan.model.card.spectrum),
        vocoder=vocoder_words(plan.vocoder),
        calibration=prepared.calibration,
        notes=_notes(clean, plan.model.card.max_frames),
        failed=tuple(failed),
    )


def vocoder_words(how: Vocoder) -> str:
    """The vocoder in words."""
    phase = "zero initial phase" if how.seed is None else f"initial phase from seed {how.seed}"
    momentum = f", momentum {how.momentum:g}" if how.momentum else ""
    return f"Griffin-Lim, {how.iterations} iterations, {phase}{momentum}"


def _notes(clean: Sequence[Measured], most: int) -> tuple[str, ...]:
    endless = [one.clip for one in clean if not one.stopped]
    where = f"{len(endless)} of {len(clean)} clips ({', '.join(endless[:3])})"
    said = f"the clean model never stops by itself on {where}: ended at max_frames {most}"
    return (said,) if endless else ()


def _swept(
    prepared: Prepared, systems: tuple[System, ...], watch: Watch, what: str
) -> dict[System, tuple[Measured, ...]]:
    plan = prepared.plan
    with watch(what, len(systems) * len(plan.data)) as progress:
        store = Store(plan.runs / CELLS)
        return measure_systems(prepared.work(systems), plan.data.clips, store, plan.jobs, progress)


def _row(one: Asked, found: dict[System, tuple[Measured, ...]], family: str = "") -> Row:
    family, name = family or one.option.family, one.option.name
    if one.system is None:
        return Row(family, name, one.status, one.note)
    unusable = {m.clip for m in found.get(CLEAN, ()) if m.failed}
    cells = [m for m in found[one.system] if m.clip not in unusable]
    good = [m for m in cells if not m.failed]
    lost = len(cells) - len(good)
    if not good:
        first = next((m.failed for m in cells), "no clip is left to test on")
        return Row(family, name, "impossible", f"every clip failed: {first}", failed=lost)
    outcome, note = _outcome(good, one.note)
    values = {key: [getattr(m, key) for m in good] for key in FIELDS}
    numbers: dict[str, Any] = {key: None if None in got else _number(got) for key, got in values.items()}
    return Row(
        family,
        name,
        outcome,
        note,
        clips=len(good),
        longer=sum(m.frames != m.clean_frames for m in good),
        unstopped=sum(not m.stopped for m in good),
        failed=lost,
        **numbers,
    )


def _outcome(good: Sequence[Measured], note: str) -> tuple[Outcome, str]:
    if all(m.same and not m.mel for m in good):
        return "identical", "every wave is the clean one, bit for bit"
    if all(max(m.heard, m.mel or 0.0) < ROUNDING for m in good):
        return "no effect", f"the same up to rounding in double precision: {note}"
    return "measured", note


def _told_apart(rows: Sequence[Row]) -> tuple[Row, ...]:
    """The rows, those with the errors of an earlier one of their family marked as alike."""
    found: list[Row] = []
    for row in rows:
        same = [r.option for r in found if r.family == row.family and not r.alike and _alike(r, row)]
        found.append(dataclasses.replace(row, alike=same[0]) if same else row)
    return tuple(found)


def _alike(first: Row, second: Row) -> bool:
    if first.outcome != "measured" or second.outcome != "measured":
        return False
    pairs = [(getattr(first, key), getattr(second, key)) for key in FIELDS]
    return all(
        a is not None and b is not None and math.isclose(a.mean, b.mean, rel_tol=1e-6) for a, b in pairs
    )


def _number(values: Sequence[float]) -> Number:
    """The mean over clips with a bootstrap interval, the same for the same numbers."""
    made = mean_interval(values, generator(0, "speech"))
    return Number(made.estimate, max(made.low, 0.0), made.high)  # squares


def _combined(prepared: Prepared, rows: Sequence[Row], watch: Watch) -> Row | None:
    """The worst precision and the worst STFT together; None unless each has an effect."""
    known = {one.option.label: one for one in prepared.asked}
    worst = []
    for family in (PRECISION, STFT):
        own = [row for row in measured(rows) if row.family == family]
        if not own:
            return None
        worst.append(known[max(own, key=harm).label])
    system = worst[1].option.of(worst[0].option.of(CLEAN))
    found = _swept(prepared, (CLEAN, system), watch, f"combined {prepared.plan.model.name}")
    option = dataclasses.replace(worst[1].option, name=system.name)
    return _row(Asked(option, "measured", "", system), found, "combined")
