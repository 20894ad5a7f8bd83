"""The command line as a user runs it: a new process."""

import subprocess
import sys

import pytest


@pytest.fixture
def holdfast(tmp_path):
    """A function that runs `holdfast …` in an empty folder and gives the finished process."""

    def run(*arguments, **options):
        command = [sys.executable, "-m", "holdfast", *map(str, arguments)]
        return subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False, **options
        )

    return run


@pytest.fixture
def fails(holdfast):
    """A function that runs a command that must fail: one line, exit code 2, no traceback; gives the line."""

    def run(*arguments, **options):
        done = holdfast(*arguments, **options)
        lines = done.stderr.strip().splitlines()
        assert done.returncode == 2, (done.returncode, done.stderr)
        assert "Traceback" not in done.stderr
        assert lines[-1].startswith("holdfast: ")
        assert sum(line.startswith("holdfast: ") for line in lines) == 1
        return lines[-1]

    return run
