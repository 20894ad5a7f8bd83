"""What a suite of speech would cost: cells, time and disk, from a timed sample of its own clips."""

from __future__ import annotations

import dataclasses
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from holdfast.engine.store import Store
from holdfast.noise.speech.cells import measure_systems
from holdfast.noise.speech.run import SpeechPlan, prepare

SAMPLE = 2  # clips: each is seconds of sound through every system


@dataclass(frozen=True)
class SpeechEstimate:
    """How many systems and cells, and about how many seconds and bytes, the whole suite would take."""

    model: str
    clips: int
    systems: int
    cells: int
    seconds: float
    bytes: int
    sample: int
    left_out: tuple[str, ...]  # options that would not be run, and why


def estimate(plan: SpeechPlan) -> SpeechEstimate:
    """The estimate, from some clips run now through every system in one process; nothing of it is kept."""
    with tempfile.TemporaryDirectory(prefix="holdfast-estimate-") as folder:
        prepared = prepare(dataclasses.replace(plan, runs=Path(folder)))
        clips = plan.data.clips[: min(SAMPLE, len(plan.data))]
        began = time.perf_counter()
        measure_systems(prepared.work(prepared.systems), clips, Store(Path(folder) / "cells"))
        seconds = time.perf_counter() - began
        written = sum(f.stat().st_size for f in Path(folder).rglob("*.json") if f.is_file())
    times = len(plan.data) / len(clips)
    left = tuple(f"{a.option.label}: {a.status}, {a.note}" for a in prepared.asked if a.system is None)
    systems = len(prepared.systems)
    return SpeechEstimate(
        plan.model.name, len(plan.data), systems, systems * len(plan.data), seconds * times,
        round(written * times), len(clips), left,
    )  # fmt: skip
