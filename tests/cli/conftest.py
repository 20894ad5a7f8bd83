"""The command line as a user runs it, in an empty folder."""

from dataclasses import dataclass

import pytest

from holdfast.cli import run


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


@pytest.fixture
def holdfast(tmp_path, monkeypatch, capfd):
    """A function that runs `holdfast …` in an empty folder and gives exit code and output."""
    monkeypatch.chdir(tmp_path)

    def command(*arguments):
        code = run([str(a) for a in arguments])
        said = capfd.readouterr()
        return Done(code, said.out, said.err)

    return command


@pytest.fixture
def fails(holdfast):
    """A function that runs a command that must fail: one line, exit code 2, no traceback; gives the line."""

    def command(*arguments):
        done = holdfast(*arguments)
        lines = done.err.strip().splitlines()
        assert done.code == 2, done
        assert "Traceback" not in done.err
        assert lines[-1].startswith("holdfast: ")
        assert sum(line.startswith("holdfast: ") for line in lines) == 1
        return lines[-1].removeprefix("holdfast: ")

    return command
