"""All of a folder of ACAS Xu instances in one process: solved, wrong, CPU seconds, the slowest ten.

    python benchmarks/acasxu_inproc.py ../shared/data/vnncomp/acasxu [--jobs 2] [--seed 0] [--limit 116]

The folder holds the networks, the specifications and acasxu_instances.csv; votes.csv (network, spec,
tools_saying_holds, tools_saying_violated) is the truth by majority.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections import Counter
from pathlib import Path

from holdfast.core.model import Network
from holdfast.core.property import Budget
from holdfast.verify.run import verify
from holdfast.verify.vnnlib import property_of, read_vnnlib


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=116.0)
    asked = parser.parse_args()
    with (asked.folder / "votes.csv").open() as file:
        votes = {(row["network"], row["spec"]): row for row in csv.DictReader(file)}
    with (asked.folder / "acasxu_instances.csv").open() as file:
        instances = [(row[0], row[1]) for row in csv.reader(file)]
    done = []
    for network, spec in instances:
        cpu, wall = time.process_time(), time.monotonic()
        question = property_of(read_vnnlib(asked.folder / spec), Network(network, asked.folder / network))
        verdict = verify(question, Budget(seconds=asked.limit, jobs=asked.jobs, seed=asked.seed))
        vote = votes[network, spec]
        truth = (
            "violated" if int(vote["tools_saying_violated"]) > int(vote["tools_saying_holds"]) else "holds"
        )
        done.append((time.process_time() - cpu, time.monotonic() - wall, network, spec, verdict, truth))
    statuses = Counter(verdict.status for *_, verdict, _ in done)
    wrong = [row for row in done if row[4].status in ("holds", "violated") and row[4].status != row[5]]
    solved = statuses["holds"] + statuses["violated"]
    print(f"{len(done)} instances: {solved} solved, {len(wrong)} wrong; {dict(statuses)}")
    print(f"CPU {sum(row[0] for row in done):.1f} s, wall {sum(row[1] for row in done):.1f} s")
    for cpu, wall, network, spec, verdict, truth in sorted(done, key=lambda row: -row[0])[:10]:
        print(f"{cpu:7.2f} CPU s {wall:7.2f} s  {network} {spec}: {verdict.status} ({truth}) {verdict.note}")


if __name__ == "__main__":
    main()
