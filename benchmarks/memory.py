"""Memory of `holdfast evaluate` (or `noise`) as images grow: 500 against 5,000, whole process tree, peak.

    python benchmarks/memory.py [--model signs-yolo] [--jobs 2] [--few 500] [--many 5000]
    python benchmarks/memory.py --noise decode,colour --few 100 --many 1000

The data set is the embedded scenes, written once and linked under many names, so that files differ in name
only and nothing is cached between them (every name is evaluated by itself).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SCENES = 50


def make(folder: Path, images: int, scenes: Path) -> Path:
    """A COCO data set of that many images, links to the scenes."""
    truth = json.loads((scenes / "annotations.json").read_text())
    (folder / "images").mkdir(parents=True)
    by_image: dict[int, list[dict]] = {}
    for a in truth["annotations"]:
        by_image.setdefault(a["image_id"], []).append(a)
    records, annotations = [], []
    for i in range(images):
        source = truth["images"][i % SCENES]
        name = f"{i:06}.jpg"
        os.link(scenes / "images" / Path(source["file_name"]).name, folder / "images" / name)
        records.append({**source, "id": i, "file_name": name})
        for a in by_image.get(source["id"], []):
            annotations.append({**a, "id": len(annotations), "image_id": i})
    content = {"images": records, "annotations": annotations, "categories": truth["categories"]}
    (folder / "annotations.json").write_text(json.dumps(content))
    return folder


def children(pid: int) -> list[int]:
    """The process and all its descendants."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*"):
        try:
            for child in (task / "children").read_text().split():
                found += children(int(child))
        except OSError:
            continue
    return found


def resident(pid: int) -> int:
    """Bytes of private and shared memory of the tree; shared pages are counted in each process."""
    total = 0
    for process in children(pid):
        try:
            pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
        except (OSError, IndexError):
            continue
        total += pages * os.sysconf("SC_PAGE_SIZE")
    return total


def measure(model: str, data: Path, jobs: int, runs: Path, noise: str) -> tuple[float, float]:
    """Peak megabytes of the tree and seconds."""
    what = ["noise", "--only", noise] if noise else ["evaluate"]
    where = [model, str(data), "--jobs", str(jobs), "--runs", str(runs)]
    command = [sys.executable, "-m", "holdfast", *what, *where]
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    peak = 0
    while process.poll() is None:
        peak = max(peak, resident(process.pid))
        time.sleep(0.05)
    if process.returncode:
        sys.exit(f"{' '.join(command)} ended with {process.returncode}")
    return peak / 1e6, time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="signs-yolo")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--few", type=int, default=500)
    parser.add_argument("--many", type=int, default=5000)
    parser.add_argument("--noise", default="", help="the noise suite with these families instead")
    options = parser.parse_args()
    from holdfast.data.signs.scene import make as make_signs

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_signs(folder / "scenes", SCENES, 0)
        peaks = []
        for images in (options.few, options.many):
            data = make(folder / f"data{images}", images, folder / "scenes")
            runs = folder / f"runs{images}"
            peak, seconds = measure(options.model, data, options.jobs, runs, options.noise)
            peaks.append(peak)
            print(
                f"{images:6} images  {peak:7.0f} MB peak  {seconds:7.1f} s  {images / seconds:6.1f} images/s"
            )
        print(f"growth {peaks[1] - peaks[0]:.0f} MB")


if __name__ == "__main__":
    main()
