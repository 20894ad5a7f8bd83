"""`holdfast audit` and `holdfast demo` as a user runs them, on the smallest detector there is."""

import json
import os
import re
import shlex

import pytest

from helpers import models as making

pytest.importorskip("torch")
QUICK = (
    "--budget", "none", "--attack-images", 2, "--square-images", 2, "--places", 40, "--pixels", 200,
    "--steps", 10, "--jobs", 1,
)  # fmt: skip


@pytest.fixture
def blobs(tmp_path):
    making.detector(tmp_path)
    making.blob_coco(tmp_path / "data", 4)
    return "blobs.onnx", "data"


def test_one_page_one_json_and_the_gates(holdfast, blobs, tmp_path):
    done = holdfast(
        "audit", *blobs, *QUICK, "-o", "page.html", "--json", "a.json", "--junit", "j.xml",
        "--sarif", "s.sarif", "--fail-if", "attack.200px.Se > 0.5", "--fail-if", "clean.map50 < 0.5",
        "--min-images", 2,
    )  # fmt: skip
    assert done.code == 1, done
    lines = done.out.splitlines()
    assert [line.split(" (n")[0].split(":")[0] for line in lines[:5]] == [
        "Clean mAP@.5", "Worst single noise", "Combined noise", "Printable patch", "Proofs",
    ]  # fmt: skip
    found = json.loads((tmp_path / "a.json").read_text())
    assert found["attacks"][0]["broken"] == 2
    assert [g["failed"] for g in found["gates"]] == [True, False]
    assert (tmp_path / "j.xml").read_text().count("<failure") == 1
    results = json.loads((tmp_path / "s.sarif").read_text())["runs"][0]["results"]
    assert [r["level"] for r in results].count("error") == 1
    page = (tmp_path / "page.html").read_text()
    for words in ("Threat × deployment", "attack.200px.Se", "Black square", "training pipeline"):
        assert words in page
    few = holdfast("audit", *blobs, *QUICK, "--fail-if", "attack.200px.Se > 0.5")
    assert few.code == 5
    assert "not decided  n = 2 < 20 (--min-images)" in few.out
    assert re.search(r"^Printable patch \(n = 2, indication\): ", few.out, re.MULTILINE)
    again = holdfast("audit", *blobs, *QUICK, "--fail-if", "attack.200px.Se > 2.5")
    assert again.code == 2
    (run,) = (tmp_path / "holdfast-runs").glob("audit-*")
    few = ("--only", "attack", "--fail-if", "attack.200px.broken < 0.5")
    assert holdfast("audit", *blobs, *QUICK, *few).code == 5
    assert holdfast("audit", *blobs, *QUICK, *few, "--min-images", 2).code == 0
    assert holdfast("report", run, "-o", "again.html").code == 0
    assert (tmp_path / "again.html").read_bytes() == (run / "report.html").read_bytes()


@pytest.mark.slow
def test_a_command_on_the_page_gives_its_number_again(holdfast, blobs, tmp_path):
    assert holdfast("audit", *blobs, *QUICK, "--json", "a.json").code == 0
    found = json.loads((tmp_path / "a.json").read_text())
    words = shlex.split(found["clean"]["command"])
    assert holdfast(*words[1:], "--json", "e.json", "--runs", "others").code == 0
    assert json.loads((tmp_path / "e.json").read_text())["mAP"] == found["clean"]["value"]
    words = shlex.split(found["attacks"][0]["command"])
    assert holdfast(*words[1:], "--json", "b.json", "--runs", "others", "--jobs", 1).code == 0
    again = json.loads((tmp_path / "b.json").read_text())["attacks"][0]
    assert {k: v for k, v in again.items() if k != "command"} == {
        k: v for k, v in found["attacks"][0].items() if k != "command"
    }
    worst = next(c for c in found["noises"] if c["outcome"] == "measured")
    words = shlex.split(worst["command"])
    assert holdfast(*words[1:], "--json", "n.json", "--runs", "others", "--jobs", 1).code == 0
    row = json.loads((tmp_path / "n.json").read_text())["models"][0]["rows"][0]
    assert row["points_lost"] == pytest.approx(worst["points_lost"], abs=1e-10)
    assert row["changed"] == worst["changed"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--budget", "soon"), "--budget: expected a time such as 10m"),
        (("--only", "square"), "got 'square'; did you mean 'squares'?"),
        (("--fail-if", "noise.map5.points_lost > 10"), "noise.map5"),
        (("--fail-if", "noise.top1.points_lost > 10"), "noise.top1.points_lost"),
        (("--fail-if", "clean.map50"), "--fail-if: expected"),
        (("--gates", "nowhere.toml"), "nowhere.toml: expected a TOML file with gates"),
        (("--spec", "nowhere.vnnlib"), "nowhere.vnnlib"),
        (("-o", "."), "is a folder"),
        (("-o", "/proc/nowhere/page.html"), "cannot write"),
        (("--pixels", 0), "--pixels"),
        (("--pixels", 10**20), "--pixels"),
        (("--seed", 10**20), "--seed"),
        (("--rule", "cocoa"), "cocoa"),
    ],
)
def test_bad_input_is_one_line(fails, blobs, words, told):
    assert told in fails("audit", *blobs, *QUICK, *words)


def test_a_classifier_is_audited_without_an_attack(holdfast, tmp_path):
    making.classifier(tmp_path)
    making.image_folder(tmp_path / "photos", 6)
    done = holdfast(
        "audit", "tiny.onnx", "photos", "--budget", "none", "--places", 20, "--jobs", 1, "--json", "a.json"
    )
    assert done.code == 0, done
    found = json.loads((tmp_path / "a.json").read_text())
    assert found["clean"]["metric"] == "top1"
    assert not found["attacks"]
    assert any("attacks need a detector; this model is a classifier" in note for note in found["notes"])
    assert "attack" not in [p["name"] for p in found["parts"]]


def test_names_of_any_bytes_are_attacked_covered_and_shown(holdfast, tmp_path):
    making.detector(tmp_path)
    making.blob_coco(tmp_path / "data", 2)
    plain = json.loads((tmp_path / "data" / "annotations.json").read_text())
    for folder in ("images", "labels"):
        (tmp_path / "yolo" / folder).mkdir(parents=True)
    for number, image in enumerate(plain["images"]):
        stem = os.fsdecode(b"\xff%d" % number)
        source = tmp_path / "data" / "images" / image["file_name"]
        (tmp_path / "yolo" / "images" / f"{stem}.jpg").write_bytes(source.read_bytes())
        lines = []
        for one in plain["annotations"]:
            if one["image_id"] == image["id"]:
                x, y, w, h = one["bbox"]
                at = (x + w / 2) / image["width"], (y + h / 2) / image["height"]
                lines.append(f"0 {at[0]} {at[1]} {w / image['width']} {h / image['height']}")
        (tmp_path / "yolo" / "labels" / f"{stem}.txt").write_text("\n".join(lines))
    (tmp_path / "yolo" / "data.yaml").write_text("names: [blob]\nval: images\n")
    done = holdfast(
        "audit", "blobs.onnx", "yolo", "--format", "yolo", "--budget", "none", "--only", "attack", "--only",
        "squares", "--places", 9, "--pixels", 5, "--pixels", 200, "--steps", 8, "--jobs", 1,
        "--json", "a.json",
    )  # fmt: skip
    assert done.code == 0, done
    found = json.loads((tmp_path / "a.json").read_text())
    assert [p["image"] for p in found["proofs"]] == ["images/\\xff0.jpg", "images/\\xff1.jpg"]
    assert [(s["images"], s["broken"]) for s in found["attacks"]] == [(2, 0), (2, 2)]
    assert (tmp_path / "report.html").read_text().count("\\xff0.jpg") > 1
