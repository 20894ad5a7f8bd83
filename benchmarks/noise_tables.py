"""The noise suite on real models and on the shipped ones: one table a data set, as in the paper.

    python benchmarks/noise_tables.py [imagenet] [coco128] [signs-detect] … [--images N] [--jobs N]
    python benchmarks/noise_tables.py … --restate

Writes benchmarks/results/noise-NAME.{json,csv,md}: every option with its interval, the paper's row a model,
and the versions. Real data is looked for in HOLDFAST_DATA or ../shared/data; without it only `signs`.
A run that was ended goes on (cells are kept in --runs). --restate reads stored results instead of measuring:
means leave out the options that are hypothetical today, and only a Combined with such an option is measured
again.
"""

from __future__ import annotations

import argparse
import datetime
import os
import shlex
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnx

from holdfast.core.sources import versions
from holdfast.data.open import open_dataset
from holdfast.engine.executor import progress
from holdfast.engine.store import to_json
from holdfast.evaluate.run import EvaluationPlan
from holdfast.graph.load import load_model
from holdfast.noise.suite import NoiseSelection
from holdfast.noise.vision.result import NoiseSuite, as_plain, open_suite
from holdfast.noise.vision.run import NoisePlan, measure, prepare, worst_options
from holdfast.noise.vision.tables import families_table, models_csv, models_table, options_table
from holdfast.report.tables import to_csv, to_markdown, to_text
from holdfast.stages.families import families, options

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
CARD = """\
task = "classify"
classes = [{classes}]

[input]
{input}
policy = "crop"
short_side = 256

[head]
name = "classifier"
"""
INPUTS = {
    "efflite0": "size = [224, 224]\nmean = [127, 127, 127]\nstd = [128, 128, 128]",
    "squeezenet10": 'size = [227, 227]\ncolour = "bgr"\nmean = [104, 117, 123]',
    "squeezenet10-224": 'size = [224, 224]\ncolour = "bgr"\nmean = [104, 117, 123]',
}
# Files with another input than they declare: at 227 the pools of squeezenet10 divide, at 224 they do not.
RESIZED = {"squeezenet10-224": ("squeezenet10", 224)}


@dataclass(frozen=True)
class Task:
    """Models of one data set; `spare` are images to calibrate on, if the data has none to spare."""

    models: tuple[str, ...]
    data: str
    spare: str | None = None


TASKS = {
    "imagenet": Task(("efflite0", "squeezenet10", "squeezenet10-224"), "imagenet_sample"),
    "coco128": Task(("yolox_nano", "nanodet_m", "FastestDet"), "coco128"),
    "signs-detect": Task(("signs-yolo",), "signs:0:300", "signs:1:100"),
    "signs-class": Task(("signs-class",), "signs:0:500", "signs:1:100"),
    "signs-single": Task(("signs-single",), "signs:0:500", "signs:1:100"),
    "signs-seg": Task(("signs-seg",), "signs:0:200", "signs:1:100"),
}


def shared() -> Path:
    """The folder of real models and images, which need not be there."""
    return Path(os.environ.get("HOLDFAST_DATA", ROOT.parent / "shared" / "data"))


def file_of(name: str, folder: Path) -> Path:
    """The model's file; with another size of input, a copy in the folder."""
    origin, side = RESIZED.get(name, (name, 0))
    path = shared() / "models" / f"{origin}.onnx"
    if not side:
        return path
    graph = onnx.load(path)
    for at in (2, 3):
        graph.graph.input[0].type.tensor_type.shape.dim[at].dim_value = side
    onnx.save(graph, folder / f"{name}.onnx")
    return folder / f"{name}.onnx"


def plan_of(name: str, task: Task, images: int | None, runs: Path, jobs: int) -> NoisePlan:
    """The suite of one model."""
    real = not task.data.startswith("signs")
    folder, card = Path(tempfile.mkdtemp()), None
    if name in INPUTS:
        card = folder / "card.toml"
        classes = ", ".join(f'"{i}"' for i in range(1000))
        card.write_text(CARD.format(classes=classes, input=INPUTS[name]))
    model = load_model(file_of(name, folder) if real else name, card)
    where = str(shared() / task.data) if real else task.data
    data = open_dataset(where, task=model.card.task, images=images)
    spare = open_dataset(task.spare, task=model.card.task) if task.spare else None
    return NoisePlan(EvaluationPlan(model, data, runs=runs, jobs=jobs), calibration_data=spare)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*", help=f"some of {', '.join(TASKS)}; all if none is named")
    parser.add_argument("--images", type=int, help="only the first N of each data set")
    parser.add_argument("--jobs", type=int, default=0)
    parser.add_argument("--runs", type=Path, default=Path("holdfast-runs"))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--restate", action="store_true", help="stored results by the rule of today")
    asked = parser.parse_args()
    for name in asked.tables or TASKS:
        task = TASKS[name]
        if not task.data.startswith("signs") and not (shared() / task.data).is_dir():
            print(f"{name}: no data at {shared() / task.data}; left out", file=sys.stderr)
            continue
        stored = (asked.out / f"noise-{name}").with_suffix(".json")
        if asked.restate:
            write(restated(stored, task, asked.runs, asked.jobs), stored.with_suffix(""))
            continue
        began = time.perf_counter()
        plans = [plan_of(model, task, asked.images, asked.runs, asked.jobs) for model in task.models]
        models = tuple(measure(prepare(plan), progress) for plan in plans)
        created = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        command = shlex.join(["python", "benchmarks/noise_tables.py", name])
        seconds = round(time.perf_counter() - began, 1)
        suite = NoiseSuite(task.data, models, command, created, seconds, versions())
        write(suite, asked.out / f"noise-{name}")


def restated(stored: Path, task: Task, runs: Path, jobs: int) -> NoiseSuite:
    """The stored suite without hypothetical options in means and Combined, as the suite has it today."""
    suite = open_suite(stored)
    known = {option.label: option for family in families() for option in options(family)}
    models = []
    for model in suite.models:
        rows = tuple(replace(r, hypothetical=known[r.label].hypothetical) for r in model.rows)
        combined, notes = model.combined, model.notes
        if combined and any(known[label].hypothetical for label in combined.option.split(" + ")):
            only = tuple(option.label for option in worst_options(rows, known))
            plan = replace(plan_of(model.model, task, None, runs, jobs), selection=NoiseSelection(only=only))
            combined = measure(prepare(plan), progress).combined
            notes = (*notes, f"Combined without hypothetical options: measured {datetime.date.today()}")
        models.append(replace(model, rows=rows, combined=combined, notes=notes))
    return replace(suite, models=tuple(models))


def lean(told: Any) -> Any:
    """The same without what only a run beside its cells needs."""
    if isinstance(told, dict):
        return {key: lean(value) for key, value in told.items() if key not in ("alignment", "cells")}
    return [lean(value) for value in told] if isinstance(told, list | tuple) else told


def write(suite: NoiseSuite, stem: Path) -> None:
    """Nothing; the table is printed and in three files."""
    print(to_text(models_table(suite)))
    stem.with_suffix(".json").write_bytes(to_json(lean(as_plain(suite)), indent=True))
    stem.with_suffix(".csv").write_text(to_csv(models_csv(suite)))
    tables = [models_table(suite)]
    for model in suite.models:
        tables += [families_table(model), options_table(model)]
    notes = [f"{m.model}: 8 bits calibrated on {m.calibration}" for m in suite.models if m.calibration]
    made = f"`{suite.command}`, made {suite.created} in {suite.seconds:.0f} s."
    made += "".join(f" {m.model}: {n}." for m in suite.models for n in m.notes if n.startswith("Combined "))
    head = f"# System noise on {suite.data}\n\n{made}"
    parts = [head, *(f"{note}." for note in notes), *map(to_markdown, tables)]
    stem.with_suffix(".md").write_text("\n\n".join(parts) + "\n")


if __name__ == "__main__":
    main()
