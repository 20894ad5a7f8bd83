"""Language suites that are really killed, and go on."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from helpers import language as texting

pytestmark = pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
QUESTIONS = 400


def start(folder, runs, jobs, *more, out=subprocess.DEVNULL):
    command = [sys.executable, "-m", "holdfast", "noise", "lm.onnx", "p.jsonl", "--task", "language"]
    command += ["--only", "fp16,int8", "--jobs", jobs, "--runs", runs, *more]
    with (folder / "said.txt").open("w") as said:
        return subprocess.Popen(command, cwd=folder, stdout=out, stderr=said)


def cells(folder, runs):
    return {p: p.read_bytes() for p in (folder / runs).glob("cells/??/*.json")}


@pytest.mark.slow
@pytest.mark.parametrize(("how", "jobs"), [(signal.SIGKILL, "2"), (signal.SIGINT, "1")])
def test_a_killed_suite_goes_on_and_ends_with_the_same_bytes(tmp_path, how, jobs):
    texting.language_model(tmp_path, width=96, heads=4, layers=4)
    texting.piqa(tmp_path / "p.jsonl", QUESTIONS)
    process = start(tmp_path, "killed", jobs, out=subprocess.PIPE)
    deadline = time.monotonic() + 120
    while not cells(tmp_path, "killed") and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    process.send_signal(how)
    process.communicate(timeout=120)  # until its workers have ended too: they hold the other end of the pipe
    finished = cells(tmp_path, "killed")
    assert finished, "the run ended before its first piece was seen"
    assert len(finished) < (2 * QUESTIONS + QUESTIONS - 100) / 25, "it was over before it could be killed"
    if how == signal.SIGINT:
        assert process.returncode == 130
    times = {path: path.stat().st_mtime_ns for path in finished}
    assert start(tmp_path, "killed", jobs, "--json", "again.json").wait(timeout=240) == 0
    assert f"({25 * len(finished)} were cached)" in (tmp_path / "said.txt").read_text()
    assert {path: path.stat().st_mtime_ns for path in finished} == times, "a finished piece was run again"
    assert start(tmp_path, "whole", jobs, "--json", "whole.json").wait(timeout=240) == 0
    one, other = (json.loads((tmp_path / f"{n}.json").read_text())["models"] for n in ("again", "whole"))
    assert one == other
    both = [{p.name: data for p, data in cells(tmp_path, runs).items()} for runs in ("killed", "whole")]
    assert both[0] == both[1]
    assert len(both[0]) == 16 + 16 + 12
