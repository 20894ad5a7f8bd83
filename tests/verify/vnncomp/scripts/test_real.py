"""Scripts, runner and scorer with the real verifier, on a network made here and on one of the competition."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from helpers import models as making
from holdfast.verify.vnncomp.instances import limited, read_instances
from holdfast.verify.vnncomp.rules import RULES
from holdfast.verify.vnncomp.run import BenchmarkPlan, run
from holdfast.verify.vnncomp.score import score

SCRIPTS = Path(__file__).resolve().parents[4] / "vnncomp"
BOX = (
    "(declare-const X_0 Real)(declare-const X_1 Real)(declare-const Y_0 Real)"
    "(assert (>= X_0 0))(assert (<= X_0 1))(assert (>= X_1 0))(assert (<= X_1 1))"
)


@pytest.fixture
def sums(tmp_path):
    """y = relu(x0) + relu(x1): at least 0 on the box, so `holds` below 0 and `violated` at one half."""
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("MatMul", ["r", "w"], ["y"])]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1])
    folder = tmp_path / "sums"
    making.save_graph(folder / "n.onnx", nodes, [x], [y], {"w": np.ones((2, 1), np.float32)})
    (folder / "holds.vnnlib").write_text(f"{BOX}(assert (<= Y_0 -0.5))")
    (folder / "violated.vnnlib").write_text(f"{BOX}(assert (<= Y_0 0.5))")
    (folder / "instances.csv").write_text("n.onnx,holds.vnnlib,60\nn.onnx,violated.vnnlib,60\n")
    return folder


@pytest.mark.skipif(os.name == "nt", reason="bash scripts")
@pytest.mark.parametrize(("version", "word"), [("v1", "violated"), ("v2", "sat")])
def test_the_scripts_answer(sums, tmp_path, version, word):
    environment = {**os.environ, "HOLDFAST_PYTHON": sys.executable}
    files = [str(sums / "n.onnx"), str(sums / "violated.vnnlib")]
    for script, more in (("prepare_instance.sh", []), ("run_instance.sh", [str(tmp_path / "r"), "60"])):
        command = [str(SCRIPTS / script), version, "sums", *files, *more]
        subprocess.run(command, env=environment, check=True, timeout=120, capture_output=True)
    text = (tmp_path / "r").read_text()
    assert text.split()[0] == word
    assert ("(X_0 " in text) == (version == "v2")


def test_a_benchmark_is_run_and_its_counterexample_replays(sums, tmp_path):
    out = tmp_path / "r.csv"
    rows = run(BenchmarkPlan(read_instances(sums), out))
    assert [row.result for row in rows] == ["holds", "violated"]
    assert all(row.engine and row.cpu_seconds for row in rows)
    made = score([str(out)], RULES["2026"])
    assert [one.answers["holdfast"].grade for one in made.instances] == ["unchecked", "valid"]
    assert made.lines[0].points == 20


@pytest.mark.shared
def test_packed_files_of_the_competition(shared_data, tmp_path):
    folder = shared_data / "vnncomp" / "cctsdb_yolo"
    if not folder.is_dir():
        pytest.skip(f"no benchmark at {folder}")
    first, second = limited(read_instances(folder)[:2], most=60)
    assert first.network_path.suffix == ".gz"
    out = tmp_path / "r.csv"
    assert [row.result for row in run(BenchmarkPlan((first, second), out))] == ["holds", "violated"]
    made = score([str(out)], RULES["2025"])
    assert made.instances[1].answers["holdfast"].grade == "valid"
    assert made.lines[0].wrong == 0
