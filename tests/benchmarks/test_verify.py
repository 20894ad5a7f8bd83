"""The benchmark's own parts: what is drawn, what is told, what is printed. Nothing is verified here."""

import importlib.util
import json
from collections import Counter
from pathlib import Path

import pytest

from holdfast.report.tables import to_text
from holdfast.verify.vnncomp.results import ResultRow, header, line_of
from holdfast.verify.vnncomp.rules import RULES
from holdfast.verify.vnncomp.score import score

FILE = Path(__file__).resolve().parents[2] / "benchmarks" / "verify.py"


@pytest.fixture(scope="module")
def bench():
    spec = importlib.util.spec_from_file_location("bench_verify", FILE)
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules["bench_verify"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["bench_verify"]


@pytest.fixture
def data(bench, tmp_path):
    """A folder of benchmarks with three networks and 24 instances each."""
    for name in bench.SAMPLE:
        folder = tmp_path / "vnncomp" / name
        folder.mkdir(parents=True)
        lines = []
        for i in range(24):
            network, spec = f"n{i % 3}.onnx", f"p{i}.vnnlib"
            (folder / network).write_bytes(b"")
            (folder / spec).write_bytes(b"")
            lines.append(f"{network},{spec},300\n")
        (folder / f"{name}_instances.csv").write_text("".join(lines))
    return tmp_path / "vnncomp"


def test_the_sample_has_sixty_instances_of_every_network(bench, data):
    task = bench.task_of(data, [], bench.SEED)
    assert task.name == "sample"
    assert len(task.instances) == 60
    assert Counter(i.category for i in task.instances) == bench.SAMPLE
    networks = {(i.category, i.network) for i in task.instances}
    assert len(networks) == 18
    assert task.instances == bench.task_of(data, [], bench.SEED).instances
    other = bench.task_of(data, [], 7)
    assert other.name == "sample-7"
    assert other.instances != task.instances


def test_a_whole_benchmark_is_run_in_its_order(bench, data):
    task = bench.task_of(data, ["mnistfc"], bench.SEED)
    assert (task.name, len(task.instances)) == ("mnistfc", 24)
    assert [i.spec for i in task.instances] == [f"p{i}.vnnlib" for i in range(24)]


def test_without_the_data_one_line_says_so(bench, monkeypatch, tmp_path):
    monkeypatch.setenv("HOLDFAST_DATA", str(tmp_path / "none"))
    with pytest.raises(SystemExit, match="set HOLDFAST_DATA to the folder that holds vnncomp"):
        bench.data_folder()


def test_ours_stands_beside_the_published(bench, tmp_path):
    results = [("holds", 3.0), ("holds", 5.0), ("timeout", 116.0)]
    rows = [
        ResultRow("acasxu", "n.onnx", f"p{i}.vnnlib", 116.0, r, s, 2 * s) for i, (r, s) in enumerate(results)
    ]
    (tmp_path / "acasxu.csv").write_text(header() + "".join(map(line_of, rows)))
    (tmp_path / "acasxu").mkdir()
    votes = tmp_path / "acasxu" / "votes.csv"
    votes.write_text(
        "network,spec,tools_saying_holds,tools_saying_violated\nn.onnx,p0.vnnlib,5,0\nn.onnx,p1.vnnlib,1,4\n"
    )
    made = score([str(tmp_path / "acasxu.csv")], RULES["2025"], [votes])
    table = bench.table(made)
    heads = [head.name for head in table.heads]
    ours, total = (dict(zip(heads, row, strict=True)) for row in table.rows)
    assert (ours["solved"], ours["holds"], ours["against votes"]) == ("2 of 3", 2, 1)
    assert (ours["mean s"], ours["CPU s, all"]) == (4.0, 248.0)
    assert ours["nnenum"] == "186/186, 1.5 s"
    assert total["solved"] == "2 of 3"
    assert "arXiv:2109.00498" in to_text(table)


def test_parts_of_an_interrupted_run_stay_apart(bench, tmp_path):
    path = tmp_path / "a.json"
    bench.write_about(path, {"jobs": 1, "machine": bench.machine()}, {"run": 3, "begun": bench.now()})
    bench.write_about(path, {"jobs": 1}, {"run": 2, "begun": bench.now(), "commit": bench.commit()})
    bench.write_about(path, {"jobs": 1}, None)
    content = json.loads(path.read_text())
    assert [part["run"] for part in content["parts"]] == [3, 2]
    assert content["jobs"] == 1
