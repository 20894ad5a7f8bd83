"""Patch attacks side by side: ours, ART's, a grey square, random noise, at equal gradient steps.

    python benchmarks/attack.py [ROW …] [--images 40] [--jobs 2]

Rows: white-700, white-700-square, white-300, signs-1000, signs-1000-square, transfer-3000.

white-*: yolo-fastest-1.1-xl on roadsign images with a stop sign or traffic light that it recognises, scaled
to 416x416. signs: signs-yolo on embedded scenes. transfer: gradients of two surrogates, judged on YOLOX-nano,
which none of them sees. Per row: our attack (it may take fewer pixels than the row allows), then each peer
with one square patch of as many pixels as the row allows, on the largest target, after as many gradient
steps as ours may take (it stops at success), or took in the mean if that is more.
*-square: ours is `--shape square` without transforms (ART's patches get none): one square per target, which
together have at most as many pixels as ART's one (26x26, 31x31). Both take at most the same gradient steps.
S_e = 1 - mAP(after) / mAP(before) at IoU 0.5, rule voc, score >= 0.25.

Needs ART (pip install adversarial-robustness-toolbox==1.20.1) for its rows and, but for signs, real data in
HOLDFAST_DATA or ../shared/data. Every image is kept in --work: a run that was ended goes on.
Writes benchmarks/results/attack.{json,md}.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.attack.judge import open_judge, target_in
from holdfast.attack.types import Limits, Method, Target
from holdfast.core.fingerprint import generator
from holdfast.core.model import Model
from holdfast.core.patch import changed_pixels
from holdfast.core.sources import versions
from holdfast.core.types import Boxes, Detections, Image, Size
from holdfast.data.open import open_dataset
from holdfast.engine.records import DetectionRecord as Record
from holdfast.evaluate.score import Settings, score_records
from holdfast.graph.load import load_model
from holdfast.metrics.rules import RULES
from holdfast.metrics.similarity import psnr
from holdfast.stages.decode.libjpeg import pillow
from holdfast.stages.resize.libraries import pillow_bilinear

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
DATA = Path(os.environ.get("HOLDFAST_DATA", ROOT.parent / "shared" / "data"))
SIDE = Size(416, 416)
ART = ("art-dpatch", "art-robust-dpatch", "art-adversarial-patch")
PEERS = (*ART, "grey-square", "random-noise")


@dataclass(frozen=True)
class Row:
    """One comparison: which models give gradients, which one is judged, how many pixels, what is wanted."""

    name: str
    attacked: tuple[str, ...]
    judged: str
    pixels: int
    wanted: float
    method: Method
    limits: Limits


XL = "yolo-fastest-xl"
SQUARE = Method(shape="square", shrink=False)
ROWS = {
    row.name: row
    for row in (
        Row("white-700", (XL,), XL, 700, 0.97, Method(shrink=False), Limits(3000, steps=60)),
        Row("white-700-square", (XL,), XL, 700, 0.97, SQUARE, Limits(676, steps=60)),
        Row("white-300", (XL,), XL, 300, 0.90, Method(), Limits(300, steps=40)),
        Row("signs-1000", ("signs-yolo",), "signs-yolo", 1000, 0.95, Method(), Limits(3000, steps=40)),
        Row(
            "signs-1000-square", ("signs-yolo",), "signs-yolo", 1000, 0.95, SQUARE, Limits(961, steps=40),
        ),
        Row(
            "transfer-3000", (XL, "nanodet_m"), "yolox_nano", 3000, 0.75, Method(diversity=True),
            Limits(3000, steps=24),
        ),
    )
}  # fmt: skip


@functools.cache
def model_of(name: str, work: str) -> Model:
    """The model; the darknet one is converted at 416."""
    if name.startswith("signs-"):
        return load_model(name)
    if name != "yolo-fastest-xl":
        return load_model(DATA / "models" / f"{name}.onnx")
    path = Path(work) / "yolo-fastest-xl.onnx"
    if not path.with_suffix(".toml").exists():
        from holdfast.graph.card import write_card
        from holdfast.graph.darknet.convert import convert

        files = [DATA / "models" / f"yolo-fastest-1.1-xl.{end}" for end in ("cfg", "weights")]
        write_card(convert(*files, path, size=SIDE), path.with_suffix(".toml"))
    return load_model(path)


def pictures(row: Row, work: str, count: int) -> list[tuple[str, Image, Boxes]]:
    """Pictures of 416×416 with true boxes by the model's numbers, in each of which every model finds one."""
    signs = row.judged.startswith("signs-")
    data = open_dataset("signs:0:400" if signs else str(DATA / "roadsign"))
    model = model_of(row.attacked[0], work)
    names = {"stop": "stop sign", "trafficlight": "traffic light"}
    if signs:
        names = {name: name for name in data.classes}
    number = {ours: model.card.classes.index(theirs) for ours, theirs in names.items()}
    judges = [open_judge(model_of(n, work)) for n in dict.fromkeys((*row.attacked, row.judged))]
    if len(judges) > 1:
        judges = [judges[0], judges[-1]]  # both must find it: the first attacked one, and the one judged
    found: list[tuple[str, Image, Boxes]] = []
    for entry in data.entries:
        sample = entry.load()
        truth = sample.truth
        assert isinstance(truth, Boxes)
        known = [i for i, c in enumerate(truth.classes) if data.classes[c] in number]
        if not known:
            continue
        image = pillow(sample.data)
        scale = np.array([SIDE.width / image.shape[1], SIDE.height / image.shape[0]] * 2)
        classes = np.array([number[data.classes[c]] for c in truth.classes[known]])
        boxes = Boxes(truth.xyxy[known] * scale, classes)
        small = pillow_bilinear(image, SIDE)
        if all(target_in(judge, small, boxes, judge.rule) is not None for judge in judges):
            found.append((sample.name, small, boxes))
        if len(found) == count:
            break
    return found


@functools.cache
def victims_of(names: tuple[str, ...], work: str) -> list[Any]:
    """The attacked models opened for gradients, once a process."""
    import torch

    from holdfast.attack.gradient.victim import open_victim

    torch.set_num_threads(1)
    return [open_victim(model_of(name, work)) for name in names]


@functools.cache
def judge_of(name: str, work: str) -> Any:
    return open_judge(model_of(name, work))


def one(row: Row, how: str, steps: int, work: str, picture: tuple[str, Image, Boxes]) -> dict[str, Any]:
    """What one method makes of one picture."""
    name, image, boxes = picture
    judge = judge_of(row.judged, work)
    target = target_in(judge_of(row.attacked[0], work), image, boxes, judge.rule)
    assert target is not None
    began, spent = time.process_time(), steps
    if how == "ours":
        from holdfast.attack.gradient.search import search

        rng = generator(0, row.name, name)
        made = search(victims_of(row.attacked, work), target, row.method, row.limits, rng)
        after, spent = made.image, made.steps
    elif how in ART:
        sys.path.insert(0, str(ROOT / "benchmarks"))
        from attack_art import attacked_by_art

        after = attacked_by_art(how, victims_of(row.attacked, work), target, row.pixels, steps, 0)
    else:
        after = plain(how, target, row.pixels, generator(0, how, name))
    return {
        "name": name,
        "pixels": changed_pixels(image, after),
        "psnr": min(float(psnr(image, after)), 99.0),
        "steps": spent,
        "seconds": time.process_time() - began,
        "truth": [boxes.xyxy.tolist(), boxes.classes.tolist()],
        "before": said(judge(image)),
        "after": said(judge(after)),
    }


def plain(how: str, target: Target, pixels: int, rng: np.random.Generator) -> Image:
    """A grey or random square of that many pixels on the largest target."""
    side = int(pixels**0.5)
    sides = target.boxes.xyxy[:, 2:] - target.boxes.xyxy[:, :2]
    x1, y1, x2, y2 = target.boxes.xyxy[int(sides.prod(axis=1).argmax())]
    left = int(np.clip(round((x1 + x2 - side) / 2), 0, SIDE.width - side))
    top = int(np.clip(round((y1 + y2 - side) / 2), 0, SIDE.height - side))
    out = np.array(target.image)
    new = 127 if how == "grey-square" else rng.integers(0, 256, (side, side, 3), np.uint8)
    out[top : top + side, left : left + side] = new
    return out


def said(found: Detections) -> list[Any]:
    return [found.boxes.tolist(), found.scores.tolist(), found.classes.tolist()]


def effect(rows: list[dict[str, Any]], classes: int) -> tuple[float, float, float]:
    """Before, after and S_e of mAP at IoU 0.5, rule voc."""
    maps = []
    for which in ("before", "after"):
        records = []
        for r in rows:
            boxes, scores, labels = r[which]
            truth = Boxes(np.array(r["truth"][0]).reshape(-1, 4), np.array(r["truth"][1], np.int64))
            found = Detections(np.array(boxes).reshape(-1, 4), np.array(scores), np.array(labels, np.int64))
            records.append(Record(r["name"], SIDE, truth, found))
        names = tuple(str(i) for i in range(classes))
        result = score_records(records, "detect", names, Settings(RULES["voc"], 0.5, 0.25))
        maps.append(float(result["metrics"]["mAP"]))
    return maps[0], maps[1], 1 - maps[1] / maps[0]


def run_row(row: Row, options: argparse.Namespace) -> list[dict[str, Any]]:
    work = str(options.work)
    found = pictures(row, work, options.images)
    print(f"{row.name}: {len(found)} images", flush=True)
    table, steps = [], 0
    peers = [p for p in PEERS if options.peers and (p not in ART or importlib.util.find_spec("art"))]
    with ProcessPoolExecutor(options.jobs) as pool:
        for how in ("ours", *peers):
            if options.kept and not all(p.exists() for p in paths(row, how, steps, found, options)):
                print(f"  {how:22} not finished: left out", flush=True)
                continue
            rows = kept(row, how, steps, found, options, pool)
            if how == "ours":
                steps = max(row.limits.steps, round(float(np.mean([r["steps"] for r in rows]))))
            before, after, value = effect(rows, len(model_of(row.judged, work).card.classes))
            line = {
                "row": row.name,
                "method": how,
                "images": len(rows),
                "pixels": float(np.mean([r["pixels"] for r in rows])),
                "psnr": float(np.mean([r["psnr"] for r in rows])),
                "steps": float(np.mean([r["steps"] for r in rows])) if how == "ours" or how in ART else 0.0,
                "cpu_seconds": float(np.mean([r["seconds"] for r in rows])),
                "map_before": before,
                "map_after": after,
                "S_e": value,
                "wanted": row.wanted if how == "ours" else None,
                "curve": curve(rows, len(model_of(row.judged, work).card.classes)) if how == "ours" else None,
            }
            table.append(line)
            print(
                f"  {how:22} S_e {value:.3f}  {line['pixels']:.0f} px  {line['psnr']:.1f} dB  "
                f"{line['steps']:.0f} steps  {line['cpu_seconds']:.1f} CPU s",
                flush=True,
            )
    return table


def curve(rows: list[dict[str, Any]], classes: int) -> list[tuple[int, float, float]]:
    """(pixels an image may have, mean pixels, S_e): images that need more are left clean."""
    points = []
    for budget in (100, 200, 300, 500, 700, 1000, 2000, 3000):
        mixed = [r if r["pixels"] <= budget else {**r, "after": r["before"], "pixels": 0} for r in rows]
        points.append((budget, float(np.mean([r["pixels"] for r in mixed])), effect(mixed, classes)[2]))
    return points


def kept(
    row: Row, how: str, steps: int, found: list[Any], options: argparse.Namespace, pool: ProcessPoolExecutor
) -> list[dict[str, Any]]:
    """The rows of all pictures, those of an earlier run read from the folder of work."""
    files = paths(row, how, steps, found, options)
    coming = {}
    for path, picture in zip(files, found, strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            coming[path] = pool.submit(one, row, how, steps, str(options.work), picture)
    for path, future in coming.items():
        path.write_text(json.dumps(future.result()))
    return [json.loads(path.read_text()) for path in files]


def paths(row: Row, how: str, steps: int, found: list[Any], options: argparse.Namespace) -> list[Path]:
    """Where what a method made of each picture is kept."""
    folder = options.work / row.name / (how if how == "ours" else f"{how}-{steps}")
    return [folder / (picture[0].replace("/", "_") + ".json") for picture in found]


def write(table: list[dict[str, Any]]) -> None:
    RESULTS.mkdir(exist_ok=True)
    plain_rows = {"command": "python benchmarks/attack.py", "versions": versions(), "rows": table}
    (RESULTS / "attack.json").write_text(json.dumps(plain_rows, indent=1) + "\n")
    lines = [
        "# Patch attacks, as measured",
        "",
        "`python benchmarks/attack.py`: what each row is, is said there. Steps are gradient steps an image,",
        "CPU seconds are of one core, S_e is of mAP at IoU 0.5.",
        "",
        "| row | method | images | pixels | PSNR dB | steps | CPU s | mAP before | after | S_e | wanted |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for r in table:
        wanted = f"≥ {r['wanted']}" if r["wanted"] else ""
        lines.append(
            f"| {r['row']} | {r['method']} | {r['images']} | {r['pixels']:.0f} | {r['psnr']:.1f} | "
            f"{r['steps']:.0f} | {r['cpu_seconds']:.1f} | {r['map_before']:.3f} | {r['map_after']:.3f} | "
            f"**{r['S_e']:.3f}** | {wanted} |"
        )
    lines += ["", "Ours when an image may have at most so many changed pixels (others are left clean):", ""]
    lines += ["| row | " + " | ".join(f"≤ {b}" for b, _, _ in table[0]["curve"]) + " |"]
    lines += ["|" + "---|" * (1 + len(table[0]["curve"]))]
    for r in table:
        if r["curve"]:
            cells = " | ".join(f"{value:.2f} ({mean:.0f} px)" for _, mean, value in r["curve"])
            lines.append(f"| {r['row']} | {cells} |")
    (RESULTS / "attack.md").write_text("\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("rows", nargs="*", help=f"of {', '.join(ROWS)}; without: all")
    parser.add_argument("--images", type=int, default=40)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--work", type=Path, default=Path("build/attack-benchmark"))
    parser.add_argument("--kept", action="store_true", help="only what is in --work already; nothing is run")
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--write", action=argparse.BooleanOptionalAction, default=True)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    options.work = options.work.resolve()
    table = [line for name in options.rows or ROWS for line in run_row(ROWS[name], options)]
    if options.write:
        write(table)


if __name__ == "__main__":
    main()
