"""The commands as organisers and participants type them."""

import csv
import io
import json

import pytest

from helpers import tiny_contest as staging
from helpers.tiny_contest import IMAGES, darkened, entry, pixels
from holdfast.cli import run
from holdfast.contest import baselines


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("made") / "contest"
    staging.made(place, staging.materials(tmp_path_factory.mktemp("materials")))
    return place


@pytest.fixture
def holdfast(capfd):
    def command(*words):
        code = run([str(w) for w in words])
        said = capfd.readouterr()
        assert "Traceback" not in said.err
        return code, said.out, said.err

    return command


def test_init_says_what_to_publish_and_what_to_keep(holdfast, tmp_path, monkeypatch):
    monkeypatch.setattr(baselines, "is_installed", lambda name: False)  # our attack is tried in test_board
    source = staging.materials(tmp_path / "m")
    words = ("--data", source / "data", "--model", source / "narrow.onnx", "--members", source / "wide.onnx")
    code, out, err = holdfast(
        "contest", "init", tmp_path / "c", *words, "--images", 3, "--pixels", 300, "--baselines", "--jobs", 1
    )
    assert code == 0, err
    assert "3 images of 1 classes" in out
    assert "hidden members of the mimic model: wide" in out
    assert "baseline-identity" in out
    assert not (tmp_path / "c" / "making.json").exists()
    assert not (tmp_path / "c" / "cache" / "pool").exists()
    code, _, err = holdfast("contest", "init", tmp_path / "c", *words, "--images", 3)
    assert (code, err.count("\n")) == (2, 1)
    assert "got one with a finished contest" in err
    from PIL import Image

    with Image.open(tmp_path / "c" / "images" / "1.png") as picture:
        assert (picture.size, picture.mode) == ((416, 416), "RGB")


def test_score_prints_writes_and_enters(holdfast, folder, tmp_path):
    archive = entry(tmp_path, "队伍", darkened(folder))
    score, table = tmp_path / "score.json", tmp_path / "images.csv"
    code, out, err = holdfast(
        "contest", "score", archive, "--contest", folder, "--json", score, "--csv", table, "--jobs", 1
    )
    assert code == 0, err
    assert "队伍 in data" in out
    assert "changed pixels per image: mean 144.0, maximum 144 (n = 6)" in out
    plain = json.loads(score.read_text())
    assert plain["final"] == pytest.approx(sum(s["S_e"] * s["S_s"] for s in plain["scenarios"].values()))
    rows = list(csv.DictReader(io.StringIO(table.read_text())))
    assert [row["image"] for row in rows] == [f"{n}.png" for n in range(1, IMAGES + 1)]
    assert {row["single_still_found"] for row in rows} == {"False"}
    assert (folder / "entries" / "队伍" / "001.json").is_file()
    again = tmp_path / "again.json"
    assert holdfast("contest", "score", archive, "--contest", folder, "--json", again, "--dry-run")[0] == 0
    assert again.read_bytes() == score.read_bytes()
    assert not (folder / "entries" / "队伍" / "002.json").exists()


def test_a_bad_zip_is_not_scored_and_all_is_said(holdfast, folder, tmp_path):
    images = {n: pixels(folder, n) for n in range(1, IMAGES + 1)}
    images[2] = images[2][:63]
    images[4] = 255 - images[4]
    del images[5]
    archive = entry(tmp_path, "bad", images)
    code, out, err = holdfast("contest", "score", archive, "--contest", folder, "--json", tmp_path / "x.json")
    assert (code, out) == (2, "")
    assert "advimages/2.png: 64×63, expected 64×64" in err
    assert "advimages/4.png: 4096 changed pixels, limit 300" in err
    assert "missing: 5.png (1 file)" in err
    assert not (tmp_path / "x.json").exists()
    assert not (folder / "entries" / "bad").exists()
    _, _, err = holdfast("contest", "score", archive, "--contest", folder, "--lang", "zh")
    assert "修改了 4096 个像素，上限 300" in err


def test_the_board_in_every_form(holdfast, folder, tmp_path):
    place = staging.copied(folder, tmp_path / "c")
    for team, numbers in (("one", {1}), ("two", {1}), ("three", None)):
        archive = entry(tmp_path, team, darkened(folder, numbers))
        assert holdfast("contest", "score", archive, "--contest", place, "--jobs", 1)[0] == 0
    forms = ("--json", tmp_path / "board.json", "--html", tmp_path / "board.html")
    code, out, err = holdfast("contest", "board", "--contest", place, "--history", *forms)
    assert code == 0, err
    assert "FD-signs (features " in out
    assert "history" in out
    plain = json.loads((tmp_path / "board.json").read_text())
    ranks = {row["team"]: row["rank"] for row in plain["board"] if row["team"] != "队伍"}
    assert ranks["one"] == ranks["two"] > ranks["three"]
    page = (tmp_path / "board.html").read_text()
    assert page.startswith("<!doctype html")
    assert "three" in page
    code, out, _ = holdfast("contest", "board", "--contest", place, "--csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert {row["team"] for row in rows} >= {"one", "two", "three"}
    text = (place / "rules.toml").read_text()
    (place / "rules.toml").write_text(text.replace('ap = "voc"', 'ap = "coco"'))
    code, out, err = holdfast("contest", "board", "--contest", place)
    assert code == 0
    assert "no entries yet" in out
    assert "one, submission 1, final" in err
    assert "not ranked, because rules changed after it was scored" in err
    code, out, err = holdfast("contest", "rescore", "--contest", place, "--jobs", 1)
    assert code == 0, err
    assert "three" in out
    assert holdfast("contest", "rescore", "--contest", place)[1].startswith("nothing to rescore")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("score", "advimages_x.zip", "--contest", "nowhere"),
            "no such file; expected the folder of a contest",
        ),
        (("board", "--contest", "nowhere"), "no such file; expected the folder of a contest"),
        (("score", "advimages_x.zip"), "missing --contest"),
        (("init", "c", "--data", "nowhere", "--members", ""), "nowhere: no such file or folder"),
        (("init", "c", "--model", "signs-yoloo"), "unknown model 'signs-yoloo'. Did you mean 'signs-yolo'?"),
        (("init", "c", "--features", "magic", "--members", ""), "unknown features 'magic'"),
        (("init", "c", "--rule", "vocc", "--members", ""), "unknown AP rule 'vocc'"),
        (("init", "c", "--images", "1"), "--images: expected a whole number from 2"),
    ],
)
def test_bad_input_is_one_line(holdfast, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    code, out, err = holdfast("contest", *words)
    assert (code, out) == (2, "")
    assert said in err.splitlines()[-1]
    assert not (tmp_path / "c").exists()


def test_no_torch_is_needed(folder, tmp_path):
    import subprocess
    import sys

    archive = entry(tmp_path, "light", darkened(folder, {1}))
    program = (
        "import sys; sys.modules['torch'] = None\nfrom holdfast.cli import run\nsys.exit(run(sys.argv[1:]))"
    )
    words = ["contest", "score", archive, "--contest", folder, "--dry-run", "--jobs", "1"]
    done = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
