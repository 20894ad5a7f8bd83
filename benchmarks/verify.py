"""VNN-COMP benchmarks by `holdfast vnncomp run`, each instance a fresh process at its official limit.

    python benchmarks/verify.py            a stratified sample of 60 instances: about an hour on two cores
    python benchmarks/verify.py acasxu     all 186 instances of one benchmark (or of several)

Results go to benchmarks/results: a csv (one row an instance, as measured), a json (the machine, the versions,
the load) and the table that is printed. A run that was ended goes on; --fresh begins anew.
The benchmarks are looked for in HOLDFAST_DATA/vnncomp, or in ../shared/data/vnncomp beside the repository.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from holdfast.report.tables import Cell, Column, Table, to_markdown, to_text
from holdfast.verify.vnncomp.instances import Instance, limited, read_instances, sampled
from holdfast.verify.vnncomp.page import disagreement_table
from holdfast.verify.vnncomp.rules import RULES
from holdfast.verify.vnncomp.run import BenchmarkPlan, InstanceProgress, run, witness_folder
from holdfast.verify.vnncomp.score import JudgedInstance, Scoreboard, ToolScore, score

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
LIBRARIES = ("holdfast", "numpy", "onnx", "onnxruntime", "torch", "numba", "llvmlite", "highspy")

# How many of each benchmark make the sample of 60. Not in proportion: an unsolved instance of oval21 takes
# twelve minutes, one of test a second, and all of it is to take about an hour.
SAMPLE = {"test": 5, "cctsdb_yolo": 15, "mnistfc": 15, "cifar10_resnet": 11, "eran": 11, "oval21": 3}
SEED = 0

# Solved and mean seconds as published, on the organisers' machines (2021: GPU tools on one V100).
SOURCES = (
    "published: VNN-COMP 2021, Bak, Liu, Johnson, arXiv:2109.00498; cctsdb_yolo: VNN-COMP 2023 "
    "(alpha-beta-CROWN) and 2025 (PyRAT), the organisers' result tables"
)
PUBLISHED = {
    "acasxu": (186, {"alpha-beta-CROWN": "186, 11.2 s", "VeriNet": "186, 3.7 s", "ERAN": "171",
                     "oval": "185", "Marabou": "183, 2.2 s", "nnenum": "186, 1.5 s"}),
    "cifar10_resnet": (72, {"alpha-beta-CROWN": "58, 40 s", "VeriNet": "48", "ERAN": "43", "Marabou": "39"}),
    "eran": (72, {"alpha-beta-CROWN": "64, 70 s", "VeriNet": "49", "ERAN": "47", "oval": "21",
                  "Marabou": "19"}),
    "mnistfc": (90, {"alpha-beta-CROWN": "70, 51 s", "VeriNet": "60", "ERAN": "56", "oval": "58",
                     "Marabou": "54", "nnenum": "47"}),
    "oval21": (30, {"alpha-beta-CROWN": "15, 39 s", "VeriNet": "14", "ERAN": "9", "oval": "15",
                    "Marabou": "7", "nnenum": "4"}),
    "cctsdb_yolo": (39, {"alpha-beta-CROWN": "39, 7.7 s", "PyRAT": "39, 48.6 s"}),
}  # fmt: skip
PEERS = ("alpha-beta-CROWN", "VeriNet", "ERAN", "oval", "Marabou", "nnenum", "PyRAT")


@dataclass(frozen=True)
class Task:
    """What is run, and under which name its results are kept."""

    name: str
    instances: tuple[Instance, ...]
    votes: tuple[Path, ...]


def data_folder() -> Path:
    """The folder of the benchmarks, or the end with one line."""
    folder = Path(os.environ.get("HOLDFAST_DATA", ROOT.parent / "shared" / "data")) / "vnncomp"
    if not folder.is_dir():
        raise SystemExit(f"no benchmarks at {folder}: set HOLDFAST_DATA to the folder that holds vnncomp")
    return folder


def task_of(folder: Path, names: list[str], seed: int) -> Task:
    """All instances of the named benchmarks, or the sample if none is named."""
    chosen: list[Instance] = []
    for name in names or SAMPLE:
        instances = read_instances(folder / name)
        chosen += instances if names else sampled(instances, SAMPLE[name], seed)
    votes = tuple(v for name in names or SAMPLE if (v := folder / name / "votes.csv").is_file())
    name = "-".join(names) or ("sample" if seed == SEED else f"sample-{seed}")
    return Task(name, tuple(chosen), votes)


def machine() -> dict[str, object]:
    """What the figures were measured on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        names = {line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")}
    except OSError:
        names = set()
    return {
        "processor": ", ".join(sorted(names)) or platform.processor() or "unknown",
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in LIBRARIES},
    }


def commit() -> str:
    """The state of the source that was run; a + says that it had changes."""
    told = subprocess.run(
        ["git", "describe", "--always", "--dirty=+"],  # noqa: S607
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return told.stdout.strip() or "unknown"


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def now() -> dict[str, object]:
    """The time and the load of the machine: others may be at work on it."""
    moment = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {"at": moment, "load": [round(load, 2) for load in os.getloadavg()]}


def write_about(path: Path, about: dict[str, object], part: dict[str, object] | None) -> None:
    """Nothing; how the results came about is on disk, each part of a run that was interrupted by itself."""
    before = json.loads(path.read_text())["parts"] if path.exists() else []
    path.write_text(json.dumps({**about, "parts": before + ([part] if part else [])}, indent=2) + "\n")


def tell(step: InstanceProgress) -> None:
    """Nothing; one line for each finished instance."""
    row = step.row
    names = " ".join(Path(name).stem for name in (row.network, row.spec))
    print(
        f"{step.done}/{step.total} {row.category} {names}: {row.result} {row.seconds:.2f} s, "
        f"{row.cpu_seconds or 0:.2f} CPU s, {row.engine}; about {step.left / 60:.0f} min left",
        file=sys.stderr,
        flush=True,
    )


def table(made: Scoreboard) -> Table:
    """Ours beside what was published, one row a benchmark."""
    columns: list[Column | str] = [
        "benchmark", "solved", "holds", "violated", "wrong", "against votes", Column("mean s", 2),
        Column("CPU s, all", 1), *PEERS,
    ]  # fmt: skip
    rows: list[list[Cell]] = []
    for line in made.lines:
        against = sum(_against(one) for one in made.instances if one.category == line.category)
        of, peers = PUBLISHED.get(line.category, (0, {}))
        shown = [_published(peers[peer], of) if peer in peers else None for peer in PEERS]
        rows.append([
            line.category, f"{line.solved} of {line.instances}", line.holds, line.violated, line.wrong,
            against, line.seconds, line.cpu_seconds, *shown,
        ])  # fmt: skip
    rows.append(_sum(made.lines, sum(_against(one) for one in made.instances)))
    return Table(columns, rows, f"holdfast and what was published: solved, mean seconds. {SOURCES}")


def _published(said: str, of: int) -> str:
    """A published figure with the number of instances: 58/72, 40 s."""
    solved, *seconds = said.split(", ")
    return ", ".join([f"{solved}/{of}", *seconds])


def _sum(lines: tuple[ToolScore, ...], against: int) -> list[Cell]:
    solved, of = sum(line.solved for line in lines), sum(line.instances for line in lines)
    spent = sum((line.seconds or 0.0) * line.solved for line in lines)
    cpu = sum(line.cpu_seconds or 0.0 for line in lines)
    counts = [sum(getattr(line, name) for line in lines) for name in ("holds", "violated", "wrong")]
    mean = spent / solved if solved else None
    return ["all", f"{solved} of {of}", *counts, against, mean, cpu, *[None] * len(PEERS)]


def _against(one: JudgedInstance) -> bool:
    """Whether our answer to an instance contradicts the majority of the tools of 2021."""
    said = one.answers.get("holdfast")
    majority = one.votes.majority if one.votes else None
    return bool(said and majority and said.status in ("holds", "violated") and said.status != majority)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("benchmark", nargs="*", help="run these as a whole, instead of the sample")
    parser.add_argument("--seed", type=int, default=SEED, help="which sample")
    parser.add_argument(
        "--limit", type=float, help="no instance gets more than so many seconds (not official)"
    )
    parser.add_argument("--jobs", type=int, default=1, help="instances side by side (official: 1)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the folder of the results")
    parser.add_argument("--fresh", action="store_true", help="forget what was run before")
    options = parser.parse_args()
    task = task_of(data_folder(), options.benchmark, options.seed)
    options.out.mkdir(parents=True, exist_ok=True)
    out = options.out / f"{task.name}.csv"
    if options.fresh:
        for file in (out, out.with_suffix(".json")):
            file.unlink(missing_ok=True)
        shutil.rmtree(witness_folder(out), ignore_errors=True)
    begun = now()
    chosen = limited(task.instances, most=options.limit)
    steps: list[InstanceProgress] = []

    def note(step: InstanceProgress) -> None:
        steps.append(step)
        tell(step)

    run(BenchmarkPlan(tuple(chosen), out, options.jobs), note)
    made = score([str(out)], RULES["2025"], task.votes)
    about = {
        "instances": len(chosen),
        "sample": None if options.benchmark else {"of each": SAMPLE, "seed": options.seed},
        "limits": "official" if options.limit is None else f"at most {options.limit:g} s",
        "jobs": options.jobs,
        "machine": machine(),
    }
    part = {"run": len(steps), "begun": begun, "ended": now(), "commit": commit()}
    write_about(out.with_suffix(".json"), about, part if steps else None)
    found = disagreement_table(made)
    parts = [table(made), *([found] if found.rows else [])]
    out.with_suffix(".md").write_text("\n\n".join(map(to_markdown, parts)) + "\n")
    print("\n\n".join(map(to_text, parts)))
    print(f"\nwritten: {out}, {out.with_suffix('.json').name}, {out.with_suffix('.md').name}")
    if not found.rows:
        print("no answer contradicts a majority, and every counterexample replays")
    if any(line.wrong for line in made.lines):
        raise SystemExit("some answers are wrong")


if __name__ == "__main__":
    main()
