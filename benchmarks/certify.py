"""Certified recall of wrapped detectors, what the defence costs, and ART's ObjectSeeker next to it.

    python benchmarks/certify.py [ROW …] [--images 40] [--calibration 10] [--jobs 1] [--timed 2]

Rows: signs-30, signs-60, signs-squares, coco-30, coco-stated, coco-squares,
stop-30, art.

signs-*: signs-yolo on embedded scenes that it was not trained on. coco-*: yolox_nano on coco128. stop-30:
yolox_nano on the roadsign images with a stop sign. The number is that of the lines per axis; -squares adds a
grid of square masks. The score of masked detections is calibrated on other images than those measured.
CPU seconds are those of one process with one thread, so other load on the machine does not count.
coco-stated: coco-30 with stated thresholds instead of calibrated ones. art: ART's ObjectSeeker.certify on
random boxes of a detector that ignores the image, then on signs-yolo, where a grey patch of the certified
size is put on each certified box.

The public rows need real data in HOLDFAST_DATA or ../shared/data, and art needs ART
(pip install adversarial-robustness-toolbox==1.20.1); a row without them is skipped. Every image is stored in
--work, so an interrupted run resumes. Writes benchmarks/results/certify.{json,md} after each row; rows of an
earlier run that are not repeated stay.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.certify.certificate import REGIONS
from holdfast.certify.result import Certification
from holdfast.certify.run import CertifyPlan, certify
from holdfast.core.dataset import Dataset
from holdfast.core.model import Model
from holdfast.core.pipeline import load_pipeline, pipeline_of
from holdfast.core.sources import versions
from holdfast.core.types import Boxes
from holdfast.data.open import open_dataset
from holdfast.evaluate.run import EvaluationPlan
from holdfast.graph.load import load_model
from holdfast.stages.defence import MaskDefence, detections_of
from holdfast.stages.masks import HalfPlanes, MaskFamily, PatchSize, SquareMasks

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
DATA = Path(os.environ.get("HOLDFAST_DATA", ROOT.parent / "shared" / "data"))
REPORTED = ("8 px", "16 px", "32 px", "64 px", "128 px", "0.5%", "1%", "2%", "5%")


@dataclass(frozen=True)
class Row:
    """One certification: a model on data, the patch, the masks, and the figures to reach."""

    name: str
    data: str
    patch: str
    lines: int
    squares: int = 0
    false_boxes: float = 0.1
    least: tuple[tuple[str, float], ...] = ()  # certified recall per region to reach
    alpha: float | None = None  # None: calibrated
    beta: float = 0.0


ROWS = {
    row.name: row
    for row in (
        Row("signs-30", "signs", "1%", 30, least=(("far", 0.92), ("close", 0.6))),
        Row("signs-squares", "signs", "16", 30, squares=12, least=(("over", 0.2),)),
        Row("coco-30", "coco", "1%", 30, false_boxes=0.2, least=(("far", 0.38), ("over", 0.2))),
        Row("coco-stated", "coco", "1%", 30, least=(("far", 0.38), ("over", 0.2)), alpha=0.5, beta=0.3),
        Row("stop-30", "stop", "1%", 30, false_boxes=0.2),
        Row("signs-60", "signs", "16", 60),
        Row("coco-squares", "coco", "1%", 30, squares=8, false_boxes=0.2),
    )
}


@dataclass(frozen=True)
class Subject:
    """A model, the images it is measured on, other images for calibration, and how classes correspond."""

    model: Model
    data: Dataset
    calibration: Dataset
    renames: dict[str, str] = dataclasses.field(default_factory=dict)


def subject_of(name: str, images: int, calibration: int) -> Subject | None:
    """The model and the images of a row; None if the real data are missing."""
    if name == "signs":
        others = open_dataset(f"signs:5000:{calibration}")
        return Subject(load_model("signs-yolo"), open_dataset(f"signs:0:{images}"), others)
    file, folder = DATA / "models" / "yolox_nano.onnx", DATA / ("coco128" if name == "coco" else "roadsign")
    if not (file.is_file() and folder.is_dir()):
        return None
    data, renames = open_dataset(folder, task="detect"), dict[str, str]()
    if name == "stop":
        data = dataclasses.replace(data, entries=with_class(data, "stop", images + calibration))
        renames = {"stop": "stop sign"}
    entries, count = data.entries, min(images, len(data.entries) - calibration)
    measured = dataclasses.replace(data, entries=entries[:count])
    others = dataclasses.replace(data, entries=entries[count : count + calibration])
    return Subject(load_model(file), measured, others, renames)


def with_class(data: Dataset, name: str, most: int) -> tuple[Any, ...]:
    """The first entries with an object of a class."""
    number, found = data.classes.index(name), []
    for entry in data.entries:
        truth = entry.load().truth
        if isinstance(truth, Boxes) and number in truth.classes:
            found.append(entry)
        if len(found) == most:
            break
    return tuple(found)


def run_row(row: Row, options: argparse.Namespace) -> dict[str, Any] | None:
    """The figures of a row."""
    subject = subject_of(row.data, options.images, options.calibration)
    if subject is None:
        print(f"{row.name}: skipped: expected models and images in {DATA} (HOLDFAST_DATA)", flush=True)
        return None
    patch, families = PatchSize.parse(row.patch), [HalfPlanes(row.lines), *squares_of(row)]
    plan = CertifyPlan(
        EvaluationPlan(
            subject.model, subject.data, runs=options.work, jobs=options.jobs, renames=subject.renames,
            common_classes=bool(subject.renames),
        ),
        patch,
        MaskDefence(tuple(families), alpha=1.0 if row.alpha is None else row.alpha, beta=row.beta),
        calibrate=row.alpha is None,
        limit=row.false_boxes,
        calibration_data=subject.calibration,
        calibration_images=options.calibration,
    )  # fmt: skip
    result = certify(plan)
    defence = dataclasses.replace(plan.defence, alpha=result.thresholds.alpha)
    return {
        "row": row.name,
        "model": subject.model.name,
        "data": subject.data.name,
        "patch": str(patch),
        "masks": [str(family) for family in defence.families],
        "least": dict(row.least),
        "thresholds": dataclasses.asdict(result.thresholds),
        "clean": dataclasses.asdict(result.clean),
        "recall": recall_of(result),
        "seconds": seconds_of(subject, defence, options.timed),
        "mask_score": result.about["mask_score"],
        "passes": result.about["passes"],
        "measured": measured_on(),
    }


def squares_of(row: Row) -> list[MaskFamily]:
    """The square masks of a row."""
    return [SquareMasks(PatchSize.parse(row.patch), row.squares)] if row.squares else []


def recall_of(result: Certification) -> list[dict[str, Any]]:
    """The certified recall per patch size and region, class-matched, at T = 0."""
    rows = []
    for patch in dict.fromkeys((str(result.about["patch"]), *REPORTED)):
        found = [result.recall(region, patch, 0.0) for region in REGIONS]
        counts = {one.region: [one.certified, one.of, one.places] for one in found if one and one.of}
        if counts:
            rows.append({"patch": patch, **counts})
    return rows


def seconds_of(subject: Subject, defence: MaskDefence, images: int) -> dict[str, float]:
    """The CPU seconds per image of the bare and of the wrapped model, one thread."""
    machine = load_pipeline(pipeline_of(subject.model.card), subject.model, 1)
    decoded = [machine.decode(entry.load().data) for entry in subject.data.entries[:images]]
    bare: Callable[[Any], Any] = lambda pixels: detections_of(machine, machine.prepare_pixels(pixels.copy()))  # noqa: E731
    bare(decoded[0])  # the first run allocates
    return {
        "images": len(decoded),
        "bare": cpu(lambda: [bare(pixels) for pixels in decoded for _ in range(5)]) / (5 * len(decoded)),
        "wrapped": cpu(lambda: [defence(machine, pixels) for pixels in decoded]) / len(decoded),
    }


def cpu(call: Callable[[], Any]) -> float:
    """The CPU seconds of this process in a call."""
    began = time.process_time()
    call()
    return time.process_time() - began


def measured_on() -> dict[str, str]:
    """Date, commit and processor."""
    words = ["git", "rev-parse", "--short", "HEAD"]
    git = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    machine = f"{os.cpu_count()} × {names[0].split(':')[1].strip()}" if names else f"{os.cpu_count()} cores"
    return {"date": time.strftime("%Y-%m-%d"), "commit": git.stdout.strip(), "machine": machine}


def run_art(options: argparse.Namespace) -> dict[str, Any] | None:
    """What ART's ObjectSeeker certifies: random boxes, and boxes that a patch then hides."""
    if importlib.util.find_spec("art") is None:
        print("art: skipped: expected adversarial-robustness-toolbox==1.20.1", flush=True)
        return None
    from certify_art import broken_certificates, random_certificates

    model, data = load_model("signs-yolo"), open_dataset(f"signs:0:{min(options.images, 20)}")
    return {
        "row": "art",
        "random": random_certificates(1000),
        "attacked": broken_certificates(model, data),
        "measured": measured_on(),
    }


def write(rows: dict[str, dict[str, Any]]) -> None:
    """Write the JSON and the Markdown file."""
    RESULTS.mkdir(exist_ok=True)
    plain = {"command": "python benchmarks/certify.py", "versions": versions(), "rows": rows}
    (RESULTS / "certify.json").write_text(json.dumps(plain, indent=1) + "\n")
    (RESULTS / "certify.md").write_text("\n".join(markdown(rows)) + "\n")


def markdown(rows: dict[str, dict[str, Any]]) -> list[str]:
    """The lines of the Markdown file."""
    found = [rows[name] for name in ROWS if name in rows]
    lines = [
        "# Certified patches, as measured",
        "",
        "Written by `python benchmarks/certify.py`; false boxes and CPU seconds are per image.",
        "",
    ]
    lines += [
        "| row | model, data | images | objects | AP50 | wrapped | points lost (95%) | added false boxes |"
        " mask score | passes | CPU s, bare | wrapped |\n|" + "---|" * 12
    ]
    for row in found:
        clean, seconds = row["clean"], row["seconds"]
        lost = " to ".join(number(clean[key], 2) for key in ("low", "high"))
        lines.append(
            f"| {row['row']} | {row['model']}, {row['data']} | {clean['images']} | {clean['objects']} | "
            f"{number(clean['vanilla'])} | {number(clean['wrapped'])} | {number(clean['points_lost'], 2)} "
            f"({lost}) | {clean['added_false']:.2f} | {row['mask_score']:.3f} | {row['passes']:g} | "
            f"{seconds['bare']:.3f} | {seconds['wrapped']:.2f} |"
        )
    for row in found:
        where = row["measured"]
        wanted = ", ".join(f"{region} ≥ {least}" for region, least in row["least"].items())
        aim = f" To reach at {row['patch']}: {wanted}." if wanted else ""
        lines += ["", f"## {row['row']}", "", f"{' and '.join(row['masks'])}.{aim}"]
        lines += [f"{where['date']}, commit {where['commit']}, {where['machine']}.", ""]
        lines += ["| patch | " + " | ".join(REGIONS) + " |", "|---|" + "---|" * len(REGIONS)]
        for recall in row["recall"]:
            cells = [share(recall.get(region)) for region in REGIONS]
            lines.append(f"| {recall['patch']} | " + " | ".join(cells) + " |")
    if "art" in rows:
        lines += ["", "## ART's ObjectSeeker", "", art_text(rows["art"])]
    return lines


def art_text(row: dict[str, Any]) -> str:
    """What ART certifies, as a sentence."""
    random, attacked = row["random"], row["attacked"]
    return (
        f"{random['certified']:,} of {random['boxes']:,} random boxes of a detector that ignores the image "
        f"are called certified. On {attacked['images']} embedded scenes with signs-yolo inside, "
        f"{attacked['certified']} of {attacked['boxes']} boxes are; a grey square of the certified size (1%) "
        f"on the box hides {attacked['hidden']} of these."
    )


def number(value: float | None, digits: int = 3) -> str:
    return "n/a" if value is None else f"{value:.{digits}f}"


def share(cell: list[float] | None) -> str:
    """Certified recall with its counts."""
    return f"{cell[0] / cell[1]:.2f} ({cell[0]} of {cell[1]})" if cell else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("rows", nargs="*", help=f"of {', '.join((*ROWS, 'art'))}; without: all")
    parser.add_argument("--images", type=int, default=40, help="images per row")
    parser.add_argument("--calibration", type=int, default=10, help="other images, for the threshold")
    parser.add_argument("--timed", type=int, default=2, help="images on which CPU seconds are measured")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--work", type=Path, default=Path("build/certify-benchmark"))
    options = parser.parse_args()
    for name in options.rows:
        if name not in (*ROWS, "art"):
            parser.error(f"expected rows of {', '.join((*ROWS, 'art'))}, got {name}")
    for name in options.rows or (*ROWS, "art"):
        row = run_art(options) if name == "art" else run_row(ROWS[name], options)
        if row is None:
            continue
        path = RESULTS / "certify.json"
        kept = json.loads(path.read_text())["rows"] if path.is_file() else {}
        write({**kept, name: row})
        print(f"{name}: finished", flush=True)


if __name__ == "__main__":
    main()
