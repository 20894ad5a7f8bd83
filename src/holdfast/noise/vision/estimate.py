"""What a suite would cost: cells, time and disk, from a timed sample of its own images."""

from __future__ import annotations

import dataclasses
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from holdfast.evaluate.result import CELLS
from holdfast.evaluate.run import Plan
from holdfast.noise.vision.calibration import spread
from holdfast.noise.vision.run import NoisePlan, Prepared, prepare
from holdfast.noise.vision.sweep import SweepPlan, steps, sweep, unfinished

SAMPLE = 6  # images: enough to time, few enough to wait for


@dataclass(frozen=True)
class Estimate:
    """How many variants and cells are left, and about how many seconds and bytes they would take."""

    model: str
    images: int
    variants: int
    cells: int  # that are not finished yet
    whole: int  # cells in all
    seconds: float
    bytes: int
    sample: int
    left_out: tuple[str, ...]  # options that would not be run, and why


def estimate(noise: NoisePlan) -> Estimate:
    """The estimate, from some images run now through every variant in one process.

    Graphs are rewritten where the run keeps them, if it has begun; else nothing of them stays.
    """
    with tempfile.TemporaryDirectory(prefix="holdfast-estimate-") as folder:
        runs = noise.plan.runs if (noise.plan.runs / CELLS).is_dir() else Path(folder) / "runs"
        prepared = prepare(dataclasses.replace(noise, plan=dataclasses.replace(noise.plan, runs=runs)))
        return _estimated(noise.plan, prepared, Path(folder))


def _estimated(plan: Plan, prepared: Prepared, folder: Path) -> Estimate:
    variants = prepared.variants
    left = tuple(f"{a.option.label}: {a.status}, {a.note}" for a in prepared.asked if a.variant is None)
    images = len(plan.dataset)
    plan_all = SweepPlan(plan.model, plan.dataset, variants, plan.runs, strict=plan.strict)
    whole, cells = steps(plan_all), unfinished(plan_all)
    if cells == 0:
        return Estimate(plan.model.name, images, len(variants), 0, whole, 0.0, 0, 0, left)
    few = spread(plan.dataset.entries, min(SAMPLE, len(plan.dataset)))
    dataset = dataclasses.replace(plan.dataset, entries=few)
    sweep(SweepPlan(plan.model, dataset.first(1), variants, folder / "warm"), lambda _d, _r: None)
    began = time.perf_counter()
    sweep(SweepPlan(plan.model, dataset, variants, folder / "timed"), lambda _d, _r: None)
    seconds = time.perf_counter() - began
    written = sum(f.stat().st_size for f in (folder / "timed").rglob("*") if f.is_file())
    times = images / len(few) * cells / whole  # what variants share is counted as if each had its part of it
    return Estimate(
        plan.model.name, images, len(variants), cells, whole, seconds * times, round(written * times),
        len(few), left,
    )  # fmt: skip
