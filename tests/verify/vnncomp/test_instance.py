import os
import sys
import time
from pathlib import Path

import pytest

from holdfast.core.errors import OutputError
from holdfast.verify.vnncomp import instance as module
from holdfast.verify.vnncomp.instance import WARM_PROBLEMS, abandon, answer, begin, wait, warm_up
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
        ("crash", "exit code 1, no output: ValueError: deliberate"),
        ("die", "ended by SIGKILL"),
        ("lie", "exit code 1, said 'holds'"),
        ("mute", "exit code 0, no output"),
        ("banana", "exit code 0, said 'banana'"),
        ("Holds", "exit code 0, said 'Holds'"),
    ],
)
def test_everything_else_is_an_error(fake, bench, what, told):
    attempt = tried(fake, bench, what)
    assert attempt.status == "error"
    assert attempt.note.startswith(told)


def test_an_answer_after_the_limit_does_not_count(fake, bench):
    attempt = tried(fake, bench, "sleep 1 holds", limit=0.9)
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
    assert '"limit": "19.5"' in told  # time is left for the start and the end


def test_nothing_is_left_behind(fake, bench, tmp_path):
    (instance,) = read_instances(bench({"p.vnnlib": "sleep 30 holds"}))
    one = begin(fake, instance, within=tmp_path)
    abandon([one])
    assert one.process.returncode is not None
    assert not alive(one.process.pid)
    assert not list(tmp_path.glob(".holdfast*"))


@pytest.fixture
def ask(fake, bench, tmp_path):
    def run(what, protocol, limit=20.0, command=None):
        (one,) = read_instances(bench({"p.vnnlib": what}))
        result = tmp_path / "result.txt"
        attempt = answer(one.network_path, one.spec_path, result, limit, protocol, command or fake)
        return attempt, result.read_text()

    return run


@pytest.mark.parametrize(
    ("what", "texts"),
    [
        ("holds", ("unsat", "holds\n", "unsat\n")),
        ("violated", ("sat", "violated\n", "sat\n((X_0 0.5)\n(Y_0 0.25))\n")),
        ("unknown", ("unknown", "unknown\n", "unknown\n")),
        ("timeout", ("timeout", "timeout\n", "timeout\n")),
        ("crash", ("error", "error\n", "error\n")),
        ("die", ("error", "error\n", "error\n")),
        ("lie", ("error", "error\n", "error\n")),
    ],
)
def test_the_result_file_has_the_words_of_its_protocol(ask, what, texts):
    word, seconds = ask(what, "document")[1].split()
    assert word == texts[0]
    assert 0 < float(seconds) < 20
    assert ask(what, "2021")[1] == texts[1]
    assert ask(what, "2022")[1] == texts[2]


def test_files_that_are_not_there_are_an_error_in_the_file(fake, tmp_path):
    attempt = answer(tmp_path / "n.onnx", tmp_path / "p.vnnlib", tmp_path / "r", 9.0, "2022", fake)
    assert attempt.status == "error"
    assert "n.onnx: no such file" in attempt.note
    assert (tmp_path / "r").read_text() == "error\n"


@pytest.mark.parametrize("limit", [0.0, -1.0, float("nan")])
def test_a_limit_that_is_none_is_an_error_in_the_file(ask, limit):
    assert ask("holds", "2021", limit=limit)[1] == "error\n"


def test_a_command_that_does_not_exist_is_an_error_in_the_file(ask):
    attempt, text = ask("holds", "2021", command=("/none/at/all",))
    assert (attempt.status, text) == ("error", "error\n")


def test_a_result_that_cannot_be_written_is_told(fake, bench, tmp_path):
    (one,) = read_instances(bench({"p.vnnlib": "holds"}))
    with pytest.raises(OutputError, match="is a folder"):
        answer(one.network_path, one.spec_path, tmp_path, 9.0, "2021", fake)


def test_warming_up_makes_problems_that_can_be_read(tmp_path):
    """The verifier's place is taken by ONNX Runtime and the reader of specifications."""
    script = tmp_path / "reads.py"
    script.write_text(
        "import sys\n"
        "import numpy as np\n"
        "import onnxruntime\n"
        "from holdfast.verify.vnnlib import read_vnnlib\n"
        "spec = read_vnnlib(sys.argv[2])\n"
        "session = onnxruntime.InferenceSession(sys.argv[1])\n"
        "(case,) = spec.cases\n"
        "points = np.random.default_rng(0).uniform(case.lower, case.upper, (3000, spec.inputs))\n"
        "slack = [(case.rows @ session.run(None, {'x': p[None].astype('f')})[0][0] - case.bound).max()\n"
        "         for p in points]\n"
        "unsafe = min(slack) <= 0\n"
        "print('violated' if unsafe else 'holds')\n"
        "sys.exit(int(unsafe))\n"
    )
    done = list(warm_up((sys.executable, str(script))))
    assert [name for name, _ in done] == [name for name, _, _ in WARM_PROBLEMS]
    for name, attempt in done:
        assert attempt.status == ("violated" if "violated" in name else "holds"), attempt
