"""`holdfast patchbench certify`: the state of every position of a dataset, as text, JSON and a page."""

import json

import numpy as np
import pytest

pytest.importorskip("torch")


def test_command_says_exactly_which_positions_are_violated(holdfast, halving, white, tmp_path):
    done = holdfast(
        "patchbench", "certify", halving(), white(2), "--patch", 2, "--seconds", 600, "--jobs", 1,
        "--json", "r.json", "--out", "p.html",
    )  # fmt: skip
    assert done.code == 0, done
    # Of 15 × 15 positions one covers column 0, row 0, and four cover column 12, row 9.
    assert "97.78% certified, 2.22% violated, 0.00% unknown of 450 positions" in done.out
    assert "n = 2 images, an indication" in done.out
    result = json.loads((tmp_path / "r.json").read_text())
    assert result["positions"] == {"unknown": 0, "certified": 440, "violated": 10}
    first = result["images"][0]
    states = np.array(first["states"])
    assert {tuple(at) for at in np.argwhere(states == "violated").tolist()} == {
        (0, 0), (8, 11), (8, 12), (9, 11), (9, 12),
    }  # fmt: skip
    assert next((one["row"], one["column"]) for one in first["violations"]) == (0, 0)
    assert all(one["output"] <= 0.5 for one in first["violations"])
    page = (tmp_path / "p.html").read_text()
    assert "Certified patch positions of" in page
    assert "state of every position" in page


def test_an_image_that_cannot_be_read_is_named_and_the_exit_code_says_so(holdfast, halving, white):
    data = white(2)
    (data / "images" / "w1.png").write_bytes(b"no picture")
    done = holdfast("patchbench", "certify", halving(), data, "--patch", 1, "--jobs", 1)
    assert done.code == 4, done
    assert "w1.png" in done.out
    assert "n = 1 image" in done.out


def test_benchmark_whose_detector_is_not_found_says_so(holdfast, bench):
    done = holdfast("patchbench", "certify", bench("--patch", 1, images=1), "--jobs", 1)
    assert done.code == 4, done
    assert "certified" not in done.out.split("output =")[0]


def test_published_file_is_certified_by_its_own_detector(holdfast, shared_data, tmp_path):
    folder = shared_data / "vnncomp" / "cctsdb_yolo"
    words = (
        "--images",
        1,
        "--patch",
        1,
        "--seconds",
        4,
        "--split-seconds",
        0,
        "--jobs",
        1,
        "--json",
        "r.json",
    )
    done = holdfast("patchbench", "certify", folder, *words)
    assert done.code == 0, done
    result = json.loads((tmp_path / "r.json").read_text())
    assert sum(result["positions"].values()) == 4096
    assert result["positions"]["certified"] == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["signs-yolo", "signs:0:1"], "expected a detector of a single object"),
        (["signs-single", "signs:0:1", "--patch", "65"], "expected a patch of 1 to 64 pixels"),
        (["signs-single", "signs:0:1", "--patch", "0"], "--patch"),
        (["signs-single"], "expected a dataset after signs-single"),
    ],
)
def test_bad_input_is_one_line(holdfast, words, said):
    done = holdfast("patchbench", "certify", *words)
    assert done.code == 2
    assert said in done.err
    assert len(done.err.strip().splitlines()) <= 2
