"""The public names of `import holdfast`: few, listed once, lazy, and known to type checkers."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast as hf
import option_types

HOME = Path(hf.__file__).parent
USER_SCRIPT = """
from pathlib import Path

import numpy as np

import holdfast as hf
from holdfast import Dataset, Detections, Evaluation, Model, Patch

model: Model = hf.load("net.onnx", card="card.toml")
guesses: tuple[str, ...] = model.guessed
data: Dataset = hf.dataset("data/", limit=500)
pairs: Dataset = hf.dataset([("a.jpg", {"boxes": [[0, 0, 9, 9]], "labels": ["stop"]})])
found = model.predict(np.zeros((8, 8, 3), np.uint8))
if isinstance(found, Detections):
    names: tuple[str, ...] = found.names
several: list[hf.Detections | hf.Classification | hf.Segmentation] = model.predict(["a.jpg", "b.jpg"])
before: Evaluation = hf.evaluate(model, data, rule="voc")
value: float | None = before.map50
low: float | None = before.interval.low if before.interval else None
after = hf.evaluate(model.deployed(precision="int8", resize="opencv-nearest"), data)
suite: hf.NoiseSuite = hf.noise([model, "other.onnx"], data, only=["resize"])
lost: float | None = suite.worst.points_lost if suite.worst else None
sentence: str = hf.diagnose(model, data[3], input="target.npy").verdict
outcome = hf.attack(model, data[3], pixels=300)
patch: Patch = outcome.patch
status: str = hf.verify("net.onnx", "prop.vnnlib", timeout=60).status
stops = data.filter(lambda sample: "stop" in sample.labels)
report: Path = hf.audit(model, stops, budget="10m").save("report.html")
summary: str = hf.compare(before, after).summary
final: float = hf.contest.score("advimages_team.zip", "contest/").final
benchmark = hf.patchbench.evaluate("signs-single", "signs")
language: hf.LanguageSuite = hf.noise("lm.onnx", ["a.jsonl", Path("b.jsonl")], task="language", images=5)
speech: hf.SpeechSuite = hf.noise("net.onnx", "clips", task="speech", only="stft", card=["net.toml"])
calibrated = hf.noise(model, data, calibration=pairs, use=["own.py"], json=Path("n.json"), map={"a": "b"})
audited = hf.audit(model, data, only=["evaluate", "attack"], pixels=[10, 20], fail_if="map50 < 0.4")
"""
WRONG_SCRIPT = """import holdfast as hf

hf.evaluate("net.onnx", "data/", rul="voc")
hf.noise("net.onnx", "data/", images="many")
hf.noise("lm.onnx", "a.jsonl", task="language", imags=5)
hf.attack("net.onnx", "data/", goal="vansih")
hf.verify("net.onnx", "prop.vnnlib", check=True)
hf.audit("net.onnx", "data/", only=["evaluate", "atack"])
hf.contest.pack("folder")
"""


def test_every_public_name_opens_and_there_are_few():
    assert len(hf.__all__) <= 38
    assert sorted(hf.__all__) == dir(hf)
    for name in hf.__all__:
        assert getattr(hf, name) is not None


def test_functions_are_not_hidden_by_packages_of_the_same_name():
    for name in ("attack", "audit", "compare", "diagnose", "evaluate", "noise", "verify"):
        __import__(f"holdfast.{name}.run" if name != "noise" else "holdfast.noise.vision.run")
        assert getattr(hf, name).__module__ == "holdfast.api.functions"
    assert hf.contest.score.__module__ == "holdfast.api.contest"
    assert hf.patchbench.check.__module__ == "holdfast.api.patchbench"


def test_an_unknown_name_is_an_attribute_error_with_the_nearest():
    with pytest.raises(AttributeError, match="no attribute 'evalute'; did you mean 'evaluate'"):
        _ = hf.evalute


def test_a_star_import_brings_the_public_names():
    names: dict[str, object] = {}
    exec("from holdfast import *", names)  # noqa: S102 - the statement under test
    assert set(hf.__all__) <= set(names)


def test_import_and_start_up_load_nothing_heavy():
    code = (
        "import sys, holdfast\n"
        "heavy = {'numpy', 'ast', 'inspect', 'typing'} & set(sys.modules) - before\n"
        "from holdfast.cli import run\n"
        "named = {'torch', 'onnxruntime', 'onnx', 'cv2', 'PIL', 'jinja2', 'rich'}\n"
        "assert run(['--help']) == 0\n"
        "heavy |= {*named, 'numpy'} & set(sys.modules)\n"
        "assert run(['evaluate', '--help']) == 0\n"
        "heavy |= named & set(sys.modules)\n"
        "sys.exit(f'loaded at start: {sorted(heavy)}' if heavy else 0)\n"
    )
    command = [sys.executable, "-c", f"import sys\nbefore = set(sys.modules)\n{code}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    """The lines of mypy about a script that is right and one that is wrong."""
    folder = tmp_path_factory.mktemp("typed")
    own = folder / "mypy.ini"
    own.write_text("[mypy]\nstrict = true\nignore_missing_imports = true\n")
    for name, text in (("right.py", USER_SCRIPT), ("wrong.py", WRONG_SCRIPT)):
        (folder / name).write_text(text)
    scripts = [folder / "right.py", folder / "wrong.py"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", own, "--follow-imports", "silent", *scripts],
        cwd=folder,
        env={**os.environ, "MYPYPATH": str(HOME.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_a_users_script_passes_mypy_strict(checked):
    assert (HOME / "py.typed").is_file()
    assert [line for line in checked if "wrong.py" not in line][:-1] == []


def test_a_wrong_keyword_or_value_is_an_error_of_mypy(checked):
    errors = {
        int(line.split(":")[1]): line for line in checked if line.startswith("wrong.py") and "error" in line
    }
    assert list(errors) == list(range(3, 3 + len(WRONG_SCRIPT.strip().splitlines()[2:]))), "\n".join(checked)
    assert 'Unexpected keyword argument "rul"' in errors[3]


def test_the_types_of_keywords_are_those_of_the_options():
    written = ast.parse(option_types.STUB.read_text())
    same = ast.dump(written) == ast.dump(ast.parse(option_types.stub()))
    assert same, "stale: run PYTHONPATH=src:tools python -m option_types"
