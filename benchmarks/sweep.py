"""A sweep of 30 cells of a classifier against its inferences alone, and against the cells one by one.

    python benchmarks/sweep.py [--images 500] [--jobs 2] [--cells 30] [--model efflite0]

a  the sweep: `holdfast.noise.vision.sweep.sweep`, from nothing to all cells written
b  the distinct inferences alone: the same processes and threads, every tensor in memory before the clock
   runs; half of the images before the sweep and half after it, because a machine may have slow minutes
c  the cells one by one: an evaluation each, with as many processes

Wanted: a / b at most 1.4, c / a at least 1.4. With HOLDFAST_DATA (or ../shared/data) the model is efflite0 on
500 photographs; without, the shipped signs-class on the embedded scenes.
"""

from __future__ import annotations

import argparse
import csv
import json
import multiprocessing
import os
import platform
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast.core.dataset import Dataset, Entry
from holdfast.core.model import Model
from holdfast.core.pipeline import Pipeline, pipeline_of
from holdfast.core.registry import lookup
from holdfast.core.sources import versions
from holdfast.data.open import open_dataset
from holdfast.engine.executor import cores
from holdfast.engine.pipelines import distinct_tensors, input_stages
from holdfast.evaluate.run import EvaluationPlan, evaluate
from holdfast.graph.load import load_model
from holdfast.noise.vision.sweep import CLEAN, SweepPlan, Variant, sweep
from holdfast.stages.deployed import Calibration, DeployedInference
from holdfast.stages.families import family, option, options

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
BLOCK = 25  # images whose tensors (half a gigabyte) are in memory at once, in each process
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
CARDS = {
    "efflite0": "size = [224, 224]\nmean = [127, 127, 127]\nstd = [128, 128, 128]",
    "squeezenet10": 'size = [227, 227]\ncolour = "bgr"\nmean = [104, 117, 123]',
}
# The suite of a classifier in small: how many options of each family, and which first. What is not installed
# is left out, and other resizes fill up.
CELLS: dict[str, tuple[int, tuple[str, ...]]] = {
    "decode": (5, ("opencv", "fast-idct", "ffmpeg", "no-fancy-upsampling", "zune")),
    "colour": (4, ("nv12", "nv12-bilinear", "nv12-opencv", "nv12-swscale", "yuv444")),
    "precision": (6, ("fp16", "bf16", "int8", "int8-per-tensor", "int8-minmax", "int8-percentile")),
    "resize": (
        12,
        (
            "pillow-nearest", "pillow-box", "pillow-hamming", "pillow-bicubic", "pillow-lanczos",
            "opencv-bilinear", "opencv-nearest", "opencv-area", "opencv-bicubic", "opencv-lanczos", "square",
            "swscale-bilinear", "torch-nearest", "swscale-bicubic", "torch-bilinear",
        ),
    ),
}  # fmt: skip
# Noises come together in the field: two cells of a decoder with a resize.
TOGETHER = (("decode=ffmpeg", "resize=opencv-bilinear"), ("decode=fast-idct", "resize=opencv-area"))
CALIBRATION = 8  # images; how well they are chosen does not matter here


@dataclass(frozen=True)
class Time:
    """Wall and CPU seconds of this process and its children."""

    wall: float
    cpu: float


def subject(folder: Path, name: str) -> tuple[Model, Dataset]:
    """The model and the images: real ones if they are at hand."""
    data = Path(os.environ.get("HOLDFAST_DATA", ROOT.parent / "shared" / "data"))
    if not (data / "imagenet_sample").is_dir():
        return load_model("signs-class"), open_dataset("signs:0:500", task="classify")
    card = folder / f"{name}.toml"
    card.write_text(CARD.format(classes=", ".join(f'"{i}"' for i in range(1000)), input=CARDS[name]))
    return load_model(data / "models" / f"{name}.onnx", card), open_dataset(data / "imagenet_sample")


def chosen(model: Model, data: Dataset, cells: int, folder: Path) -> tuple[Variant, ...]:
    """The clean pipeline, pairs, and the first options of each family that are installed."""
    clean = pipeline_of(model.card)
    found = {CLEAN: clean}
    for pair in TOGETHER:
        chain = [option(label) for label in pair]
        if not any(o.missing for o in chain):
            found[" + ".join(pair)] = chain[1].noise(chain[0].noise(clean))
    calibration = Calibration(data.entries[:CALIBRATION], clean)
    for name, (count, first) in CELLS.items():
        offered = {o.name: o for o in options(family(name)) if not o.missing}
        ordered = [n for n in first if n in offered] + [n for n in offered if n not in first]
        room = cells - len(found) if name == "resize" else count
        for chosen_one in (offered[n] for n in ordered):
            pipeline = chosen_one.noise(clean)
            if isinstance(pipeline.infer, DeployedInference):
                infer = replace(pipeline.infer, calibration=calibration, folder=folder)
                infer.built(model)  # before the clock runs, once for a, b and c
                pipeline = pipeline.replace(infer=infer)
            if room > 0 and pipeline != clean:
                found[chosen_one.label] = pipeline
                room -= 1
    return tuple(Variant(name, pipeline) for name, pipeline in found.items())[:cells]


def timed(work: Callable[[], object]) -> Time:
    """How long it takes, children and all."""
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    began = time.perf_counter()
    work()
    wall = time.perf_counter() - began
    now = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu = sum(n.ru_utime + n.ru_stime - s.ru_utime - s.ru_stime for n, s in zip(now, spent, strict=True))
    return Time(wall, cpu)


def one_by_one(model: Model, data: Dataset, variants: tuple[Variant, ...], runs: Path, jobs: int) -> None:
    for number, variant in enumerate(variants):
        evaluate(EvaluationPlan(model, data, variant.pipeline, runs=runs / str(number), jobs=jobs))


def inferences(
    model: Model, pipelines: tuple[Pipeline, ...], entries: Sequence[Entry], processes: int
) -> tuple[Time, int]:
    """The time of the distinct inferences alone, and how many there are."""
    context = multiprocessing.get_context("spawn")
    barrier, answers = context.Barrier(processes), context.Queue()
    threads = max(1, cores() // processes)
    shares = [entries[n::processes] for n in range(processes)]
    longest = max(map(len, shares))
    staff = [
        context.Process(
            target=infer_share, args=(model, pipelines, share, longest, threads, barrier, answers)
        )
        for share in shares
    ]
    for process in staff:
        process.start()
    told = [answers.get(timeout=24 * 3600) for _ in staff]
    for process in staff:
        process.join()
    return Time(max(t[0] for t in told), sum(t[1] for t in told)), sum(t[2] for t in told)


def infer_share(model, pipelines, entries, longest, threads, barrier, answers) -> None:  # noqa: ANN001
    """Put wall and CPU seconds of this process's inferences, and their number, into the queue."""
    stages = input_stages(dict(enumerate(pipelines)))
    names = [pipeline.describe()["infer"] for pipeline in pipelines]
    runs = {}
    for name, pipeline in zip(names, pipelines, strict=True):
        if name not in runs:
            runs[name] = lookup("infer", pipeline.infer)(model, threads)
    wall = cpu = 0.0
    count = 0
    for at in range(0, longest, BLOCK):
        todo = []
        for entry in entries[at : at + BLOCK]:
            for ready in distinct_tensors(stages, model.card.input, entry.load(), {}):
                todo += [(ready.tensor, runs[name]) for name in {names[n] for n in ready.frames}]
        barrier.wait()
        began, spent = time.perf_counter(), time.process_time()
        for tensor, run in todo:
            run(tensor)
        cpu += time.process_time() - spent
        barrier.wait()  # the slower one's time counts
        wall += time.perf_counter() - began
        count += len(todo)
    answers.put((wall, cpu, count))


def machine() -> dict[str, str]:
    model = next(
        (
            line.split(":")[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.processor(),
    )
    return {"cpu": model, "cores": str(cores()), "load before": f"{os.getloadavg()[0]:.1f}", **versions()}


def write(rows: list[list[str]], summary: dict) -> None:
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / "sweep.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([["part", "wall_seconds", "cpu_seconds"], *rows])
    (RESULTS / "sweep.json").write_text(json.dumps(summary, indent=2) + "\n")
    table = "\n".join(f"| {part} | {wall} | {cpu} |" for part, wall, cpu in rows)
    where = summary["machine"]
    (RESULTS / "sweep.md").write_text(
        f"# A sweep, as measured\n\n`python benchmarks/sweep.py`: {summary['cells']} cells of "
        f"{summary['model']} over {summary['images']} images, "
        f"{summary['jobs']} processes of {summary['threads']} thread(s), on "
        f"{where['cpu']}, {where['cores']} cores, load {where['load before']} before it began.\n\n"
        f"| part | wall s | CPU s |\n|---|---|---|\n{table}\n\n"
        f"{summary['inferences']} distinct inferences for {summary['cells'] * summary['images']} "
        f"predictions. The sweep takes **{summary['a/b']:.2f} ×** the time of its inferences alone "
        "(wanted: at most 1.4) and is "
        f"**{summary['c/a']:.2f} ×** as fast as the cells one by one (wanted: at least 1.4). "
        f"In CPU seconds: {summary['a/b cpu']:.2f} and {summary['c/a cpu']:.2f}.\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--jobs", type=int, default=cores())
    parser.add_argument("--model", default="efflite0", choices=sorted(CARDS))
    parser.add_argument("--cells", type=int, default=30)
    parser.add_argument(
        "--skip-c", action="store_true", help="do not run the cells one by one; writes nothing"
    )
    asked = parser.parse_args()
    told = machine()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model, data = subject(folder, asked.model)
        data = data.first(asked.images)
        variants = chosen(model, data, asked.cells, folder / "rewritten")
        plan = SweepPlan(model, data, variants=variants, runs=folder / "a", jobs=asked.jobs)
        pipelines = tuple(v.pipeline for v in variants)
        before = inferences(model, pipelines, data.entries[::2], asked.jobs)
        a = timed(lambda: sweep(plan, lambda done, found: None))
        print(f"a  sweep of {len(variants)} cells      {a.wall:8.1f} s wall {a.cpu:8.1f} s CPU", flush=True)
        after = inferences(model, pipelines, data.entries[1::2], asked.jobs)
        b, count = Time(before[0].wall + after[0].wall, before[0].cpu + after[0].cpu), before[1] + after[1]
        print(f"b  {count} distinct inferences {b.wall:6.1f} s wall {b.cpu:8.1f} s CPU", flush=True)
        for half, (spent, number) in (("before", before), ("after", after)):
            print(f"   {half:6} {1e3 * spent.cpu / number:.2f} ms CPU each", flush=True)
        print(f"a / b  {a.wall / b.wall:.3f} (CPU {a.cpu / b.cpu:.3f})", flush=True)
        if asked.skip_c:
            return
        c = timed(lambda: one_by_one(model, data, variants, folder / "c", asked.jobs))
        print(f"c  one by one            {c.wall:8.1f} s wall {c.cpu:8.1f} s CPU")
        print(f"c / a  {c.wall / a.wall:.3f} (CPU {c.cpu / a.cpu:.3f})")
    parts = {"a: the sweep": a, "b: its distinct inferences alone": b, "c: the cells one by one": c}
    summary = {
        "model": model.name, "data": data.name, "images": len(data), "cells": len(variants),
        "jobs": asked.jobs,
        "threads": max(1, cores() // asked.jobs), "inferences": count,
        "seconds": {part: {"wall": round(t.wall, 2), "cpu": round(t.cpu, 2)} for part, t in parts.items()},
        "a/b": round(a.wall / b.wall, 3), "c/a": round(c.wall / a.wall, 3),
        "a/b cpu": round(a.cpu / b.cpu, 3), "c/a cpu": round(c.cpu / a.cpu, 3),
        "variants": [v.name for v in variants], "machine": told,
    }  # fmt: skip
    write([[part, f"{t.wall:.1f}", f"{t.cpu:.1f}"] for part, t in parts.items()], summary)
    if a.wall > 1.4 * b.wall or c.wall < 1.4 * a.wall:
        sys.exit("the sweep is slower than wanted")


if __name__ == "__main__":
    main()
