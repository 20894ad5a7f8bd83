"""Every position of a fixed patch: `patchbench evaluate` against ONNX Runtime one by one, in one run.

    python benchmarks/positions.py [--bench ../shared/data/vnncomp/cctsdb_yolo] [--patch 1 --patch 3]
                                   [--jobs 2] [--rounds 3] [--out benchmarks/results/positions.md]

One by one: the user's file as it is, with a batch of one, for each position. Batches: what `holdfast
patchbench evaluate` does. The network runs on 64 pictures at once; every position near the threshold, the
smallest output and a sample are run again one by one. Both begin with the same tensors. The largest
difference is over all positions. Rounds alternate, and the best of each is kept, because other work on the
machine only adds time.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from holdfast.core.model import Network as File
from holdfast.core.pipeline import place
from holdfast.core.types import Floats
from holdfast.data.open import open_dataset
from holdfast.graph.inspect import read_proto
from holdfast.graph.load import load_model
from holdfast.patchbench.folder import instances, open_benchmark
from holdfast.patchbench.positions import files
from holdfast.patchbench.positions.files import Network, effect, open_instance, open_network
from holdfast.patchbench.positions.models import map_positions, open_detector, read
from holdfast.patchbench.positions.sweep import SafetyRule, pasted
from holdfast.report.tables import Column, Table, to_markdown
from holdfast.stages.decode.libjpeg import pillow
from holdfast.stages.resize.libraries import pillow_bilinear
from holdfast.verify.vnnlib import property_of, read_vnnlib

Way = Callable[[int], Floats]  # with so many threads, the whole map


@dataclass(frozen=True)
class Case:
    """A network, a picture and a patch, and two ways to its map."""

    name: str
    patch: int
    positions: int
    ways: dict[str, Way]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bench", type=Path, help="the published CCTSDB-YOLO folder, for its detector")
    parser.add_argument("--patch", type=int, action="append")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    sizes = asked.patch or [1, 3, 8]
    rows = []
    for case in cases(sizes, asked.bench):
        rows += measured(case, asked.jobs, asked.rounds)
        print(*rows[-2:], sep="\n", flush=True)
    text = report(rows, asked.jobs)
    print(text)
    if asked.out:
        asked.out.write_text(text)


def cases(sizes: list[int], bench: Path | None) -> Iterator[Case]:
    yield from (model_case(size) for size in sizes)
    if bench is not None:
        for size in {1, 3}.intersection(sizes):
            yield file_case(bench, size)


def model_case(size: int) -> Case:
    """The shipped detector on an embedded picture."""
    detector = open_detector(load_model("signs-single"))
    entry = open_dataset("signs:0:1", task="single").entries[0]
    picture = place(pillow(entry.load().data), detector.model.card.input, pillow_bilinear)[0]
    patch = np.zeros((size, size, 3), np.uint8)
    clean, content = detector.tensor(picture)[None], detector.tensor(patch)
    target, side = detector.predict(clean), 65 - size
    spots = np.argwhere(np.ones((side, side), bool))

    def alone(share: np.ndarray) -> list[np.ndarray]:
        made = [detector.exact(pasted(clean, content, spot[None])) for spot in share]
        return [np.concatenate([raw[name] for raw in made]) for name in detector.batches.outputs]

    def one_by_one(jobs: int) -> Floats:
        rows = spread(alone, np.array_split(spots, 64), jobs)
        return read(detector, [np.concatenate(parts) for parts in zip(*rows, strict=True)], target)[0]

    ways: dict[str, Way] = {
        "one by one": one_by_one,
        "batches": lambda jobs: map_positions(detector, picture, patch, target, jobs=jobs).outputs,
    }
    return Case("signs-single", size, len(spots), ways)


def file_case(folder: Path, size: int) -> Case:
    """The published detector, with a real black square where its description says."""
    listed = next(one for one in instances(open_benchmark(folder)) if one.patch.width == size)
    question = property_of(read_vnnlib(listed.spec), File(listed.network.name, listed.network))
    opened = open_instance(question, Network(read_proto(question.model.path)), SafetyRule())
    open_network(opened)
    done = effect(opened)
    clean = done.clean
    if clean is None:
        raise SystemExit(f"{folder}: shows no picture without a patch")
    content, side = np.zeros((clean.shape[1], size, size), clean.dtype), 65 - size
    spots = np.argwhere(np.ones((side, side), bool))
    neutral = files.neutral_of(opened, clean)

    def alone(share: np.ndarray) -> list[float]:
        return [files.on_file(opened, pasted(clean, content, spot[None]), neutral) for spot in share]

    ways: dict[str, Way] = {
        "one by one": lambda jobs: np.concatenate(spread(alone, np.array_split(spots, 64), jobs)),
        "batches": lambda jobs: files.described_map(opened, clean, content, jobs).outputs,
    }
    return Case("cctsdb_yolo detector", size, len(spots), ways)


def spread(run: Callable, parts: list, jobs: int) -> list:
    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(run, parts))


def measured(case: Case, jobs: int, rounds: int) -> list[list]:
    """A row for each way: CPU seconds with one thread, and positions a second with `jobs` of them."""
    cpu = dict.fromkeys(case.ways, np.inf)
    wall = dict.fromkeys(case.ways, np.inf)
    maps = {name: np.ravel(way(1)).astype(np.float64) for name, way in case.ways.items()}  # warm
    for _ in range(rounds):
        for name, way in case.ways.items():
            began = time.process_time()
            way(1)
            cpu[name] = min(cpu[name], time.process_time() - began)
            began = time.perf_counter()
            way(jobs)
            wall[name] = min(wall[name], time.perf_counter() - began)
    first = next(iter(case.ways))
    return [
        [
            case.name, case.patch, name, case.positions, cpu[name], case.positions / cpu[name],
            cpu[first] / cpu[name], case.positions / wall[name], wall[first] / wall[name],
            f"{np.abs(maps[name] - maps[first]).max():.1e}",
        ]
        for name in case.ways
    ]  # fmt: skip


def report(rows: list[list], jobs: int) -> str:
    columns = [
        "network", "patch", "way", "positions", Column("CPU s", 3), Column("positions per CPU s", 0),
        Column("times one by one", 2), Column(f"positions/s, {jobs} threads", 0),
        Column("times one by one ", 2), "largest difference",
    ]  # fmt: skip
    load = os.getloadavg()[0]
    said = (__doc__ or "").partition("\n\n")[2].partition("\n\n")[2].strip().replace("\n", " ")
    head = [
        "# Every position of a patch on a 64×64 picture",
        said,
        f"{os.cpu_count()} cores, load {load:.1f} while it ran (CPU seconds count then, not positions/s).",
    ]
    return "\n\n".join([*head, to_markdown(Table(columns, rows))]) + "\n"


if __name__ == "__main__":
    main()
