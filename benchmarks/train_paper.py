"""What helps against system noise: the paper's section 4.3 (Fig. 4, Tables 6 to 9) on two small networks.

    python benchmarks/train_paper.py [matrix] [families] [tent] [learned] [--seeds 3] [--jobs 2] [--work …]

Data: `far`, signs of 25 to 50 % of a picture's side, 6,000 to train on and 2,000 others to test on, JPEG
4:2:0 of quality 10 to 40, 2 to 3 times as large as what the network sees. Networks: that of signs-class and a
narrow one of depthwise convolutions, both at 48 pixels and with their batch normalisation kept. Every row of
a table starts from the same weights (`models.signs.start`: signs drawn at the network's scale, no JPEG, no
resize) and takes the same steps; rows of one seed see the same images in the same order.

Everything is kept in --work: a run that was ended goes on, and no trained row is trained again. Writes
benchmarks/results/train-*.csv with machine, date and commit, and train-*.md with the tables.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast.core.dataset import Dataset
from holdfast.core.fingerprint import of_file
from holdfast.core.model import Model
from holdfast.core.registry import names
from holdfast.data.open import open_dataset
from holdfast.engine.executor import progress
from holdfast.noise.suite import spread
from holdfast.report.tables import Cell, Table, to_csv, to_markdown, to_text
from holdfast.train import tables
from holdfast.train.mitigate.adapt import Adaptation, TentResult, adapt
from holdfast.train.mitigate.matrix import families, matrix, verdict
from holdfast.train.mitigate.rows import (
    DECODERS,
    EVERY,
    LEARNED,
    RESIZES,
    Over,
    TrainingRecipe,
    choice_of,
    matrix_rows,
    mitigations,
)
from holdfast.train.mitigate.training import Training, TrainingJob, train, training_jobs
from models.signs.far import write_far
from models.signs.start import NETS, start

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
TRAIN_SEED, TEST_SEED = 1, 0
PARTS = ("matrix", "families", "tent", "learned")


@dataclass(frozen=True)
class Size:
    """How large the experiment is."""

    train: int = 6000
    test: int = 2000
    noise: int = 600  # test images of the noise suites and of TENT
    steps: int = 300
    start_steps: int = 1500
    start_pictures: int = 12000


SMALL = Size(train=160, test=80, noise=40, steps=4, start_steps=6, start_pictures=200)


@dataclass(frozen=True)
class Bench:
    """Where and how it is run."""

    work: Path
    out: Path
    jobs: int
    size: Size
    nets: tuple[str, ...]
    began: float

    def say(self, text: str) -> None:
        """Nothing; the text is on standard error with the minutes since the beginning."""
        print(f"[{(time.monotonic() - self.began) / 60:5.1f} min] {text}", file=sys.stderr, flush=True)

    def data(self, part: str) -> Dataset:
        """The images of a part, drawn now unless they are there."""
        seed, count = (TRAIN_SEED, self.size.train) if part == "train" else (TEST_SEED, self.size.test)
        folder = self.work / "far" / part
        pieces = [range(at, min(at + 200, count)) for at in range(0, count, 200)]
        if sum(1 for _ in folder.glob("*/*.jpg")) < count:
            with ProcessPoolExecutor(self.jobs) as staff:
                list(staff.map(write_far, *zip(*((folder, seed, piece) for piece in pieces), strict=True)))
        made = open_dataset(folder, task="classify")
        return replace(made, name=f"far:{seed}:{count}")

    def some(self) -> Dataset:
        """Fewer of the test images, spread over all classes."""
        whole = self.data("test")
        count = min(self.size.noise, len(whole))
        return replace(whole, name=f"{whole.name} ({count})", entries=spread(whole.entries, count))

    def training(self, name: str) -> Training:
        """How each row of a network is trained."""
        size = self.size
        model: Model = start(
            name, self.work / "start", 0, self.say,
            steps=size.start_steps, pictures=size.start_pictures, jobs=self.jobs,
        )  # fmt: skip
        batch = min(64, size.train // 4)
        return Training(
            model, self.data("train"), self.work, size.steps, batch, 3e-3, 3, self.jobs, EVERY
        )  # fmt: skip

    def write(self, name: str, table: Table, shown: Table, words: str = "") -> None:
        """Nothing; the numbers are in a CSV file with where and when, the table in a Markdown file."""
        print(f"{to_text(shown)}\n{words}\n", flush=True)
        facts: dict[str, Cell] = {"seconds": round(time.monotonic() - self.began), **stamp()}
        columns = [*table.columns, *facts]
        rows = [[*row, *facts.values()] for row in table.rows]
        self.out.mkdir(parents=True, exist_ok=True)
        (self.out / f"train-{name}.csv").write_text(to_csv(Table(columns, rows)))
        note = f"{words}\n\n" if words else ""
        when = f"Made {facts['date']} at commit {facts['commit']} on {facts['machine']}.\n"
        (self.out / f"train-{name}.md").write_text(f"{to_markdown(shown)}\n\n{note}{when}")


def stamp() -> dict[str, str]:
    """Where, when and from what the numbers were made."""
    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    model = next((line.split(":", 1)[1].strip() for line in text.splitlines() if "model name" in line), "")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    git = ["git", "rev-parse", "--short", "HEAD"]
    asked = subprocess.run(git, capture_output=True, text=True, cwd=ROOT)
    return {
        "machine": f"{model or platform.machine()}, {cores} cores, no GPU",
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="minutes"),
        "commit": asked.stdout.strip() or "unknown",
    }


def matrices(bench: Bench, name: str, seeds: Sequence[int]) -> None:
    """Nothing; Tables 7 and 8 of one network are written."""
    training, tested = bench.training(name), bench.data("test")
    pairs: tuple[tuple[Over, tuple[str, ...]], ...] = (("resize", RESIZES), ("decode", DECODERS))
    for over, known in pairs:
        rows = matrix_rows(training.model, over, known, known)
        models = train(training, training_jobs(rows, seeds), bench.say)
        found = matrix(training, tested, over, models, known, bench.say)
        bench.write(f"{over}-{name}", tables.matrix_csv(found), tables.matrix_table(found), verdict(found))


def learned(bench: Bench, name: str, seeds: Sequence[int]) -> None:
    """Nothing; Table 9 of one network is written: the decoders' rows and that of the learned one."""
    if LEARNED not in names("decode"):
        bench.say("no learned decoder is there: Table 9 is left out")
        return
    training, tested = bench.training(name), bench.data("test")
    rows = matrix_rows(training.model, "decode", DECODERS, DECODERS)
    models = dict(train(training, training_jobs(rows, seeds), bench.say))
    weights = ROOT / "src" / "holdfast" / "models" / "decoder" / "restore.onnx"
    apart = replace(training, folder=bench.work / f"learned-{of_file(weights)[:8]}", extra_choices=())
    row = TrainingRecipe(LEARNED, (choice_of(training.model, "decode", LEARNED),))
    models |= train(apart, training_jobs((row,), seeds), bench.say)
    found = matrix(apart, tested, "decode", models, (*DECODERS, LEARNED), bench.say)
    shown = tables.matrix_table(found)
    bench.write(f"learned-{name}", tables.matrix_csv(found), shown, verdict(found))


def compared(bench: Bench, name: str, seeds: Sequence[int]) -> None:
    """Nothing; the numbers of Fig. 4 of one network are written."""
    training = bench.training(name)
    models = train(training, training_jobs(mitigations(training.model), seeds[:1]), bench.say)
    found = families(training, models, bench.some(), bench.work / "runs", watch=progress)
    bench.write(
        f"families-{name}", tables.families_csv(found, name), tables.families_table(found, name)
    )  # fmt: skip


def tented(bench: Bench, seeds: Sequence[int]) -> None:
    """Nothing; Table 6 of both networks, trained by the default pair, is written."""
    found: list[TentResult] = []
    for name in bench.nets:
        training = bench.training(name)
        usual = matrix_rows(training.model, "resize", RESIZES, RESIZES)[0]
        order = TrainingJob(usual, seeds[0])
        model = replace(train(training, [order], bench.say)[order], name=name)
        tested = bench.some()
        how = Adaptation(batch=min(100, len(tested)))
        found.append(adapt(model, tested, bench.work, how, bench.say, bench.jobs))
    bench.write("tent", tables.tent_csv(found), tables.tent_table(found))


def run(bench: Bench, parts: Sequence[str], seeds: int) -> None:
    """Nothing; all tables are written: first everything with one seed, then the matrices with more."""
    each: dict[str, Callable[[Bench, str, Sequence[int]], None]] = {
        "matrix": matrices, "families": compared, "learned": learned,
    }  # fmt: skip
    for part in parts:
        if part == "tent":
            tented(bench, (0,))
            continue
        for name in bench.nets:
            each[part](bench, name, (0,))
    for count in range(2, seeds + 1):
        for part in (p for p in parts if p in ("matrix", "learned")):
            for name in bench.nets:
                each[part](bench, name, range(count))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", help=f"some of {', '.join(PARTS)}; all if none is named")
    parser.add_argument("--seeds", type=int, default=3, help="trainings a row of the matrices")
    parser.add_argument("--nets", nargs="+", choices=list(NETS), default=list(NETS))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--steps", type=int, help="of training a row")
    parser.add_argument("--small", action="store_true", help="a miniature: all paths, no meaning")
    parser.add_argument("--work", type=Path, default=Path("holdfast-train"))
    parser.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args()
    unknown = sorted(set(asked.parts) - set(PARTS))
    if unknown:
        parser.error(f"unknown part {unknown[0]!r}; expected some of {', '.join(PARTS)}")
    size = SMALL if asked.small else Size()
    size = replace(size, steps=asked.steps) if asked.steps else size
    bench = Bench(asked.work, asked.out, asked.jobs, size, tuple(asked.nets), time.monotonic())
    run(bench, [part for part in PARTS if not asked.parts or part in asked.parts], asked.seeds)
    bench.say("all tables are written")


if __name__ == "__main__":
    main()
