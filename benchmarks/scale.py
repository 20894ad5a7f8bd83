"""What distribution costs: Ray and --part beside local processes, stores, and a simulation of many workers.

    python benchmarks/scale.py [--images 2000] [--million] [--only runs,stores,simulation]

runs         noise of signs-class on embedded scenes (30 cells per image) in two local processes, in two
             actors of a Ray cluster that is already up, and in two parts side by side that are then joined
stores       writing and reading cells of the measured size in a folder and on an S3 server (moto, loopback);
             with --million also a run beside a million other cells
simulation   1, 10, 100 and 1,000 workers, by discrete events, from the measured times: each worker asks the
             driver for a shard, looks its cells up, computes, and writes; driver and store serve one request
             after another. It is a model of the engine, not a measurement of a cluster.

Writes benchmarks/results/scale.{json,md}.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from holdfast.core import fingerprint
from holdfast.engine.object_store import THREADS
from holdfast.engine.pipelines import SHARD
from holdfast.engine.ray_actors import RayActors
from holdfast.engine.store import FolderStore, Store, open_store

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
CELLS = 30
# 30 cells per image: the clean one and 29 options. All are one tensor and one inference each.
OPTIONS = "decode,resize,colour"
# Requests per second that Amazon states for one prefix of a bucket (S3 User Guide, "Best practices design
# patterns: optimizing Amazon S3 performance"): 3,500 writes, 5,500 reads.
S3_WRITES, S3_READS = 3500.0, 5500.0
S3_LATENCY = 0.03  # seconds of a small request to S3 from the same region, typical


def holdfast(*words: str) -> list[str]:
    """A command line."""
    return [sys.executable, "-m", "holdfast", *words]


def wall(*commands: Sequence[str], **environment: str) -> float:
    """Seconds until the commands, started together, have ended."""
    began = time.perf_counter()
    running = [
        subprocess.Popen(
            command,
            env={**os.environ, **environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for command in commands
    ]
    for one in running:
        _, errors = one.communicate()
        if one.returncode:
            sys.exit(f"{one.args}: {errors[-500:]}")
    return time.perf_counter() - began


def count_cells(folder: Path) -> tuple[int, int]:
    """Cells of a folder store and their bytes."""
    sizes = [entry.size for entry in FolderStore(folder).entries() if entry.key]
    return len(sizes), sum(sizes)


def measure_runs(images: int, work: Path) -> dict[str, Any]:
    """Seconds of the same suite by local processes, by Ray, and by parts."""
    import ray
    from ray.cluster_utils import Cluster

    import scale  # this file, under the name by which the actors know it

    def noise(name: str, *more: str) -> list[str]:
        runs = ["--runs", str(work / name), "--json", str(work / f"{name}.json")]
        return holdfast("noise", "signs-class", f"signs:0:{images}", "--only", OPTIONS, *runs, *more)

    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    wall(noise("warm", "--images", "50", "--jobs", "2"))
    found: dict[str, Any] = {"local": wall(noise("local", "--jobs", "2"))}
    found["cells"], found["bytes"] = count_cells(work / "local" / "cells")
    began = time.perf_counter()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    found["cluster start"] = time.perf_counter() - began
    try:
        found["ray"] = wall(noise("ray", "--on", "ray"), RAY_ADDRESS=cluster.address)
        ray.init(address=cluster.address, log_to_driver=False, logging_level=40)
        began = time.perf_counter()
        RayActors(2).run(
            scale.Empty(FolderStore(work / "empty")), [(n,) for n in range(400)], lambda *_: None, 1e18
        )
        found["ray seconds per shard"] = (time.perf_counter() - began) / 400
    finally:
        ray.shutdown()
        cluster.shutdown()
    # Each part on a core of its own, as on a machine of its own.
    parts = [
        ["taskset", "-c", str(n - 1), *noise("parts", "--jobs", "1", "--part", f"{n}/2")] for n in (1, 2)
    ]
    found["parts"], found["join"] = wall(*parts), wall(noise("parts", "--jobs", "2"))
    found["local again"] = wall(noise("again", "--jobs", "2"))
    reference, *others = (
        json.loads((work / f"{name}.json").read_bytes())["models"]
        for name in ("local", "ray", "parts", "again")
    )
    found["equal"] = all(other == reference for other in others)
    return found


@dataclass(frozen=True)
class Empty:
    """A task that does nothing, to measure what a shard costs the driver."""

    store: FolderStore
    kinds: tuple[str, ...] = ("signs",)

    def process(self, state: Any, shard: Any, threads: int) -> Any:
        """Answer with the shard."""
        return list(shard), "open", (1, 0)


def measure_store(store: Store, size: int, count: int) -> dict[str, float]:
    """Cells per second written and read in batches of a shard, and seconds of single requests."""
    keys = [f"evaluate.{fingerprint.of([store.url, n])}" for n in range(count)]
    value = json.dumps("x" * max(1, size - 70)).encode()
    began = time.perf_counter()
    for at in range(0, count, SHARD):
        for key in keys[at : at + SHARD]:
            store.put(key, value)
        store.flush()
    written = time.perf_counter() - began
    began = time.perf_counter()
    for at in range(0, count, SHARD):
        assert None not in list(store.get_all(keys[at : at + SHARD]))
    read = time.perf_counter() - began
    single = []
    for key in keys[:100]:
        began = time.perf_counter()
        store.get(key)
        single.append(time.perf_counter() - began)
    return {
        "cells": count,
        "bytes per cell": size,
        "written per second": count / written,
        "read per second": count / read,
        "median seconds of a read": statistics.median(single),
    }


def measure_stores(size: int, work: Path) -> dict[str, Any]:
    """A folder, and an S3 server in a process of its own."""
    found: dict[str, Any] = {"folder": measure_store(FolderStore(work / "store"), size, 20_000)}
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "5555"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        os.environ |= {
            "AWS_ENDPOINT_URL": "http://127.0.0.1:5555", "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "benchmark", "AWS_SECRET_ACCESS_KEY": "benchmark",
        }  # fmt: skip
        make_bucket()
        found["S3 server (moto)"] = measure_store(open_store("s3://bench/cells"), size, 1_000)
    finally:
        server.terminate()
        server.wait()
    return found


def make_bucket() -> None:
    """Create the bucket as soon as the server answers."""
    import http.client

    for _ in range(200):
        try:
            link = http.client.HTTPConnection("127.0.0.1", 5555, timeout=5)
            link.request("PUT", "/bench")
            link.getresponse().read()
            return
        except OSError:
            time.sleep(0.1)
    sys.exit("the S3 server did not start")


def measure_million(work: Path, size: int) -> dict[str, float]:
    """A run beside a million other cells, and what `store info` takes."""
    store, count = FolderStore(work / "million" / "cells"), 1_000_000
    value = json.dumps("x" * max(1, size - 70)).encode()
    began = time.perf_counter()
    for n in range(count):
        store.put(f"evaluate.{fingerprint.of(n)}", value)
    written = time.perf_counter() - began
    evaluate = holdfast("evaluate", "signs-class", "signs:0:400", "--jobs", "1", "--runs")
    there = ["--store", str(store.folder)]
    return {
        "writing a million cells": written,
        "run in an empty store": wall([*evaluate, str(work / "few")]),
        "run beside a million cells": wall([*evaluate, str(work / "beside"), *there]),
        "the same again in the small store": wall([*evaluate, str(work / "few")]),
        "the same again beside a million cells": wall([*evaluate, str(work / "beside"), *there]),
        "holdfast store info": wall(holdfast("store", "info", str(store.folder))),
    }


@dataclass(frozen=True)
class Cluster:
    """The assumptions of a simulation, in seconds."""

    workers: int
    shard: int  # images
    compute: float  # per cell
    dispatch: float  # per shard, at the driver
    partitions: int  # of the bucket; the store names cells so that it can be split into 256
    latency: float = S3_LATENCY
    start: float = 10.0  # until an actor is ready: imports, networks


def simulate(cluster: Cluster, images: int, cells: int) -> dict[str, float]:
    """Seconds until all shards are done, and which part of the time driver and store were busy."""
    shards = -(-images // cluster.shard)
    free = [(cluster.start, n) for n in range(min(cluster.workers, shards))]
    driver = reads = writes = end = 0.0
    count = cluster.shard * cells
    rounds = -(-count // THREADS) * cluster.latency
    for _ in range(shards):
        now, worker = heapq.heappop(free)
        driver = max(driver, now) + cluster.dispatch
        reads = max(reads, driver) + count / (S3_READS * cluster.partitions)
        looked_up = max(driver + rounds, reads)
        computed = looked_up + count * cluster.compute
        writes = max(writes, computed) + count / (S3_WRITES * cluster.partitions)
        done = max(computed + cluster.latency, looked_up + rounds, writes)  # writes overlap with computing
        end = max(end, done)
        heapq.heappush(free, (done, worker))
    alone = images * cells * cluster.compute
    return {
        "seconds": end,
        "speed-up": alone / end,
        "efficiency": alone / end / cluster.workers,
        "driver busy": shards * cluster.dispatch / end,
        "store busy": images * cells / (S3_WRITES * cluster.partitions) / end,
    }


def simulate_all(compute: float, dispatch: float, images: int) -> list[dict[str, Any]]:
    """Numbers of workers for a fast network, as measured, and one of 0.1 s per cell; then shard sizes."""
    clusters = [
        Cluster(workers, SHARD, seconds, dispatch, partitions)
        for seconds in (compute, 0.1)
        for partitions in (1, 256)
        for workers in (1, 10, 100, 1000)
    ]
    clusters += [Cluster(1000, shard, compute, dispatch, 256) for shard in (1, 5, 100, 1000)]
    return [{**asdict(cluster), **simulate(cluster, images, CELLS)} for cluster in clusters]


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return "\n".join([*lines, *("| " + " | ".join(map(str, row)) + " |" for row in rows)]) + "\n"


def page(found: dict[str, Any]) -> str:
    """The figures as Markdown."""
    text = ["# Scale, as measured\n", f"`python benchmarks/scale.py`, {found['date']}, {found['machine']}.\n"]
    if runs := found.get("runs"):
        local = min(runs["local"], runs["local again"])
        rows = [
            ["two local processes, first and last", f"{runs['local']:.1f}, {runs['local again']:.1f}", ""]
        ]
        rows.append(["two Ray actors", f"{runs['ray']:.1f}", f"{runs['ray'] / local - 1:+.1%}"])
        both = runs["parts"] + runs["join"]
        rows.append(["two parts side by side, then the join", f"{runs['parts']:.1f} + {runs['join']:.1f}",
                     f"{runs['parts'] / local - 1:+.1%}, with the join {both / local - 1:+.1%}"])  # fmt: skip
        text.append(
            f"{runs['cells']:,} cells, {runs['bytes'] / runs['cells']:.0f} bytes per cell. The results of "
            f"all runs are {'equal' if runs['equal'] else 'NOT EQUAL'}. The cluster started in "
            f"{runs['cluster start']:.1f} s, which is not counted.\n"
        )
        text.append(table(["run", "seconds", "overhead"], rows))
    if stores := found.get("stores"):
        rows = [
            [name, f"{one['written per second']:,.0f}", f"{one['read per second']:,.0f}",
             f"{1000 * one['median seconds of a read']:.2f}", f"{one['bytes per cell']:.0f}"]
            for name, one in stores.items()
        ]  # fmt: skip
        text.append(
            table(["store", "cells written/s", "read/s", "ms per single read", "bytes per cell"], rows)
        )
    if million := found.get("million"):
        text.append("A folder store with a million cells, in seconds:\n")
        text.append(table(["", "s"], [[name, f"{value:.2f}"] for name, value in million.items()]))
    if simulated := found.get("simulation"):
        keys = ("seconds", "speed-up", "efficiency", "driver busy", "store busy")
        rows = [
            [f"{1000 * r['compute']:.1f}", r["partitions"], r["workers"], r["shard"], f"{r[keys[0]]:,.0f}",
             f"{r[keys[1]]:,.1f}", *(f"{r[k]:.0%}" for k in keys[2:])]
            for r in simulated
        ]  # fmt: skip
        text.append("Simulated by discrete events, not measured:\n")
        text.append(table(["ms per cell", "partitions", "workers", "images per shard", *keys], rows))
    return "\n".join(text)


def main() -> None:
    """Measure what was asked for and write the results."""
    import datetime
    import platform

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--million", action="store_true")
    parser.add_argument("--only", default="runs,stores,simulation")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    parts, file = args.only.split(","), args.out / "scale.json"
    found = json.loads(file.read_text()) if file.exists() else {}
    cpu = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line), "")
    found["machine"] = f"{cpu.partition(': ')[2] or platform.machine()}, {os.cpu_count()} cores"
    found["date"] = datetime.datetime.now(datetime.UTC).date().isoformat()
    work = Path(tempfile.mkdtemp(prefix="holdfast-scale-"))
    try:
        if "runs" in parts:
            found["runs"] = measure_runs(args.images, work)
        runs = found.get("runs") or sys.exit("measure the runs first: --only runs")
        size = round(runs["bytes"] / runs["cells"])
        if "stores" in parts:
            found["stores"] = measure_stores(size, work)
        if args.million:
            found["million"] = measure_million(work, size)
        if "simulation" in parts:
            compute = 2 * min(runs["local"], runs["local again"]) / runs["cells"]
            found["simulation"] = simulate_all(compute, runs["ray seconds per shard"], 100_000)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    file.write_text(json.dumps(found, indent=1) + "\n")
    (args.out / "scale.md").write_text(page(found))
    sys.stdout.write(page(found))


if __name__ == "__main__":
    main()
