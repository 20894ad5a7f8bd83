"""COCO scoring, whole command: start of the process, reading both files, the twelve numbers.

    python benchmarks/coco_scoring.py            # 5,000 images, about 36k boxes, 200k detections, 80 classes
    python benchmarks/coco_scoring.py --full     # predictions with all digits of a 32-bit float
    python benchmarks/coco_scoring.py --runs 9 --skip pycocotools    # or another peer that is not installed

The peers are called from a short script, as their users do; hotcoco, which has a command of its own
(`coco eval`), also by that. So is holdfast: its functions from a script in one row, in the other the whole
command with its options, counts, per-class table and JSON file. Each tool runs as a process of its own, the
tools in turn, several rounds; the best round of each counts, because other work on the machine can only add
time. The data are made from a seed in a temporary folder. holdfast's modules are byte-compiled first, as pip
did with those of the peers when it installed them: a checkout may lie uncompiled (PYTHONDONTWRITEBYTECODE).
"""

from __future__ import annotations

import argparse
import compileall
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import numpy as np

import holdfast

KEYS = ("AP", "AP50", "AP75", "APs", "APm", "APl", "AR1", "AR10", "AR100", "ARs", "ARm", "ARl")

PEER = """
import contextlib, io, json, sys
{imports}
with contextlib.redirect_stdout(io.StringIO()):
    gt = {coco}(sys.argv[1])
    dt = gt.{load}(sys.argv[2])
    e = {evaluation}(gt, dt, "bbox")
    e.evaluate(); e.accumulate(); e.summarize()
json.dump([float(v) for v in list(e.stats)[:12]], open(sys.argv[3], "w"))
"""
PEERS = {
    "pycocotools": PEER.format(
        imports="from pycocotools.coco import COCO\nfrom pycocotools.cocoeval import COCOeval",
        coco="COCO", load="loadRes", evaluation="COCOeval",
    ),
    "faster-coco-eval": PEER.format(
        imports="from faster_coco_eval import COCO, COCOeval_faster",
        coco="COCO", load="loadRes", evaluation="COCOeval_faster",
    ),
    "hotcoco": PEER.format(
        imports="import hotcoco", coco="hotcoco.COCO", load="load_res", evaluation="hotcoco.COCOeval"
    ),
}  # fmt: skip

# `coco eval --json` prints its numbers; here they go to a file, as those of the others do.
HOTCOCO_COMMAND = """
import contextlib, sys
from hotcoco.cli import main
output = sys.argv.pop(1)
with open(output, "w") as stream, contextlib.redirect_stdout(stream), contextlib.suppress(SystemExit):
    main()
"""

OURS = """
import json, sys
from holdfast.metrics.coco import coco_numbers
from holdfast.metrics.cocofile import read_predictions, read_truth
gt = read_truth(sys.argv[1])
dt = read_predictions(sys.argv[2], gt)
numbers = coco_numbers(gt.table, dt, images=gt.images, classes=gt.classes).numbers
json.dump(list(numbers.values()), open(sys.argv[3], "w"))
"""


@dataclass(frozen=True)
class Timing:
    """Wall and CPU seconds of one run of one tool, and its twelve numbers."""

    seconds: float
    cpu_seconds: float
    numbers: list[float]


def make_data(folder: Path, images: int, classes: int, seed: int, *, full: bool) -> tuple[Path, Path, str]:
    """Truth and prediction files of scenes with a few classes each, and one line that describes them."""
    rng = np.random.default_rng(seed)
    ids = np.sort(rng.choice(120 * images, images, replace=False)) + 1
    frequency = rng.dirichlet(np.full(classes, 0.6))
    annotations, predictions = [], []
    for image in ids.tolist():
        n = int(rng.poisson(7.24))
        category = rng.choice(rng.choice(classes, 4, p=frequency), n)
        size = np.exp(rng.normal(4.0, 1.0, (n, 2))).clip(2, 400)
        boxes = np.round(np.c_[rng.uniform(0, 1, (n, 2)) * (np.array([640, 480]) - size).clip(1), size], 2)
        for box, c in zip(boxes, category, strict=True):
            annotations.append({
                "id": len(annotations) + 1, "image_id": image, "category_id": int(c) + 1,
                "bbox": box.tolist(),
                "area": round(float(box[2] * box[3]) * 0.7, 2), "iscrowd": int(rng.random() < 0.01),
            })  # fmt: skip
        predictions += _predicted(rng, image, boxes, category, classes, full=full)
    truth = {
        "images": [
            {"id": i, "width": 640, "height": 480, "file_name": f"{i:012d}.jpg"} for i in ids.tolist()
        ],
        "categories": [{"id": c + 1, "name": f"class {c + 1}"} for c in range(classes)],
        "annotations": annotations,
    }
    paths = folder / "truth.json", folder / "predictions.json"
    for path, content in zip(paths, (truth, predictions), strict=True):
        path.write_text(json.dumps(content))
    sizes = " + ".join(f"{path.stat().st_size / 1e6:.1f}" for path in paths)
    about = (
        f"{images:,} images, {len(annotations):,} boxes, {len(predictions):,} detections, {classes} classes"
    )
    return *paths, f"{about}; files {sizes} MB; seed {seed}; {'all digits' if full else 'rounded'}"


def _predicted(
    rng: np.random.Generator, image: int, boxes: np.ndarray, category: np.ndarray, classes: int, *, full: bool
) -> list[dict[str, object]]:
    """Detections of one image: six in ten near a true box, most of those with its class."""
    records: list[dict[str, object]] = []
    for _ in range(int(rng.poisson(40))):
        c = int(rng.integers(classes))
        box = np.r_[rng.uniform(0, 400, 2), rng.uniform(5, 200, 2)]
        if len(boxes) and rng.random() < 0.6:
            near = int(rng.integers(len(boxes)))
            box = boxes[near] + rng.normal(0, 0.12, 4) * np.r_[boxes[near, 2:], boxes[near, 2:]]
            c = int(category[near]) if rng.random() < 0.8 else c
        box[2:] = box[2:].clip(1)
        score = float(np.float32(rng.beta(1, 3)))
        bbox = box.astype(np.float32).astype(float).tolist() if full else np.round(box, 2).tolist()
        records.append({
            "image_id": image, "category_id": c + 1, "bbox": bbox, "score": score if full else round(score, 4)
        })  # fmt: skip
    return records


def commands(truth: Path, predictions: Path, output: Path) -> dict[str, list[str]]:
    """The command line of each tool."""
    files = [str(truth), str(predictions), str(output)]
    ours = ["evaluate", "--truth", files[0], "--predictions", files[1], "--json", files[2]]
    tools = {name: [sys.executable, "-c", program, *files] for name, program in PEERS.items()}
    tools["holdfast (functions)"] = [sys.executable, "-c", OURS, *files]
    theirs = ["-c", HOTCOCO_COMMAND, files[2], "eval", "--gt", files[0], "--dt", files[1], "--json"]
    tools["hotcoco (its command)"] = [sys.executable, *theirs]
    return tools | {"holdfast evaluate": [str(Path(sys.executable).parent / "holdfast"), *ours]}


def run_once(command: list[str], output: Path) -> Timing:
    """One run in a process of its own."""
    output.unlink(missing_ok=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{command[:4]} failed:\n{done.stderr}")
    content = json.loads(output.read_text())
    numbers = content if isinstance(content, list) else [_minus_one(_found(content, key)) for key in KEYS]
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Timing(seconds, cpu, numbers)


def _found(content: dict[str, object], key: str) -> object:
    metrics = content.get("metrics", content)
    assert isinstance(metrics, dict)
    return metrics[key]


def _minus_one(value: object) -> float:
    return -1.0 if value is None else float(value)  # type: ignore[arg-type]


def report(timings: dict[str, list[Timing]], about: str) -> str:
    """The table, with ratios to hotcoco and pycocotools where they ran."""
    names = list(timings)
    rows = [["", "seconds", "median", "CPU s", "× hotcoco", "faster than pycocotools"]]
    best = {name: min(t.seconds for t in timings[name]) for name in names}
    for name in names:
        ours = timings[name]
        rows.append([
            f"{name} {_version(name)}",
            f"{best[name]:.2f}",
            f"{statistics.median(t.seconds for t in ours):.2f}",
            f"{min(t.cpu_seconds for t in ours):.2f}",
            f"{best[name] / best['hotcoco']:.2f}" if "hotcoco" in best else "–",
            f"{best['pycocotools'] / best[name]:.1f} ×" if "pycocotools" in best else "–",
        ])  # fmt: skip
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |" for row in rows]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    numbers = {name: timings[name][0].numbers for name in names}
    spread = max(max(column) - min(column) for column in zip(*numbers.values(), strict=True))
    return "\n".join([about, "", *lines, "", f"largest difference in the twelve numbers: {spread:.1e}"])


def _version(name: str) -> str:
    return metadata.version(name.split()[0])


def main() -> None:
    """Make the data, run the tools, print the table; fail if the numbers differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--classes", type=int, default=80)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--full", action="store_true", help="predictions with all digits")
    parser.add_argument("--skip", nargs="*", default=[], choices=list(PEERS))
    options = parser.parse_args()
    compileall.compile_dir(Path(holdfast.__file__).parent, quiet=1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        truth, predictions, about = make_data(
            folder, options.images, options.classes, options.seed, full=options.full
        )
        output = folder / "numbers.json"
        tools = commands(truth, predictions, output)
        tools = {name: words for name, words in tools.items() if name.split(" (")[0] not in options.skip}
        timings: dict[str, list[Timing]] = {tool: [] for tool in tools}
        for turn in range(options.runs):
            for tool, command in tools.items():
                if tool != "pycocotools" or turn < 2:  # half a minute each: two rounds are enough
                    timings[tool].append(run_once(command, output))
    print(report(timings, about))
    numbers = [runs[0].numbers for runs in timings.values()]
    if not np.allclose(numbers, numbers[0], rtol=0, atol=1e-6):
        raise SystemExit("the tools do not agree")


if __name__ == "__main__":
    main()
