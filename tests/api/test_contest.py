"""Contests and patch benchmarks from Python."""

import shutil

import pytest

import holdfast as hf
from helpers import tiny_contest as staging
from holdfast.core.errors import InputError


@pytest.fixture
def contest(tmp_path):
    source = staging.materials(tmp_path / "m")
    given = {"data": str(source / "data"), "model": str(source / "narrow.onnx"), "images": 4}
    return hf.contest.init(tmp_path / "c", **given, distance_max=1.0)


def test_a_contest_is_made_entered_and_ranked(contest, tmp_path, capfd):
    shutil.unpack_archive(contest.folder / "public" / "images.zip", tmp_path / "mine")
    (images,) = {path.parent for path in (tmp_path / "mine").rglob("1.png")}
    archive = hf.contest.pack(images, team="us", out=tmp_path, contest=contest.folder)
    assert hf.contest.validate(archive, contest.folder).problems == ()
    trial = hf.contest.score(archive, contest.folder, dry_run=True, json=tmp_path / "trial.json")
    assert trial.team == "us"
    assert "us" in (tmp_path / "trial.json").read_text()
    assert hf.contest.board(contest.folder).standings == ()
    score = hf.contest.score(archive, contest.folder)
    assert hf.contest.board(contest.folder).standings[0].best.team == score.team == "us"
    assert hf.contest.show(archive, contest.folder, out=tmp_path / "e.html").is_file()
    assert hf.contest.rescore(contest.folder) == ()
    assert capfd.readouterr() == ("", "")


def test_an_entry_that_is_not_valid_is_refused_in_one_line(contest, tmp_path):
    (tmp_path / "advimages_us.zip").write_bytes(b"no zip")
    with pytest.raises(InputError, match=r"advimages_us\.zip"):
        hf.contest.score(tmp_path / "advimages_us.zip", contest.folder)
    with pytest.raises(InputError, match=r"contest.init\(\): unknown keyword 'image'; did you mean 'images'"):
        hf.contest.init(tmp_path / "d", image=3)


def test_a_patch_benchmark_is_made_checked_and_run(tmp_path, capfd):
    manifest = hf.patchbench.make(tmp_path / "bench", images=2)
    assert manifest["selection"]["images"] == 2
    assert hf.patchbench.check(tmp_path / "bench").findings == ()
    found = hf.patchbench.evaluate(tmp_path / "bench", images=1, jobs=1)
    assert found.pictures[0].maps
    assert capfd.readouterr() == ("", "")
