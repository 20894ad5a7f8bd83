import os
import time
from pathlib import Path

import pytest

from holdfast.verify.vnncomp import instance as module
from holdfast.verify.vnncomp.instance import abandon, begin, wait
from holdfast.verify.vnncomp.instances import limited, read_instances


def tried(fake, bench, what, limit=20.0):
    (instance,) = limited(read_instances(bench({"p.vnnlib": what})), most=limit)
    ((_, attempt),) = wait([begin(fake, instance)])
    return attempt


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("what", ["holds", "violated", "unknown", "timeout", "error"])
def test_a_consistent_answer_is_believed(fake, bench, what):
    attempt = tried(fake, bench, what)
    assert attempt.status == what
    assert attempt.engine == "fake"
    assert attempt.margin == 0.25
    assert attempt.note == "as told"
    assert attempt.witness == ("((X_0 0.5)\n(Y_0 0.25))\n" if what == "violated" else "")
    assert attempt.cpu_seconds > 0
    assert attempt.seconds > 0


def test_a_proof_for_real_arithmetic_alone_is_unknown(fake, bench):
    attempt = tried(fake, bench, "holds really")
    assert (attempt.status, attempt.note, attempt.margin) == ("unknown", "as told", 0.25)


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("crash", "exit code 1, said nothing: ValueError: deliberate"),
        ("die", "ended by SIGKILL"),
        ("lie", "exit code 1, said 'holds'"),
        ("mute", "exit code 0, said nothing"),
        ("banana", "exit code 0, said 'banana'"),
        ("Holds", "exit code 0, said 'Holds'"),
    ],
)
def test_everything_else_is_an_error(fake, bench, what, told):
    attempt = tried(fake, bench, what)
    assert attempt.status == "error"
    assert attempt.note.startswith(told)


def test_an_answer_after_the_limit_does_not_count(fake, bench, monkeypatch):
    monkeypatch.setattr(module, "LATE", 0.1)
    attempt = tried(fake, bench, "sleep 1 holds", limit=0.5)
    assert attempt.status == "timeout"
    assert attempt.note.startswith("holds came")


def test_a_process_that_does_not_end_is_killed_with_its_children(fake, bench, monkeypatch, tmp_path):
    monkeypatch.setattr(module, "GRACE", 0.5)
    attempt = tried(fake, bench, "hang", limit=1.0)
    assert attempt.status == "timeout"
    assert "killed" in attempt.note
    pids = [int(pid) for pid in (tmp_path / "bench" / "p.vnnlib.pids").read_text().split()]
    deadline = time.monotonic() + 60
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(map(alive, pids))


def test_cpu_seconds_are_those_of_the_process(fake, bench):
    assert tried(fake, bench, "burn 0.5").cpu_seconds >= 0.5
    asleep = tried(fake, bench, "sleep 0.5 holds")
    assert asleep.cpu_seconds < asleep.seconds - 0.4


def test_cores_are_given_out(fake, bench):
    (instance,) = read_instances(bench({"p.vnnlib": "sleep 0.3 holds"}))
    core = max(os.sched_getaffinity(0))
    one = begin(fake, instance, [core])
    path = Path(one.folder.name) / "verdict.json"
    while not path.is_file() or not path.read_text().endswith("}"):
        time.sleep(0.01)
    told = path.read_text()
    wait([one])
    assert f'"cores": [{core}]' in told
    assert '"threads": "1"' in told
    assert '"limit": "20"' in told


def test_nothing_is_left_behind(fake, bench, tmp_path):
    (instance,) = read_instances(bench({"p.vnnlib": "sleep 30 holds"}))
    one = begin(fake, instance, within=tmp_path)
    abandon([one])
    assert one.process.returncode is not None
    assert not alive(one.process.pid)
    assert not list(tmp_path.glob(".holdfast*"))
