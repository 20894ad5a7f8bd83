"""Benchmarks that `make` wrote: the map of the file, of the model, and the verifier say the same."""

import json

import numpy as np
import pytest

from holdfast.cli import run
from holdfast.core.model import Network
from holdfast.core.property import Budget
from holdfast.data.open import open_dataset
from holdfast.data.patchfile import png_of
from holdfast.graph.load import load_model
from holdfast.metrics.boxes import single_values
from holdfast.patchbench.folder import instance_of, open_benchmark
from holdfast.patchbench.page import page, sections, table_of
from holdfast.patchbench.positions.models import map_positions, open_detector
from holdfast.patchbench.run import as_dict, evaluate_bench
from holdfast.report.tables import to_text
from holdfast.verify.run import verify
from holdfast.verify.vnnlib.read import read_vnnlib
from holdfast.verify.vnnlib.spec import property_of


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench") / "made"
    words = ["patchbench", "make", str(folder), "--images", "2", "--data", "signs:4:12"]
    assert run([*words, "--patch", "3", "--patch", "44"]) == 0
    return folder


@pytest.fixture(scope="module")
def result(made):
    return evaluate_bench(open_benchmark(made), jobs=2)


def test_both_answers_agree_on_every_instance(made, result):
    bench = open_benchmark(made)
    assert len(bench.rows) == len(result.pictures) == 4
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
    bench, detector = open_benchmark(made), open_detector(load_model("signs-single"))
    first = next(row for row in bench.rows if "patch-3" in row.network_name)
    for row, one in zip(bench.rows, result.pictures, strict=True):
        listed = instance_of(bench, row)
        if listed.patch.width == 3 and row is not first:
            continue  # one of them is enough
        patch = np.zeros((listed.patch.height, listed.patch.width, 3), np.uint8)
        direct = map_positions(detector, listed.image, patch, listed.target)
        (shown,) = one.maps
        assert shown.map.outputs.shape == direct.outputs.shape
        np.testing.assert_allclose(shown.map.outputs, direct.outputs, atol=1e-5)
        assert shown.map.clean == pytest.approx(1.0, abs=1e-5)


def test_the_page_and_the_table_hold_every_map(result):
    text = to_text(table_of(result))
    assert text.count("patch at every position") == 4
    drawn, numbers = sections(result)
    assert len(drawn.figures) == 5
    assert drawn.figures[1].body.count("<svg") == 3
    assert "robust area" in page(result).verdict
    assert "≤ 0.5" in page(result).rule
    assert "violated (sat)" in numbers.figures[0].body
    plain = json.loads(json.dumps(as_dict(result)))
    assert len(plain["maps"]) == 4
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
        (["signs-single"], "expected a dataset after"),
        (["signs-single", "signs:2:3", "--patch", "80"], "at most 64×64"),
        (["signs-single", "signs:2:3", "--content", "none.png"], "none.png"),
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


def test_an_image_that_cannot_be_read_is_told_and_the_others_are_mapped(tmp_path, capsys):
    for part in ("images", "gt_labels"):
        (tmp_path / "data" / part).mkdir(parents=True)
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    for name in ("bad", "good"):
        data = png_of(pixels)
        (tmp_path / "data" / "images" / f"{name}.png").write_bytes(data[:300] if name == "bad" else data)
        (tmp_path / "data" / "gt_labels" / f"{name}.txt").write_text("0 0.1 0.1 0.9 0.9\n")
    kept = tmp_path / "map.json"
    words = ["patchbench", "evaluate", "signs-single", str(tmp_path / "data"), "--patch", "60", "--jobs", "1"]
    assert run([*words, "--json", str(kept)]) == 0
    assert "bad.png: " in capsys.readouterr().out
    content = json.loads(kept.read_text())
    assert [made["name"] for made in content["maps"]] == ["good.png"]
    assert list(content["without"]) == ["bad.png"]


def test_a_folder_says_its_patch_itself(made, capsys):
    assert run(["patchbench", "evaluate", str(made), "--patch", "3"]) == 2
    assert "--patch" in capsys.readouterr().err


def test_a_patch_with_holes_shows_the_picture_through_them(tmp_path, capsys):
    from PIL import Image

    from holdfast.core.patch import Patch, Position, apply
    from holdfast.data.patchfile import read_patch
    from holdfast.patchbench.run import evaluate_model

    pixels = np.zeros((48, 47, 4), np.uint8)
    pixels[..., 0] = 255
    pixels[::2, :, 3] = 255  # every other row is seen
    pixels[47, :, 3] = 255
    path = tmp_path / "comb.png"
    Image.fromarray(pixels).save(path)
    words = ["patchbench", "evaluate", "signs-single", "signs:2:3", "--images", "1"]
    assert run([*words, "--content", str(path)]) == 0
    assert "of 306" in capsys.readouterr().out
    patch, detector = read_patch(path), open_detector(load_model("signs-single"))
    found = evaluate_model(detector.model, open_dataset("signs:2:1", task="single"), patch).pictures[0]
    target = found.target
    for row, column in [(0, 0), (16, 17), (7, 3), (0, 17)]:
        laid = apply(found.picture, Patch(patch.pixels, patch.mask, Position(column, row)))
        said = detector.predict(detector.tensor(laid)[None])
        wanted = single_values([said.box], [said.label], [target.box], [target.label])[0]
        assert found.maps[0].map.outputs[row, column] == pytest.approx(wanted, abs=1e-6)
    folder = tmp_path / "bench"
    made = ["patchbench", "make", str(folder), "--images", "1", "--data", "signs:4:6", "--content", str(path)]
    assert run(made) == 0
    bench = open_benchmark(folder)
    (one,) = evaluate_bench(bench).pictures
    assert [shown.kind for shown in one.maps] == ["position"]
    direct = map_positions(detector, one.picture, patch.pixels, one.target, mask=patch.mask)
    np.testing.assert_allclose(one.maps[0].map.outputs, direct.outputs, atol=1e-5)
