"""Extras are as pyproject.toml declares them, a missing package is one line, and the core needs none."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from helpers.models import blob_coco, detector
from holdfast.cli.doctor import PURPOSES
from holdfast.core.errors import MissingExtra
from holdfast.core.extras import EXTRAS, check, install_hint, require

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
DECLARED = PROJECT["optional-dependencies"]
OPTIONAL = sorted({module for modules in EXTRAS.values() for module in modules})
VNNLIB_TWO = (
    "(vnnlib-version <2.0>)(declare-network N (declare-input X float32 [1])(declare-output Y float32 [1]))"
    "(assert (<= X[0] 1.0))(assert (>= X[0] 0.0))(assert (>= Y[0] 9.0))"
)


def names_in(requirements):
    """Names of the required distributions; those of other extras of holdfast in their place."""
    found = set()
    for text in requirements:
        name = re.split(r"[\[><=~! ]", text)[0]
        inner = re.search(r"\[(.*)\]", text)
        found |= names_in([r for e in inner[1].split(",") for r in DECLARED[e]]) if inner else {name}
    return found


def test_the_table_is_what_the_package_declares():
    ours = set(DECLARED) - {"all", "bench", "dev", "docs"}
    assert set(EXTRAS) == set(PURPOSES) == ours
    for extra, modules in EXTRAS.items():
        assert set(modules.values()) == names_in(DECLARED[extra]), extra


def test_all_is_every_extra_but_the_largest():
    assert names_in(DECLARED["all"]) == {
        name for extra in set(EXTRAS) - {"dali", "tensorflow"} for name in EXTRAS[extra].values()
    }


def test_the_core_requires_no_package_of_an_extra():
    assert not names_in(PROJECT["dependencies"]) & {
        n for modules in EXTRAS.values() for n in modules.values()
    }


def test_the_message_names_the_package_and_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    line = "a job needs opencv-python-headless, which is not installed: pip install 'holdfast[noise]'"
    with pytest.raises(MissingExtra, match=re.escape(line)):
        require("a job", "cv2")
    with pytest.raises(MissingExtra, match=re.escape("pip install 'holdfast[attack]'")):
        check("a job", "numpy", "cv2", extra="attack")


def test_a_package_of_no_extra_is_installed_by_its_own_name():
    assert install_hint("no_such_package") == "no_such_package is not installed: pip install no_such_package"
    assert install_hint("numpy") == ""


@pytest.mark.parametrize(
    ("extra", "module", "command"),
    [
        ("noise", "cv2", "evaluate signs-yolo signs:0:1"),
        ("noise", "cv2", "data make signs new"),
        ("noise", "cv2", "evaluate NET DATA --stage resize=opencv-bilinear"),
        ("noise", "av", "evaluate NET DATA --stage decode=ffmpeg"),
        ("noise", "simplejpeg", "evaluate NET DATA --stage decode=fast-idct"),
        ("noise", "openvino", "noise NET DATA --only runtime=openvino"),
        ("noise", "cv2", "diagnose NET DATA --deploy colour=nv12-opencv"),
        ("ncnn", "ncnn", "noise NET DATA --only runtime=ncnn"),
        ("dali", "nvidia", "noise NET DATA --only decode=dali"),
        ("tensorflow", "tensorflow", "noise NET DATA --only decode=tensorflow"),
        ("attack", "torch", "attack NET DATA --out new"),
        ("attack", "cv2", "attack NET DATA --black-box --out new"),
        ("verify", "vnnlib", "verify NET two.vnnlib"),
        ("train", "torch", "train mix signs-class DATA --out new.onnx"),
        ("language", "tokenizers", "noise road-lm road-piqa --task language"),
        ("speech", "librosa", "noise fast-speech clips --task speech --only stft=librosa"),
        ("speech", "torch", "noise fast-speech clips --task speech --only stft=torch"),
        ("web", "uvicorn", "serve --no-open"),
        ("web", "python_multipart", "serve --no-open"),
    ],
)
def test_a_missing_package_is_one_line_with_the_pip_line(
    fails, tmp_path, monkeypatch, extra, module, command
):
    monkeypatch.setitem(sys.modules, module, None)
    (tmp_path / "two.vnnlib").write_text(VNNLIB_TWO)
    places = {"NET": str(detector(tmp_path)), "DATA": str(blob_coco(tmp_path / "data", 2))}
    line = fails(*(places.get(word, word) for word in command.split()))
    assert line.endswith(f"is not installed: pip install 'holdfast[{extra}]'")


def test_the_core_alone_evaluates_reads_and_makes_pages(tmp_path):
    net, data = str(detector(tmp_path)), str(blob_coco(tmp_path / "data", 3))
    commands = [
        ["evaluate", net, data, "--jobs", "1"],
        ["report", "holdfast-runs/blobs-on-data", "-o", "report.html"],
        ["model", "info", net],
        ["data", "info", data],
        ["data", "crop", data, "crops"],
        ["noise", "list"],
        ["noise", net, data, "--only", "resize", "--jobs", "1"],
        ["diagnose", net, data, "--deploy", "resize=torch-nearest", "--jobs", "1"],
        ["doctor"],
    ]
    code = (
        "import sys\n"
        f"sys.modules.update(dict.fromkeys({[*OPTIONAL, 'nvidia']!r}))\n"
        "from holdfast.cli import run\n"
        f"sys.exit(max(map(run, {commands!r})))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "report.html").is_file()
    assert "pip install 'holdfast[verify]'" in " ".join(done.stdout.split())


def test_doctor_lists_every_extra(holdfast, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    done = holdfast("doctor")
    text = " ".join(done.out.split())
    assert done.code == 0
    assert all(f"extra {extra} " in text for extra in EXTRAS)
    assert "pip install 'holdfast[web]'" in text
