"""Odd terminals: a closed pipe, a full disk, an encoding without lines, a folder that may not be entered."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers import models as making

HOLDFAST = [sys.executable, "-c", "from holdfast.cli import main; main()"]


def test_a_closed_pipe_is_no_failure(tmp_path):
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*HOLDFAST, "evaluate", "--explain"],
        stdout=writing,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.skipif(sys.platform != "linux", reason="no /dev/full")
def test_a_full_disk_behind_standard_output_is_one_line(tmp_path):
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*HOLDFAST, "evaluate", "--explain"],
            stdout=full,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
            check=False,
        )
    assert (done.returncode, done.stderr) == (6, b"holdfast: No space left on device\n")


def test_a_terminal_of_another_encoding(tmp_path):
    making.detector(tmp_path)
    making.blob_coco(tmp_path / "data", 2)
    done = subprocess.run(
        [*HOLDFAST, "evaluate", "blobs.onnx", "data", "--jobs", "1"],
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
        capture_output=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b"AP50" in done.stdout


def test_an_error_of_the_system_is_one_line(fails, monkeypatch, tmp_path):
    def refuse(self, **_):
        raise PermissionError(13, "Permission denied", str(self))

    making.classifier(tmp_path)
    monkeypatch.setattr(Path, "is_file", refuse)
    assert fails("evaluate", "tiny.onnx", "data") == "tiny.onnx: Permission denied"


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        ("OSError(28, 'No space left', 'runs/x')", 6, "runs/x: No space left"),
        ("OSError(13, 'Permission denied', 'x')", 2, "x: Permission denied"),
        ("MemoryError()", 6, "out of memory"),
        ("errors.MachineError('a worker process ended')", 6, "a worker process ended"),
        ("errors.DiskError('full')", 6, "full"),
        ("errors.OutputError('is a folder')", 2, "is a folder"),
        (
            "type('PanicException', (BaseException,), {})('index')",
            70,
            "internal error (PanicException: index)",
        ),
        ("ZeroDivisionError('x')", 70, "please report it"),
    ],
)
def test_the_exit_code_tells_bad_input_from_trouble_of_the_machine(raised, code, said):
    script = f"""
from holdfast import cli
from holdfast.cli import app
from holdfast.core import errors
def execute(_):
    raise {raised}
app.execute = execute
cli.main()
"""
    command = [sys.executable, "-P", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
