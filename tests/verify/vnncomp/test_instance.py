import sys

import pytest

from holdfast.core.errors import OutputError
from holdfast.verify.vnncomp.instance import WARM_PROBLEMS, answer, warm_up
from holdfast.verify.vnncomp.instances import read_instances


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
