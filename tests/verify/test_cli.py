"""`holdfast verify` as a user runs it."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from helpers.models import save_graph
from holdfast.core.errors import ModelError
from holdfast.core.model import read_onnx

FLOAT = TensorProto.FLOAT
SPEC = """(declare-const X_0 Real)
(declare-const Y_0 Real)
(assert (>= X_0 0))
(assert (<= X_0 9.0))
(assert (<= Y_0 {}))
"""


def net(path, at=7.0, inputs=1):
    """A file whose output is |floor(x) - at|."""
    nodes = [
        helper.make_node("Floor", ["x"], ["f"]),
        helper.make_node("Sub", ["f", "at"], ["d"]),
        helper.make_node("Abs", ["d"], ["a"]),
        helper.make_node("ReduceSum", ["a", "axis"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", FLOAT, [1, inputs])
    y = helper.make_tensor_value_info("y", FLOAT, [1, 1])
    weights = {"at": np.full(1, at, np.float32), "axis": np.array([1])}
    return save_graph(path, nodes, [x], [y], weights)


def wild(path):
    """A file that no proof engine understands: −100 x / (1 + |100 x|)."""
    nodes = [helper.make_node("Mul", ["x", "k"], ["s"]), helper.make_node("Softsign", ["s"], ["y"])]
    values = [helper.make_tensor_value_info(name, FLOAT, [1, 1]) for name in ("x", "y")]
    return save_graph(path, nodes, values[:1], values[1:], {"k": np.full(1, -100, np.float32)})


def spec(path, bound):
    path.write_text(SPEC.format(bound))
    return path


def test_holds(holdfast, tmp_path):
    done = holdfast("verify", net(tmp_path / "n.onnx"), spec(tmp_path / "p.vnnlib", -0.5), "--json", "v.json")
    lines = done.out.splitlines()
    assert done.code == 0, done
    assert lines[0] == "holds"
    assert lines[1].split() == ["engine", "enumerate"]
    assert lines[3].split() == ["margin", "0.5"]
    told = json.loads((tmp_path / "v.json").read_text())
    assert (told["status"], told["margin"], told["engine"]) == ("holds", 0.5, "enumerate")
    assert "witness" not in told


def test_violated_with_a_witness_that_replays(holdfast, tmp_path):
    model = net(tmp_path / "n.onnx")
    done = holdfast(
        "verify", model, spec(tmp_path / "p.vnnlib", 0.25), "--json", "v.json", "--witness", "w.txt"
    )
    assert done.code == 1, done
    assert done.out.startswith("violated\n")
    assert "replay   Y_0 = 0 (ONNX Runtime, original file)" in done.out
    told = json.loads((tmp_path / "v.json").read_text())
    assert 7 <= told["witness"][0] < 8
    assert told["outputs"] == [0.0]
    assert (tmp_path / "w.txt").read_text() == f"((X_0 {told['witness'][0]!r})\n(Y_0 0.0))\n"


def test_packed_files_are_read(holdfast, tmp_path):
    model, prop = net(tmp_path / "n.onnx"), spec(tmp_path / "p.vnnlib", 0.25)
    packed = []
    for path in (model, prop):
        packed.append(path.with_name(path.name + ".gz"))
        packed[-1].write_bytes(gzip.compress(path.read_bytes()))
    assert holdfast("verify", *packed).code == 1
    model.unlink()
    prop.unlink()
    assert holdfast("verify", model, prop).code == 1  # named without .gz, as VNN-COMP's instances.csv does
    assert holdfast("verify", model, "--check").code == 0
    done = holdfast("model", "info", model)
    assert done.code == 0, done
    assert "n.onnx.gz" in done.out


def test_a_model_of_which_only_the_gz_exists_is_found(holdfast, tmp_path):
    packed = tmp_path / "n.onnx.gz"
    packed.write_bytes(gzip.compress(net(tmp_path / "other.onnx").read_bytes()))
    with pytest.raises(ModelError, match=r"no such model file; did you mean n\.onnx\.gz\?"):
        read_onnx(tmp_path / "n.onnx")
    assert holdfast("model", "info", tmp_path / "n.onnx").code == 0


def test_a_proof_for_real_arithmetic_alone_is_told_as_one(holdfast, tmp_path):
    pytest.importorskip("torch")
    nodes = [helper.make_node("Add", ["x", "c"], ["a"]), helper.make_node("Sub", ["a", "c"], ["b"])]
    nodes.append(helper.make_node("Neg", ["b"], ["y"]))
    values = [helper.make_tensor_value_info(name, FLOAT, [1, 1]) for name in ("x", "y")]
    weights = {"c": np.full(1, 2.0**24, np.float32)}
    model = save_graph(tmp_path / "n.onnx", nodes, values[:1], values[1:], weights)
    done = holdfast("verify", model, spec(tmp_path / "p.vnnlib", -12), "--timeout", "4", "--json", "v.json")
    assert done.code == 0, done
    assert "proven for real arithmetic, not for float32: rounding may reach" in done.out
    assert json.loads((tmp_path / "v.json").read_text())["real_arithmetic_only"] is True


def test_unknown_says_why(holdfast, tmp_path):
    done = holdfast("verify", wild(tmp_path / "n.onnx"), spec(tmp_path / "p.vnnlib", -1.5), "--timeout", "1")
    assert done.code == 3, done
    assert done.out.startswith("unknown\n")
    assert "Softsign" in done.out


def test_a_network_that_is_not_understood_can_still_be_refuted(holdfast, tmp_path):
    done = holdfast("verify", wild(tmp_path / "n.onnx"), spec(tmp_path / "p.vnnlib", -0.5), "--timeout", "5")
    assert done.code == 1, done
    assert "engine   random search" in done.out


def test_an_empty_set_holds(holdfast, tmp_path):
    prop = spec(tmp_path / "p.vnnlib", 0)
    prop.write_text(prop.read_text() + "(assert (>= X_0 10))")
    done = holdfast("verify", net(tmp_path / "n.onnx"), prop)
    assert done.code == 0, done
    assert "dropped" in done.out


BAD_SPECS = {
    "missing": None,
    "empty": b"",
    "folder": "folder",
    "no-gzip.gz": b"(declare-const",
    "cut.gz": gzip.compress(SPEC.format(1).encode() * 50)[:60],
    "open.vnnlib": SPEC.format(1).encode() + b"(assert",
    "nan.vnnlib": SPEC.format("nan").encode(),
    "unbounded.vnnlib": SPEC.format(1).replace("(assert (<= X_0 9.0))", "").encode(),
    "other.vnnlib": SPEC.format(1)
    .replace("(declare-const X_0 Real)", "(declare-const X_0 Real)(declare-const X_1 Real)(assert (= X_1 0))")
    .encode(),
    "outputs.vnnlib": SPEC.format(1).encode() + b"(declare-const Y_1 Real)",
    "binary": bytes(range(256)),
}


@pytest.mark.parametrize("name", list(BAD_SPECS))
def test_bad_specifications_are_one_line(fails, tmp_path, name):
    content = BAD_SPECS[name]
    if content == "folder":
        (tmp_path / name).mkdir()
    elif content is not None:
        (tmp_path / name).write_bytes(content)
    line = fails("verify", net(tmp_path / "n.onnx"), name)
    assert name in line or "n.onnx" in line


def test_a_bomb_is_refused(fails, tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_LIMITS", "spec-mb=1")
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(b";" * (2 << 20)))
    assert "bomb.gz: 2 MB; the limit spec-mb is 1 " in fails("verify", net(tmp_path / "n.onnx"), "bomb.gz")


@pytest.mark.parametrize("content", [None, b"", b"<html>", b"\x08\x07rubbish", "folder", "gz"])
def test_bad_networks_are_one_line(fails, tmp_path, content):
    path = tmp_path / ("n.onnx.gz" if content == "gz" else "n.onnx")
    if content == "folder":
        path.mkdir()
    elif content == "gz":
        path.write_bytes(gzip.compress(b"\0" * 1000)[:20])
    elif content is not None:
        path.write_bytes(content)
    assert "n.onnx" in fails("verify", path, spec(tmp_path / "p.vnnlib", 0))


def test_a_network_with_two_inputs_is_refused(fails, tmp_path):
    values = [helper.make_tensor_value_info(name, FLOAT, [1, 1]) for name in ("a", "b", "y")]
    path = save_graph(
        tmp_path / "n.onnx", [helper.make_node("Add", ["a", "b"], ["y"])], values[:2], values[2:], {}
    )
    assert "one input, got 2: a, b" in fails("verify", path, spec(tmp_path / "p.vnnlib", 0))


def test_a_network_onnxruntime_cannot_run_is_an_error(holdfast, tmp_path):
    path = net(tmp_path / "n.onnx")
    model = onnx.load(str(path))
    model.graph.node[1].input[1] = "x"
    model.graph.node[0].op_type = "Conv"
    onnx.save(model, str(path))
    done = holdfast("verify", path, spec(tmp_path / "p.vnnlib", 0))
    assert done.code == 2
    assert done.out.startswith("error\n")
    assert "Traceback" not in done.err


def test_check_tells_what_is_supported_before_a_run(holdfast, fails, tmp_path):
    done = holdfast("verify", "--check", net(tmp_path / "n.onnx"))
    assert done.code == 0, done
    assert done.out.startswith("supported: all 4 nodes")
    done = holdfast("verify", wild(tmp_path / "w.onnx"), "--check", "--json", "nodes.json")
    assert len(json.loads((tmp_path / "nodes.json").read_text())["nodes"]) == 2
    assert done.code == 3, done
    assert "NO   Softsign" in done.out
    assert "no such model" in fails("verify", "--check", "none.onnx")


def test_a_shipped_model_is_found_by_its_name(holdfast, fails):
    done = holdfast("verify", "signs-class", "--check")
    assert done.code == 0, done
    assert done.out.startswith("supported")
    assert "Did you mean 'signs-class'" in fails("verify", "sign-class", "prop.vnnlib")
    assert "no such model file" in fails("verify", "none.onnx", "prop.vnnlib")


def test_missing_words_are_told(fails, tmp_path):
    assert "VNN-LIB" in fails("verify", net(tmp_path / "n.onnx"))
    assert "NET" in fails("verify")
    assert "--timeout" in fails("verify", "n", "p", "--timeout", "-1")


def test_a_result_that_cannot_be_written_is_told_after_the_verdict(holdfast, tmp_path):
    (tmp_path / "folder").mkdir()
    done = holdfast("verify", net(tmp_path / "n.onnx"), spec(tmp_path / "p.vnnlib", -1), "--json", "folder")
    assert done.code == 2
    assert done.out.startswith("holds\n")
    assert "is a folder" in done.err


def run_stuck(tmp_path, body, *options):
    """The finished process of a verify whose engine does what `body` says."""
    model, prop = net(tmp_path / "n.onnx"), spec(tmp_path / "p.vnnlib", 0)
    code = (
        "import sys, time\nfrom holdfast.verify import run as d\n"
        f"def stuck(*a, **k):\n    {body}\n"
        "d.verify = stuck\nfrom holdfast.cli import main\n"
        f"words = ['verify', {str(model)!r}, {str(prop)!r}, '--json', 'v.json', *{options!r}]\n"
        "sys.argv = ['holdfast', *words]\n"
        "main()\n"
    )
    return subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )


def test_the_timeout_is_kept_whatever_an_engine_does(tmp_path):
    done = run_stuck(tmp_path, "while True: sum(range(1000))", "--timeout", "0.5")
    assert done.returncode == 3, done
    assert done.stdout.startswith("timeout\n")
    assert json.loads((tmp_path / "v.json").read_text())["status"] == "timeout"


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system does not say how large it is")
def test_the_memory_limit_is_kept(tmp_path):
    body = "held = [bytearray(b'x' * 50_000_000) for _ in range(10)]; time.sleep(20)"
    done = run_stuck(tmp_path, body, "--memory", "0.4")
    assert done.returncode == 3, done
    assert done.stdout.startswith("unknown\n")
    assert "0.4 GB" in done.stdout


def test_progress_goes_to_standard_error_as_plain_lines(tmp_path, monkeypatch, capsys):
    from holdfast.verify import cli as verify

    monkeypatch.setattr(verify, "_EVERY_SECONDS", 0.0)
    verify.progress_line()("cells", 1234, -0.5)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "0 s: cells, 1,234 open, best bound -0.5\n"


def test_torch_is_not_imported_for_a_finite_domain(tmp_path):
    model, prop = net(tmp_path / "n.onnx"), spec(tmp_path / "p.vnnlib", 0.25)
    code = (
        "import sys\nfrom holdfast.cli import run\n"
        f"assert run(['verify', {str(model)!r}, {str(prop)!r}]) == 1\n"
        "sys.exit(bool({'torch', 'numba', 'highspy'} & set(sys.modules)))\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
