"""Runs that are really killed, and go on."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from helpers import models as making

IMAGES = 600


def start(folder, *more):
    return begin(folder, "evaluate", "tiny.onnx", "data", *more)


def begin(folder, *words):
    command = [sys.executable, "-m", "holdfast", *words]
    with (folder / "said.txt").open("w") as said:
        return subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=said)


def said(folder):
    return (folder / "said.txt").read_text()


def cells(folder):
    return set(folder.glob("holdfast-runs/cells/*/*.json"))


def kill_midway(process, folder, how):
    deadline = time.monotonic() + 60
    while len(cells(folder)) < 10 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    process.send_signal(how)
    process.wait(timeout=30)
    seen = -1  # workers notice within half a second and may still finish the cell they are at
    while seen != len(cells(folder)):
        seen = len(cells(folder))
        time.sleep(1.5)


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
@pytest.mark.parametrize(
    ("how", "jobs"),
    [
        pytest.param(signal.SIGKILL, "1", marks=pytest.mark.slow),
        (signal.SIGKILL, "2"),
        pytest.param(signal.SIGINT, "1", marks=pytest.mark.slow),
    ],
)
def test_a_killed_run_goes_on_and_ends_with_the_same_numbers(tmp_path, how, jobs):
    making.classifier(tmp_path)
    making.image_folder(tmp_path / "data", IMAGES, size=160)
    process = start(tmp_path, "--jobs", jobs)
    kill_midway(process, tmp_path, how)
    finished = cells(tmp_path)
    assert finished, "the run ended before its first cell was seen"
    assert len(finished) < IMAGES, "the run was over before it could be killed"
    if how == signal.SIGINT:
        assert process.returncode == 130
        assert "run the same command again to resume" in said(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in finished}
    again = start(tmp_path, "--jobs", jobs, "--json", "again.json")
    assert again.wait(timeout=120) == 0
    assert f"({len(finished)} were cached)" in said(tmp_path)
    assert {path: path.stat().st_mtime_ns for path in finished} == before, "a finished cell was redone"
    undisturbed = start(tmp_path, "--jobs", "1", "--json", "undisturbed.json", "--runs", "elsewhere")
    assert undisturbed.wait(timeout=120) == 0
    one, other = (json.loads((tmp_path / f"{n}.json").read_text()) for n in ("again", "undisturbed"))
    assert one.pop("run") != other.pop("run")
    assert one == other
    same = {p.name: p.read_bytes() for p in tmp_path.glob("elsewhere/cells/*/*.json")}
    assert {p.name: p.read_bytes() for p in cells(tmp_path)} == same


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_workers_end_when_their_parent_is_killed(tmp_path):
    making.classifier(tmp_path)
    making.image_folder(tmp_path / "data", IMAGES, size=160)
    process = start(tmp_path, "--jobs", "2")
    children = []
    while not cells(tmp_path) and process.poll() is None:
        listed = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, text=True
        )
        children = [int(pid) for pid in listed.stdout.split()] or children
        time.sleep(0.01)
    process.kill()
    process.wait(timeout=30)
    assert children
    deadline = time.monotonic() + 20
    while any(map(alive, children)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(alive, children))


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stream:  # noqa: PTH123
            return stream.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
@pytest.mark.parametrize(
    "seconds", [0.3, 1.2, *(pytest.param(s, marks=pytest.mark.slow) for s in (0.8, 1.6, 2.0))]
)
def test_ctrl_c_ends_two_processes_soon_whenever_it_comes(tmp_path, seconds):
    making.classifier(tmp_path)
    making.image_folder(tmp_path / "data", 400, size=160)
    process = start(tmp_path, "--jobs", "2")
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) in (0, 130, -signal.SIGINT)
    assert "Traceback" not in said(tmp_path)


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
@pytest.mark.parametrize("jobs", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_ctrl_c_ends_a_network_that_would_run_for_years(tmp_path, jobs):
    making.endless_classifier(tmp_path)
    making.image_folder(tmp_path / "data", 50)
    process = begin(tmp_path, "evaluate", "endless.onnx", "data", "--jobs", jobs)
    deadline = time.monotonic() + 60
    while cpu_seconds(process.pid) < 3 and time.monotonic() < deadline:  # more than the start takes
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130  # a lost Ctrl-C ends here, by the timeout
    assert said(tmp_path).endswith(
        "holdfast: Interrupted. Completed work is saved; run the same command again to resume.\n"
    )
    assert not cells(tmp_path)


def cpu_seconds(pid):
    """CPU seconds of a process and its children."""
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True)
    ticks = 0
    for one in (pid, *map(int, listed.stdout.split())):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{one}/stat").read_text().rsplit(")", 1)[1].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize(
    "words", [("evaluate",), pytest.param(("noise", "--only", "resize"), marks=pytest.mark.slow)]
)
def test_modules_of_the_working_directory_are_not_executed(tmp_path, words):
    making.classifier(tmp_path)
    making.image_folder(tmp_path / "data", 30)
    ran = making.planted(tmp_path)
    command, *more = words
    assert begin(tmp_path, command, "tiny.onnx", "data", "--jobs", "2", *more).wait(timeout=120) == 0
    assert ran() == []


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_ctrl_c_ends_a_command_whose_messages_nobody_reads():
    code = "import os, signal; from holdfast.cli import _stop; os.set_blocking(2, False)\n"
    code += "try:\n  while True: os.write(2, b'x' * 4096)\nexcept BlockingIOError: os.set_blocking(2, True)\n"
    command = [sys.executable, "-c", code + "_stop(signal.SIGINT, None)"]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        assert process.wait(timeout=60) == 130
