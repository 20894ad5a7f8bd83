"""The cells of a suite: one a system and clip, named by all that can change it, never made twice."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, cast

import orjson

from holdfast.core import fingerprint
from holdfast.core.dataset import Entry
from holdfast.core.errors import DataError, ModelError
from holdfast.core.registry import part
from holdfast.core.sources import code_of
from holdfast.engine.executor import Progress, execute
from holdfast.engine.store import Store, to_json
from holdfast.engine.versions import versions
from holdfast.noise.speech.clip import Measured, Studio, Take
from holdfast.noise.speech.clips import clip_key
from holdfast.noise.speech.model.acoustic import Spoken
from holdfast.noise.speech.model.vocoder import Vocoder
from holdfast.noise.speech.options import CLEAN, System
from holdfast.noise.speech.rewritten import Graphs
from holdfast.noise.speech.system import Clip, SpeechModel


@dataclass(frozen=True)
class Job:
    """Everything a process needs to work on any clip: the systems, and the clips each is not tested on."""

    model: SpeechModel
    systems: tuple[System, ...]
    graphs: Mapping[str, Graphs]  # by precision
    vocoder: Vocoder
    store: Store
    without: Mapping[str, frozenset[str]] = field(default_factory=dict)  # precision -> names of clips
    strict: bool = False
    modules: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()

    def on(self, threads: int) -> Job:
        """The same work: one thread always, for sums must not depend on the number of cores."""
        return self

    def setups(self) -> tuple[str, ...]:
        """A hash for each system of all that can change a number, but for the clip."""
        known = [self.model.sha256, self.model.card, self.vocoder, code_of("speech"), versions()]
        return tuple(fingerprint.of([known, _facts(s, self.graphs)]) for s in self.systems)

    def work(self, state: Any, shard: Sequence[Any]) -> tuple[tuple[str, ...], Any, tuple[int, int]]:
        """The key of each system's cell of the clip ("" if not tested on it), and how far that brings it."""
        paths = {name: dict(graphs.paths) for name, graphs in self.graphs.items()}
        studio, setups = state or (Studio(self.model, self.vocoder, paths), self.setups())
        (clip,) = shard
        content = clip_key(clip)
        keys = [
            ""
            if clip.name in self.without.get(s.precision, ())
            else fingerprint.of([setup, clip.name, content])
            for s, setup in zip(self.systems, setups, strict=True)
        ]
        missing = [n for n, key in enumerate(keys) if key and self.store.get(key) is None]
        if missing:
            made = _made(studio, clip, [self.systems[n] for n in missing], self.strict)
            for n, one in zip(missing, made, strict=True):
                self.store.put(keys[n], to_json(dataclasses.asdict(one)))
        return tuple(keys), (studio, setups), (len(keys), len(keys) - len(missing))


def _facts(system: System, graphs: Mapping[str, Graphs]) -> list[Any]:
    operator = part("stft", system.operator)
    settings = [part("spectrum", name).function for name in system.settings]
    graph = graphs[system.precision].key if system.precision else ""
    needs = str(operator.facts.get("needs", ""))
    version = ""
    with contextlib.suppress(metadata.PackageNotFoundError):
        version = metadata.version(needs) if needs else ""
    return [system, operator.function, operator.facts["inverse"], settings, graph, version]


def _made(studio: Studio, clip: Clip, systems: Sequence[System], strict: bool) -> list[Measured]:
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


def swept(
    job: Job, clips: Sequence[Clip], jobs: int, progress: Progress
) -> dict[System, tuple[Measured, ...]]:
    """The measurements of every system in the order of the clips; finished cells are not made again."""
    # The executor hands entries on and asks nothing of them.
    rows = execute(job, cast("Sequence[Entry]", clips), jobs, progress, size=1)
    found: dict[System, tuple[Measured, ...]] = {}
    for place, system in enumerate(job.systems):
        cells = [_read(job.store, keys[place]) for keys in rows if keys[place]]
        found[system] = tuple(cells)
    failed = {one.clip: one.failed for one in found.get(CLEAN, ()) if one.failed}
    if job.strict and failed:  # in cells that a run that was not has left
        line = next(clip.line for clip in clips if clip.name in failed)
        name, problem = next(iter(failed.items()))
        raise DataError(f"{name} (line {line}): {problem}")
    return found


def _read(store: Store, key: str) -> Measured:
    data = store.get(key)
    if data is None:
        raise DataError(f"{store.path(key)}: a finished cell is gone or damaged; run the same command again")
    return Measured(**orjson.loads(data))
