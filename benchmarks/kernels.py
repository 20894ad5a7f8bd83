"""Compiled kernels beside the functions they stand for: resizes, the paper's colours, normalisation, digests.

    python benchmarks/kernels.py [--runs 100]

One picture of noise of 500×375 pixels, resized to 341×256 of which the middle 224×224 are wanted, as a
classifier of ImageNet sees it; to YUV or NV12 and back whole; its middle normalised and hashed. Best of so
many runs each, by turns, one thread; the bits are compared before anything is timed. Then, in new processes,
how long the kernels take to load. The plain NV12 uses the kernels of eq. 5 and 6. Writes
benchmarks/results/kernels.md.
"""

from __future__ import annotations

import argparse
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import PIL

from holdfast.core.frame import Window
from holdfast.core.types import Size
from holdfast.stages import normalise
from holdfast.stages.colour import bt601, nv12
from holdfast.stages.quick import equal, mixed, opencv
from holdfast.stages.quick.library import KERNELS
from holdfast.stages.quick.pillow import plain, rule_of
from holdfast.stages.quick.resample import NAMES, resized

RESULTS = Path(__file__).resolve().parent / "results"
SIZE, WINDOW = Size(341, 256), Window(58, 16, 224, 224)
Work = Callable[[], object]


def timed(one: Work, other: Work, runs: int) -> tuple[float, float]:
    """The least milliseconds of each, run by turns."""
    best = [float("inf"), float("inf")]
    for _ in range(runs):
        for place, work in enumerate((one, other)):
            began = time.perf_counter()
            work()
            best[place] = min(best[place], 1e3 * (time.perf_counter() - began))
    return best[0], best[1]


def pairs(picture: np.ndarray) -> dict[str, tuple[Work, Work]]:
    """Each work by the plain function and by the kernel, which give the same; SystemExit if they do not."""
    rule = rule_of()
    if rule is None:
        raise SystemExit(f"the kernel does not give the bits of Pillow {PIL.__version__}: nothing to time")
    first = rule(Size(500, 375), SIZE)
    left, top, width, height = WINDOW

    def by_pillow(name: str) -> np.ndarray:
        return plain(picture, SIZE, name)[top : top + height, left : left + width]

    found: dict[str, tuple[Work, Work]] = {}
    for name in NAMES:
        both = (
            lambda name=name: by_pillow(name),
            lambda name=name: resized(picture, SIZE, name, WINDOW, first),
        )
        found[f"Pillow's {name.lower()}"] = both
    planes = bt601._forth(picture)
    for name in (opencv.LANCZOS, opencv.AREA):
        found[f"OpenCV's {name}"] = (
            lambda name=name: opencv.plain(picture, SIZE, name)[top : top + height, left : left + width],
            lambda name=name: opencv.resized(picture, SIZE, name, WINDOW),
        )
    found["RGB to YUV (eq. 5)"] = lambda: bt601._forth(picture), lambda: bt601._planes(picture)
    found["YUV to RGB (eq. 6)"] = (
        lambda: bt601._back(*planes, bt601.EXACT),
        lambda: bt601._pixels(*planes),
    )
    found["NV12 and back, chroma repeated"] = (
        lambda: nv12._nearest(picture),
        lambda: nv12._compiled(picture, bilinear=False),
    )
    found["NV12 and back, chroma interpolated"] = (
        lambda: nv12._bilinear(picture),
        lambda: nv12._compiled(picture, bilinear=True),
    )
    small, three = np.ascontiguousarray(picture[:224, :224]), np.array([0.5, 1.5, 2.5], np.float32)
    found["normalisation"] = (
        lambda: normalise._shifted(small, three, three, False, 0),
        lambda: normalise._compiled(small, three, three, False, 0),
    )
    blocks = small.reshape(-1).view(np.uint32).reshape(-1, mixed.WORDS)
    found["sums of a digest"] = lambda: mixed._sums(blocks), lambda: mixed._compiled(blocks)
    for name, (one, other) in found.items():
        if not equal(one(), other()):
            raise SystemExit(f"{name}: the kernel gives other numbers")
    return found


LOADS = {
    "from the kept object code": (
        "from holdfast.stages.quick.library import KERNELS; KERNELS.entry('down').loaded()"
    ),
    "importing numba alone": "import numba",
}


def loading(code: str, runs: int = 5) -> float:
    """The least milliseconds that a new process takes for it, numpy imported before."""
    timed = f"import numpy, time; began = time.perf_counter()\n{code}\nprint(time.perf_counter() - began)"
    told = [
        subprocess.run([sys.executable, "-c", timed], capture_output=True, check=True) for _ in range(runs)
    ]
    return 1e3 * min(float(one.stdout) for one in told)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=100)
    asked = parser.parse_args()
    picture = np.random.default_rng(0).integers(0, 256, (375, 500, 3), np.uint8)
    rows = []
    for name, (one, other) in pairs(picture).items():
        before, after = timed(one, other, asked.runs)
        rows.append(f"| {name} | {before:.2f} | {after:.2f} | {before / after:.1f} |")
    made_with = f"Pillow {PIL.__version__}, numpy {np.__version__}, {platform.machine()}"
    said = f"`python benchmarks/kernels.py`: {made_with}; the bits are the same."
    head = ["| work | plain, ms | kernel, ms | ratio |", "|---|---:|---:|---:|"]
    KERNELS.entry("down").loaded()  # compiled, if they were not
    loads = [f"| {name} | {loading(code):.0f} |" for name, code in LOADS.items()]
    loads = ["", "| loading, in a new process | ms |", "|---|---:|", *loads]
    text = "\n".join(["# Kernels, as measured", "", said, "", *head, *rows, *loads, ""])
    print(text)
    (RESULTS / "kernels.md").write_text(text)


if __name__ == "__main__":
    main()
