"""A folder of images becomes a right zip, always the same one."""

import zipfile

import pytest

from helpers.contest import IMAGES, changed, encoded, make_contest, picture, rules, write_rules
from holdfast.cli import run
from holdfast.contest.entry import examine, open_entry, pack
from holdfast.core.errors import DataError, InputError, OutputError


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "mine"
    made.mkdir()
    for number in range(IMAGES, 0, -1):
        (made / f"{number}.png").write_bytes(encoded(changed(picture(number), 3)))
    return made


def test_packed_entry_is_good(folder, tmp_path):
    contest = make_contest(tmp_path / "contest")
    path = pack(folder, "队伍", tmp_path / "new" / "place")
    assert path == tmp_path / "new" / "place" / "advimages_队伍.zip"
    assert examine(path, contest, rules()).problems == ()
    with zipfile.ZipFile(path) as archive:  # another reader sees the same
        assert archive.testzip() is None
        assert archive.namelist() == [f"advimages/{n}.png" for n in range(1, 5)]
        assert archive.read("advimages/2.png") == (folder / "2.png").read_bytes()
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_folder_around_advimages_is_taken_too_and_gives_the_same_bytes(folder, tmp_path):
    around = tmp_path / "around"
    around.mkdir()
    (around / "README.txt").write_text("not in the entry")
    first = pack(folder, "a", tmp_path / "one").read_bytes()
    folder.rename(around / "advimages")
    for junk in (".DS_Store", "Thumbs.db", "._1.png"):
        (around / "advimages" / junk).write_bytes(b"x")
    assert pack(around, "a", tmp_path / "two").read_bytes() == first
    assert pack(around / "advimages", "a", tmp_path / "two").read_bytes() == first  # replaces the older one


def test_zip_in_the_folder_itself_is_no_image(folder):
    assert pack(folder, "a", folder).read_bytes() == pack(folder, "a", folder).read_bytes()
    assert len(open_entry(folder / "advimages_a.zip", rules()).members) == IMAGES


@pytest.mark.parametrize("name", ["01.png", "5.PNG", "5.jpg", "notes.txt", "0.png"])
def test_other_names_are_refused(folder, tmp_path, name):
    (folder / name).write_bytes(b"x")
    with pytest.raises(DataError, match=rf"expected only images named 1.png.* got {name} \(1 name\)"):
        pack(folder, "a", tmp_path)
    assert not (tmp_path / "advimages_a.zip").exists()


def test_gaps_are_refused(folder, tmp_path):
    (folder / "1.png").unlink()
    (folder / "3.png").unlink()
    with pytest.raises(DataError, match=r"missing: 1.png, 3.png \(2 files\)"):
        pack(folder, "a", tmp_path)
    (folder / "999999999.png").write_bytes(b"x")
    with pytest.raises(DataError, match=r"missing: 1.png, 3.png, 5.png, .*…"):
        pack(folder, "a", tmp_path)


def test_what_is_no_png_is_refused(folder, tmp_path):
    (folder / "2.png").write_bytes(encoded(picture(2), "JPEG"))
    with pytest.raises(DataError, match=r"2.png: not a PNG by its content"):
        pack(folder, "a", tmp_path)


def test_no_folder_no_images_no_team_no_place(folder, tmp_path):
    with pytest.raises(DataError, match=r"expected a folder of 1.png, 2.png, …, got nothing"):
        pack(tmp_path / "no", "a", tmp_path)
    with pytest.raises(DataError, match="got a file"):
        pack(folder / "1.png", "a", tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"expected images named 1.png, 2.png, …, got none"):
        pack(tmp_path / "empty", "a", tmp_path)
    with pytest.raises(InputError, match="--team: expected 1 to 64 letters"):
        pack(folder, "a/b", tmp_path)
    with pytest.raises(OutputError, match="cannot be written"):
        pack(folder, "a", folder / "1.png")


def test_command_packs_and_validates(folder, tmp_path, capsys):
    contest = make_contest(tmp_path / "contest")
    write_rules(rules(), contest)
    words = ["contest", "pack", str(folder), "--team", "a", "--out", str(tmp_path)]
    assert run(words) == 0
    assert capsys.readouterr().out == f"written: {tmp_path / 'advimages_a.zip'} (0.0 MB)\n"
    assert run([*words, "--contest", str(contest)]) == 0
    assert "valid; 4 files, changed pixels per image: maximum 3, mean 3.0" in capsys.readouterr().out
    (folder / "4.png").unlink()
    assert run([*words, "--contest", str(contest), "--lang", "zh"]) == 2
    assert "缺少：4.png（共 1 个文件）" in capsys.readouterr().out
