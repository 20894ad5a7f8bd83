"""The cells of a speech suite: one per system and clip, with the rewritten graphs they run."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.core.errors import DataError, ModelError
from holdfast.core.registry import part
from holdfast.engine.cells import CellResult, MissingCells, Setup, Work, run
from holdfast.engine.executor import Progress, silent
from holdfast.engine.store import Store
from holdfast.graph.artifacts import Artifact
from holdfast.graph.inspect import load_proto
from holdfast.graph.rewrite.types import CannotRewrite, RewriteContext, RewriteResult
from holdfast.metrics.speech import aligned_mean_square, mean_square
from holdfast.noise.speech.acoustic import Synthesizer, Utterance, feeds_of, open_synthesizer
from holdfast.noise.speech.card import SpeechModel
from holdfast.noise.speech.clips import Clip, clip_key, read_wav
from holdfast.noise.speech.options import CLEAN, System
from holdfast.noise.speech.spectrum import Mel, Vocoder, Wave, log_mel, wave_of
from holdfast.noise.suite import ConvertedGraphs, convert_graphs, is_calibrated


def graphs_of(model: SpeechModel, precision: str, texts: tuple[str, ...], folder: Path) -> ConvertedGraphs:
    """The graphs in that precision, calibrated on `texts` if need be; CannotRewrite if one cannot be."""
    calibration = texts if is_calibrated(precision) else None
    content = [model.sha256, model.card, calibration or ()]
    return convert_graphs(
        "speech", precision, content, folder, partial(_rewrite, model, precision, calibration)
    )


def _rewrite(model: SpeechModel, precision: str, texts: tuple[str, ...] | None) -> Artifact:
    """Every graph rewritten; `texts` are said by the clean model to calibrate, None: not calibrated."""
    feeds = {} if texts is None else feeds_of(open_synthesizer(model), texts)
    if texts is not None and not all(feeds.values()):
        raise CannotRewrite("8-bit integers need texts to calibrate on; give some that are not tested on")
    results: dict[str, RewriteResult] = {}
    for role, file in zip(model.roles, model.files, strict=True):
        inputs: Any = partial(iter, feeds[role]) if role in feeds else None
        context = RewriteContext(None, inputs, "input")
        results[role] = part("rewrite", precision).function(load_proto(file), context)
    how = [f"{role}: {r.how or 'nothing to change'}" for role, r in results.items()]
    how = how if len(results) > 1 else [r.how for r in results.values()]
    facts = {"how": "; ".join(how), "changed": any(r.changed for r in results.values())}
    return Artifact({f"-{role}.onnx": r.model.SerializeToString() for role, r in results.items()}, facts)


@dataclass(frozen=True)
class ClipErrors:
    """The errors of one system on one clip, all against the clean system but `own`."""

    clip: str
    frames: int = 0  # that the model gave
    clean_frames: int = 0
    mel: float | None = None  # before the vocoder: the model's output, or the analysis of the recording
    heard: float = 0.0  # log mel of the wave, by the card's analysis
    wave: float = 0.0
    own: float = 0.0  # `heard` against the recording's log mel, warped in time
    stopped: bool = True  # False: max_frames ended it
    same: bool = False  # the wave is the clean one's, bit for bit
    power: float = 0.0  # clean only: mean square of the wave
    copy: float = 0.0  # clean only: log mel of the recording's mel after the vocoder, against itself
    failed: str = ""


@dataclass(frozen=True)
class ClipReference:
    """A clip with all that its measurements share: the recording's log mel, and the clean result."""

    clip: Clip
    recording: Wave
    target: Mel
    spoken: Utterance
    wave: Wave
    heard: Mel


@dataclass(frozen=True)
class SpeechRunner:
    """A model opened in as many precisions as are needed, each when it is first asked for."""

    model: SpeechModel
    vocoder: Vocoder
    graphs: Mapping[str, ConvertedGraphs]  # by precision
    voices: dict[str, Synthesizer] = field(default_factory=dict)

    def voice(self, precision: str) -> Synthesizer:
        """The model in that precision ("": as it is)."""
        if precision not in self.voices:
            paths = self.graphs[precision].paths if precision else None
            graphs = paths and {role: paths[f"-{role}.onnx"] for role in self.model.roles}
            self.voices[precision] = open_synthesizer(self.model, graphs)
        return self.voices[precision]

    def reference(self, clip: Clip) -> ClipReference:
        """The clip with its recording analysed and the clean system's result."""
        spectrum = self.model.card.spectrum
        recording = read_wav(clip.path, spectrum.rate)
        spoken = self.voice("").speak(clip.text)
        wave = self.wave(spoken.mel, CLEAN)
        target, heard = log_mel(recording, spectrum), log_mel(wave, spectrum)
        return ClipReference(clip, recording, target, spoken, wave, heard)

    def wave(self, mel: Mel, system: System) -> Wave:
        """The wave the system's vocoder makes of a log mel spectrogram."""
        how = dataclasses.replace(self.vocoder, operator=system.operator)
        return wave_of(mel, system.spectrum(self.model.card.spectrum), how)

    def errors(self, clean: ClipReference, system: System, speak: Callable[[str], Utterance]) -> ClipErrors:
        """The errors of a system on the clip; `speak` gives the model's output in a precision."""
        spectrum, spoken = self.model.card.spectrum, speak(system.precision)
        wave = clean.wave if system == CLEAN else self.wave(spoken.mel, system)
        if not np.isfinite(wave).all():
            raise DataError("the wave is infinite or NaN")
        heard = clean.heard if system == CLEAN else log_mel(wave, spectrum)
        more: dict[str, Any] = {}
        if system == CLEAN:
            copy = log_mel(self.wave(clean.target, CLEAN), spectrum)
            more = {"power": float((wave * wave).mean()), "copy": mean_square(copy, clean.target)}
        elif not system.other_spectrum:
            more = {"mel": mean_square(spoken.mel, clean.spoken.mel)}
        elif not system.precision:
            other = log_mel(clean.recording, system.spectrum(spectrum), system.operator)
            more = {"mel": mean_square(other, clean.target)}
        return ClipErrors(
            clean.clip.name,
            len(spoken.mel),
            len(clean.spoken.mel),
            heard=mean_square(heard, clean.heard),
            wave=mean_square(wave, clean.wave),
            own=aligned_mean_square(heard, clean.target),
            stopped=spoken.stopped,
            same=len(wave) == len(clean.wave) and bool((wave == clean.wave).all()),
            **more,
        )


@dataclass(frozen=True)
class SpeechWork(Work[Clip, SpeechRunner]):
    """Systems on clips; a system of a calibrated precision is not tested on some clips."""

    model: SpeechModel
    systems: tuple[System, ...]
    graphs: Mapping[str, ConvertedGraphs]  # by precision
    vocoder: Vocoder
    without: Mapping[str, frozenset[str]] = field(default_factory=dict)  # precision -> names of clips
    strict: bool = False

    def setups(self) -> list[Setup]:
        """Model, card, vocoder and system."""
        model = [self.model.sha256, self.model.card, self.vocoder]
        return [Setup("speech", [model, _facts(system, self.graphs)]) for system in self.systems]

    def contents(self, item: Clip) -> list[list[str] | None]:
        """Name and content of the clip; None for systems that are not tested on it."""
        content = [item.name, clip_key(item)]
        return [None if item.name in self.without.get(s.precision, ()) else content for s in self.systems]

    def open(self, threads: int) -> SpeechRunner:
        """The model, with one thread always: sums must not depend on the number of cores."""
        return SpeechRunner(self.model, self.vocoder, self.graphs)

    def compute(self, state: SpeechRunner, batch: Sequence[MissingCells]) -> Iterator[CellResult]:
        """The measurements of each clip."""
        for position, (clip, missing) in enumerate(batch):
            systems = [self.systems[n] for n in missing]
            for n, errors in zip(missing, _measure(state, clip, systems, self.strict), strict=True):
                yield CellResult(position, n, dataclasses.asdict(errors))


def _facts(system: System, graphs: Mapping[str, ConvertedGraphs]) -> list[Any]:
    operator = part("stft", system.operator)
    settings = [part("spectrum", name).function for name in system.settings]
    graph = graphs[system.precision].key if system.precision else ""
    version = ""
    with contextlib.suppress(metadata.PackageNotFoundError, ValueError):  # an operator that needs no library
        version = metadata.version(str(operator.facts.get("needs", "")))
    return [system, operator.function, operator.facts["inverse"], settings, graph, version]


def _measure(runner: SpeechRunner, clip: Clip, systems: Sequence[System], strict: bool) -> list[ClipErrors]:
    """The measurements of the clip; failures are part of them, unless it is the clean model's."""
    try:
        clean = runner.reference(clip)
    except DataError as problem:
        if strict:
            raise DataError(f"{clip.name} (line {clip.line}): {problem}") from problem
        # Of the folder: the cell may be read for the same recording in another one.
        reason = str(problem).replace(str(clip.path), f"{clip.path.parent.name}/{clip.path.name}")
        return [ClipErrors(clip.name, failed=reason) for _ in systems]
    speak = cache(lambda name: runner.voice(name).speak(clip.text) if name else clean.spoken)
    errors = []
    for system in systems:
        try:
            errors.append(runner.errors(clean, system, speak))
        except (DataError, ModelError) as problem:
            if system == CLEAN:
                raise
            errors.append(ClipErrors(clip.name, failed=str(problem)))
    return errors


def measure_systems(
    work: SpeechWork, clips: Sequence[Clip], store: Store, jobs: int = 1, progress: Progress = silent
) -> dict[System, tuple[ClipErrors, ...]]:
    """The measurements of every system in the order of the clips; finished cells are not computed again."""
    cells = run(work, clips, store, jobs=jobs, progress=progress)
    errors = {
        system: tuple(ClipErrors(**plain) for plain in cells.read(n) if plain is not None)
        for n, system in enumerate(work.systems)
    }
    failed = next((clip for clip in errors.get(CLEAN, ()) if clip.failed), None)
    if work.strict and failed:  # in cells that a run without --strict has written
        line = next(clip.line for clip in clips if clip.name == failed.clip)
        raise DataError(f"{failed.clip} (line {line}): {failed.failed}")
    return errors
