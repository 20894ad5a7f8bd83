"""The cells of a speech suite: one per system and clip."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

from holdfast.core.errors import DataError, ModelError
from holdfast.core.registry import part
from holdfast.engine.cells import Computed, Missing, Setup, Work, run
from holdfast.engine.executor import Progress, silent
from holdfast.engine.store import Store
from holdfast.noise.speech.clip import Measured, Studio, Take
from holdfast.noise.speech.clips import clip_key
from holdfast.noise.speech.model.acoustic import Spoken
from holdfast.noise.speech.model.vocoder import Vocoder
from holdfast.noise.speech.options import CLEAN, System
from holdfast.noise.speech.rewritten import Graphs
from holdfast.noise.speech.system import Clip, SpeechModel


@dataclass(frozen=True)
class SpeechWork(Work[Clip, Studio]):
    """Systems on clips; a system of a calibrated precision is not tested on some clips."""

    model: SpeechModel
    systems: tuple[System, ...]
    graphs: Mapping[str, Graphs]  # by precision
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

    def open(self, threads: int) -> Studio:
        """The model, with one thread always: sums must not depend on the number of cores."""
        paths = {name: dict(graphs.paths) for name, graphs in self.graphs.items()}
        return Studio(self.model, self.vocoder, paths)

    def compute(self, state: Studio, batch: Sequence[Missing]) -> Iterator[Computed]:
        """The measurements of each clip."""
        for position, (clip, wanted) in enumerate(batch):
            systems = [self.systems[n] for n in wanted]
            for n, one in zip(wanted, _measure(state, clip, systems, self.strict), strict=True):
                yield Computed(position, n, dataclasses.asdict(one))


def _facts(system: System, graphs: Mapping[str, Graphs]) -> list[Any]:
    operator = part("stft", system.operator)
    settings = [part("spectrum", name).function for name in system.settings]
    graph = graphs[system.precision].key if system.precision else ""
    needs = str(operator.facts.get("needs", ""))
    version = ""
    with contextlib.suppress(metadata.PackageNotFoundError):
        version = metadata.version(needs) if needs else ""
    return [system, operator.function, operator.facts["inverse"], settings, graph, version]


def _measure(studio: Studio, clip: Clip, systems: Sequence[System], strict: bool) -> list[Measured]:
    """The measurements of the clip; what cannot be done is told in them, unless it is the clean model's."""
    try:
        take = studio.take(clip)
    except DataError as problem:
        if strict:
            raise DataError(f"{clip.name} (line {clip.line}): {problem}") from problem
        # Of the folder: the cell may be read for the same recording in another one.
        said_of = str(problem).replace(str(clip.path), f"{clip.path.parent.name}/{clip.path.name}")
        return [Measured(clip.name, failed=said_of) for _ in systems]
    said: dict[str, Spoken] = {"": take.spoken}

    def speak(precision: str) -> Spoken:
        if precision not in said:
            said[precision] = studio.voice(precision).speak(clip.text)
        return said[precision]

    return [_attempt(studio, take, system, speak) for system in systems]


def _attempt(studio: Studio, take: Take, system: System, said: Callable[[str], Spoken]) -> Measured:
    try:
        return studio.measured(take, system, said)
    except (DataError, ModelError) as problem:
        if system == CLEAN:
            raise
        return Measured(take.clip.name, failed=str(problem))


def measure_systems(
    work: SpeechWork, clips: Sequence[Clip], store: Store, jobs: int = 1, progress: Progress = silent
) -> dict[System, tuple[Measured, ...]]:
    """The measurements of every system in the order of the clips; finished cells are not computed again."""
    cells = run(work, clips, store, jobs=jobs, progress=progress)
    found = {
        system: tuple(Measured(**plain) for plain in cells.read(n) if plain is not None)
        for n, system in enumerate(work.systems)
    }
    failed = {one.clip: one.failed for one in found.get(CLEAN, ()) if one.failed}
    if work.strict and failed:  # in cells that a run without --strict has written
        line = next(clip.line for clip in clips if clip.name in failed)
        name, problem = next(iter(failed.items()))
        raise DataError(f"{name} (line {line}): {problem}")
    return found
