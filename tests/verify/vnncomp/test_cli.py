"""`holdfast vnncomp` as it is typed; the verifier's place is taken by a script where it would take long."""

import json
import os
import signal
import subprocess
import sys

import pytest

from holdfast.verify.vnncomp import run as runner

FAKE = """
import sys, time
with open(sys.argv[2]) as stream:
    what, *seconds = stream.read().split()
time.sleep(float(seconds[0]) if seconds else 0)
if what == "violated":
    open(sys.argv[sys.argv.index("--witness") + 1], "w").write("((X_0 1))")
print(what)
sys.exit({"holds": 0, "violated": 1, "error": 2, "unknown": 3, "timeout": 3}[what])
"""


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """A function that makes ./bench of these specifications and has them verified by the script."""
    script = tmp_path / "fake.py"
    script.write_text(FAKE)
    monkeypatch.setattr(runner.instance, "verify_command", lambda: [sys.executable, str(script)])

    def make(*specs):
        folder = tmp_path / "bench"
        folder.mkdir(exist_ok=True)
        (folder / "n.onnx").write_bytes(b"")
        for i, what in enumerate(specs):
            (folder / f"p{i}.vnnlib").write_text(what)
        (folder / "instances.csv").write_text("".join(f"n.onnx,p{i}.vnnlib,60\n" for i in range(len(specs))))
        return folder

    return make


def test_a_benchmark_is_run_and_goes_on(holdfast, bench):
    bench("holds", "violated", "unknown")
    done = holdfast("vnncomp", "run", "bench", "--out", "r.csv")
    assert done.code == 0
    assert done.err.splitlines()[0].startswith("1/3 n p0: holds ")
    assert "left" in done.err.splitlines()[0]
    assert done.err.splitlines()[-1] == "results  r.csv (holdfast vnncomp score r.csv)"
    assert [w for w in done.out.split() if w.isdigit()][:7] == ["3", "2", "1", "1", "0", "1", "0"]
    again = holdfast("vnncomp", "run", "bench/instances.csv", "--out", "r.csv")
    assert again.err.splitlines()[0].startswith("results")
    assert again.out == done.out


def test_errors_give_code_4(holdfast, bench):
    bench("holds", "error")
    assert holdfast("vnncomp", "run", "bench", "-o", "r.csv").code == 4


def test_samples_and_limits(holdfast, bench, tmp_path):
    bench(*["holds"] * 8)
    done = holdfast("vnncomp", "run", "bench", "-o", "r.csv", "--sample", 3, "--seed", 5, "--limit", 7)
    assert done.code == 0
    assert done.err.count("p") >= 3
    lines = (tmp_path / "r.csv").read_text().splitlines()
    assert len(lines) == 4
    assert all(line.split(",")[3] == "7" for line in lines[1:])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("run", "none.csv", "-o", "r.csv"), "none.csv: no such file"),
        (("run", "bench", "-o", "r.csv", "--seed", "1"), "--seed selects the sample; add --sample"),
        (("run", "bench", "-o", "r.csv", "--jobs", "0"), "--jobs: expected a whole number from 1"),
        (
            ("run", "bench", "-o", "r.csv", "--timeout-scale", "-1"),
            "--timeout-scale: expected a number above 0",
        ),
        (("run", "bench"), "missing --out"),
        (("score", "none.csv"), "none.csv: no such results"),
        (("score",), "missing RESULTS"),
        (("score", "r.csv", "--rules", "2020"), "--rules: expected 2021, 2022"),
        (("score", "r.csv", "--csv", "--markdown"), "expected --csv or --markdown, not both"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(fails, bench, arguments, told):
    bench("holds")
    assert fails("vnncomp", *arguments).startswith(told)


def test_results_are_scored_in_four_forms_and_on_a_page(holdfast, bench, tmp_path):
    bench("holds", "violated 0", "timeout")
    holdfast("vnncomp", "run", "bench", "-o", "r.csv")
    (tmp_path / "peer.csv").write_text(
        "bench,x/n.onnx,x/p0.vnnlib,1,unsat,9\nbench,x/n.onnx,x/p2.vnnlib,1,unsat,9\n"
    )
    done = holdfast(
        "vnncomp", "score", "r.csv", "peer.csv", "--rules", "2021", "--json", "s.json", "--report", "s.html"
    )
    assert done.code == 0
    assert "VNN-COMP 2021" in done.out
    assert (tmp_path / "s.html").read_text().startswith("<!doctype html>")
    content = json.loads((tmp_path / "s.json").read_text())
    assert content["tools"] == ["holdfast", "peer"]
    assert [line["solved"] for line in content["benchmarks"]] == [2, 2]
    as_csv = holdfast("vnncomp", "score", "r.csv", "peer.csv", "--csv").out.splitlines()
    assert as_csv[0].startswith("benchmark,tool,of")
    assert len(as_csv) == 3
    assert "| bench" in holdfast("vnncomp", "score", "r.csv", "peer.csv", "--markdown").out


def test_a_wrong_answer_of_ours_gives_code_1(holdfast, bench):
    folder = bench("violated")  # its counterexample has one input, the network is no network at all
    (folder / "p0.vnnlib").write_text("violated")
    holdfast("vnncomp", "run", "bench", "-o", "r.csv")
    (folder / "votes.csv").write_text(
        "network,spec,tools_saying_holds,tools_saying_violated\nn.onnx,p0.vnnlib,9,0\n"
    )
    voted = holdfast("vnncomp", "score", "r.csv", "--rules", "2021", "--votes", "bench/votes.csv")
    assert voted.code == 1
    assert "9 earlier tools report holds, 0 violated" in voted.out


def test_an_instance_writes_its_result_file_whatever_happens(holdfast, tmp_path):
    done = holdfast("vnncomp", "instance", "n.onnx", "p.vnnlib", "result.txt", 10, "--protocol", "document")
    assert done.code == 0
    assert (tmp_path / "result.txt").read_text().startswith("error ")
    assert "n.onnx: no such file" in done.out


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
@pytest.mark.parametrize("how", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGKILL])
def test_a_run_that_is_really_killed_goes_on(tmp_path, bench, how):
    bench(*["holds 0.3"] * 6)
    program = (
        "import sys; from holdfast.verify.vnncomp import run; "
        f"run.instance.verify_command = lambda: [sys.executable, {str(tmp_path / 'fake.py')!r}]; "
        "from holdfast.cli import main; main()"
    )
    command = [sys.executable, "-c", program, "vnncomp", "run", "bench", "-o", "r.csv"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    seen = process.stderr.readline() + process.stderr.readline()
    assert "2/6" in seen
    process.send_signal(how)
    said = process.communicate(timeout=20)[1]
    if how == signal.SIGINT:
        assert process.returncode == 130
        assert "run the same command again to resume" in said
    before = (tmp_path / "r.csv").read_text().splitlines()
    assert 3 <= len(before) < 7
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)
    assert f"{len(before)}/6" in again.stderr.splitlines()[0]
    assert f"{len(before) - 1} cached" in again.stderr.splitlines()[0]
    after = (tmp_path / "r.csv").read_text().splitlines()
    assert after[: len(before)] == before
    assert len(after) == 7


def test_the_help_needs_nothing_heavy():
    program = (
        "import sys; from holdfast.cli import run; run(['vnncomp', 'run', '--help']); "
        "print(sorted(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = done.stdout.splitlines()[-1]
    for heavy in ("'numpy'", "'onnx'", "'onnxruntime'", "'torch'", "'numba'"):
        assert heavy not in loaded
