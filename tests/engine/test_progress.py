"""Progress where there is no terminal: plain lines, also while one thing takes long."""

import re
import time

import pytest

from holdfast.engine import executor as shown
from holdfast.engine.executor import progress


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: False, raising=False)


def test_a_line_says_how_far_it_is(monkeypatch, capsys):
    monkeypatch.setattr(shown, "EVERY_SECONDS", 0.0)
    with progress("evaluating", 4) as step:
        step(1, 1)
        step(2, 0)
        step(1, 0)
    first, second, third = capsys.readouterr().err.splitlines()
    assert first == "evaluating: 1/4 images (1 was cached)"
    assert re.fullmatch(r"evaluating: 3/4 images, [\d.]+ images/s, \d+ s left \(1 was cached\)", second)
    assert re.fullmatch(r"evaluating: 4/4 images, [\d.]+ images/s \(1 was cached\)", third)


def test_lines_do_not_come_too_often_but_the_last_one_does(capsys):
    with progress("evaluating", 100) as step:
        for _ in range(100):
            step(1, 0)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("evaluating: 100/100 images")


def test_a_long_silence_is_broken(monkeypatch, capsys):
    monkeypatch.setattr(shown, "SILENT_SECONDS", 0.05)
    said, end = "", time.monotonic() + 60
    with progress("attack 300px", 8) as step:
        step(1, 0)
        while not said and time.monotonic() < end:
            time.sleep(0.01)
            said = capsys.readouterr().err
    assert re.match(r"attack 300px: 1/8 images, at work for \d+ s\n", said)
    time.sleep(0.2)
    capsys.readouterr()
    time.sleep(0.2)
    assert capsys.readouterr().err == ""  # nobody speaks after the end
