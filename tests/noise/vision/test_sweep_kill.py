"""Sweeps that are really killed, and go on."""

import os
import signal
import subprocess
import sys
import time

import orjson
import pytest

from helpers import models as making
from holdfast.core.pipeline import pipeline_of
from holdfast.data.open import open_dataset
from holdfast.graph.load import load_model
from holdfast.noise.vision.sweep import SweepPlan, Variant, sweep

RESIZES = ("pillow-bilinear", "pillow-nearest", "opencv-nearest", "opencv-bilinear", "opencv-area")
SCRIPT = """
import sys
from pathlib import Path

from holdfast.core.pipeline import pipeline_of
from holdfast.data.open import open_dataset
from holdfast.graph.load import load_model
from holdfast.noise.vision.sweep import SweepPlan, sweep
from holdfast.noise.vision.sweep import Variant

if __name__ == "__main__":
    model = load_model(Path("tiny.onnx"))
    clean = pipeline_of(model.card)
    variants = tuple(Variant(n, clean.replace(resize=n)) for n in sys.argv[3:])
    plan = SweepPlan(
        model, open_dataset("data"), variants=variants, runs=Path(sys.argv[1]), jobs=int(sys.argv[2])
    )
    found = []
    made = sweep(plan, lambda done, reused: found.append(reused))
    print(sum(found), [r.scores.tolist() for s in made.values() for r in s.read().records])
"""


def cells(folder):
    return {p.name: p.read_bytes() for p in folder.glob("cells/*/*.json")}


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
@pytest.mark.parametrize("jobs", [pytest.param("1", marks=pytest.mark.slow), "2"])
def test_a_killed_sweep_goes_on_and_ends_with_the_same_cells(tmp_path, jobs):
    making.classifier(tmp_path)
    making.image_folder(tmp_path / "data", 250, size=160)
    (tmp_path / "script.py").write_text(SCRIPT)

    def start(runs, jobs):
        command = [sys.executable, "script.py", runs, jobs, *RESIZES]
        return subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)

    process = start("killed", jobs)
    deadline = time.monotonic() + 60
    while not cells(tmp_path / "killed") and time.monotonic() < deadline:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=120)  # until its workers have ended too: they hold the other end of the pipe
    seen = len(cells(tmp_path / "killed"))
    assert 0 < seen < 5 * 250, "the sweep was not killed midway"
    before = {p: p.stat().st_mtime_ns for p in tmp_path.glob("killed/cells/*/*.json")}
    told = start("killed", jobs).communicate(timeout=120)[0].split(" ", 1)
    assert int(told[0]) == seen
    assert {p: p.stat().st_mtime_ns for p in before} == before, "a finished cell was redone"
    model = load_model(tmp_path / "tiny.onnx")
    variants = tuple(Variant(n, pipeline_of(model.card).replace(resize=n)) for n in RESIZES)
    data, runs = open_dataset(tmp_path / "data"), tmp_path / "undisturbed"
    made = sweep(SweepPlan(model, data, variants=variants, runs=runs))
    assert f"{[r.scores.tolist() for s in made.values() for r in s.read().records]}\n" == told[1]
    assert cells(tmp_path / "killed") == cells(tmp_path / "undisturbed")
    plain = orjson.loads(next(iter(cells(tmp_path / "killed").values())).partition(b"\n")[2])
    assert plain["name"] == plain["record"]["name"]
    assert plain["input"]
