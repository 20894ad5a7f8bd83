"""Benchmarks that `make` wrote: the map of the file, of the model, and the verifier say the same."""

import json
from pathlib import Path

import numpy as np
import pytest

from holdfast.cli import run
from holdfast.core.model import Network
from holdfast.core.verdict import Budget
from holdfast.graph.load import load_model
from holdfast.report.positions import page, sections, table_of
from holdfast.report.tables import to_text
from holdfast.run.patchbench.evaluate import as_dict, evaluate_bench
from holdfast.verify.decide import verify
from holdfast.verify.patchbench.folder import instance_of, open_bench
from holdfast.verify.positions.models import map_positions, open_detector
from holdfast.verify.vnnlib import property_of, read_vnnlib


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench") / "made"
    words = ["patchbench", "make", str(folder), "--images", "2", "--data", "signs:4:12"]
    assert run([*words, "--patch", "1", "--patch", "3", "--patch", "44"]) == 0
    return folder


@pytest.fixture(scope="module")
def result(made):
    return evaluate_bench(open_bench(made), jobs=2)


def test_both_answers_agree_on_every_instance(made, result):
    bench = open_bench(made)
    assert len(bench.rows) == len(result.pictures) == 6
    answers = []
    for row, one in zip(bench.rows, result.pictures, strict=True):
        question = property_of(read_vnnlib(row.spec), Network(row.network.name, row.network))
        verdict = verify(question, Budget(60.0))
        (shown,) = one.maps
        assert shown.kind == "position"
        assert shown.over
        assert verdict.status == shown.map.status, one.name
        answers.append(verdict.status)
        if verdict.status == "holds":
            assert verdict.bound == pytest.approx(shown.map.minimum - 0.5, abs=1e-5)
    assert {"holds", "violated"} == set(answers)  # with 44×44 something breaks


def test_the_map_of_the_file_is_that_of_the_model(made, result):
    bench, detector = open_bench(made), open_detector(load_model("signs-single"))
    for row, one in zip(bench.rows, result.pictures, strict=True):
        listed = instance_of(bench, row)
        if listed.patch.width == 1:
            continue  # the two others are enough
        patch = np.zeros((listed.patch.height, listed.patch.width, 3), np.uint8)
        direct = map_positions(detector, listed.image, patch, listed.target)
        (shown,) = one.maps
        assert shown.map.outputs.shape == direct.outputs.shape
        np.testing.assert_allclose(shown.map.outputs, direct.outputs, atol=1e-5)
        assert shown.map.clean == pytest.approx(1.0, abs=1e-5)


def test_the_page_and_the_table_hold_every_map(result):
    text = to_text(table_of(result))
    assert text.count("patch at every position") == 6
    drawn, numbers = sections(result)
    assert len(drawn.figures) == 7
    assert drawn.figures[1].body.count("<svg") == 3
    assert "robust area" in drawn.lead
    assert "≤ 0.5" in page(result).rule
    assert "unsafe (sat)" in numbers.figures[0].body
    plain = json.loads(json.dumps(as_dict(result)))
    assert len(plain["maps"]) == 6
    first = plain["maps"][0]
    assert first["positions"] == len(first["outputs"]) * len(first["outputs"][0])
    assert 0 <= first["robust_area_percent"] <= 100


def test_the_command_writes_what_it_says(tmp_path, capsys):
    out, kept = tmp_path / "map.html", tmp_path / "map.json"
    words = [
        "patchbench",
        "evaluate",
        "signs-single",
        "signs:2:3",
        "--images",
        "1",
        "--patch",
        "50",
        "--strict",
    ]
    assert run([*words, "--out", str(out), "--json", str(kept), "--jobs", "1"]) == 0
    said = capsys.readouterr().out
    assert "output < 0.5" in said
    assert "robust area" in said
    text = out.read_text("utf-8")
    assert "Content-Security-Policy" in text
    assert "http" not in text.replace("http-equiv", "")
    content = json.loads(kept.read_text())
    assert content["maps"][0]["positions"] == 225


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["signs-single"], "expected a data set behind"),
        (["signs-single", "signs:2:3", "--patch", "80"], "at most 64×64"),
        (["signs-single", "signs:2:3", "--content", "none.png"], "expected black or a picture"),
        (["signs-class", "signs:2:3"], "task single"),
        (["."], "instances.csv"),
    ],
)
def test_bad_input_gets_one_line(words, why, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(["patchbench", "evaluate", *words]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("holdfast:")]
    assert len(lines) == 1
    assert why in lines[0]


def test_a_folder_says_its_patch_itself(made, capsys):
    assert run(["patchbench", "evaluate", str(made), "--patch", "3"]) == 2
    assert "--patch" in capsys.readouterr().err


def test_shown_path_of_content(tmp_path, capsys):
    from PIL import Image

    path = Path(tmp_path / "red.png")
    Image.new("RGB", (48, 48), (255, 0, 0)).save(path)
    assert (
        run(["patchbench", "evaluate", "signs-single", "signs:2:3", "--images", "1", "--content", str(path)])
        == 0
    )
    assert "of 289" in capsys.readouterr().out
