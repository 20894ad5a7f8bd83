"""All problems of an entry in one run, exact, in both languages, through the command line as well."""

import json
import re
import string

import numpy as np
import pytest

from helpers import contest as entering
from helpers.contest import (
    Raw,
    changed,
    encoded,
    good,
    goods,
    header,
    make_contest,
    picture,
    raw_png,
    raw_zip,
    rules,
    write_rules,
)
from holdfast.cli import run
from holdfast.contest.entry import examine, is_team, team_of
from holdfast.contest.messages import TEXTS, Problem, listed, printable
from holdfast.core.errors import DataError


@pytest.fixture
def contest(tmp_path):
    return make_contest(tmp_path / "contest")


def lines(contest, files, name="advimages_team.zip", lang="en", **changes):
    path = contest.parent / name
    path.write_bytes(raw_zip(files) if isinstance(files, list) else files)
    return [str(problem) for problem in examine(path, contest, rules(**changes), lang).problems]


def test_good_entry_has_no_problems_and_exact_figures(contest):
    files = [good(n, encoded(changed(picture(n), count))) for n, count in ((1, 10), (2, 0), (3, 1), (4, 4))]
    path = contest.parent / "advimages_队伍.zip"
    path.write_bytes(raw_zip(files))
    done: list[int] = []
    examined = examine(path, contest, rules(), jobs=2, progress=done.append)
    assert examined.problems == ()
    assert examined.changed == {1: 10, 2: 0, 3: 1, 4: 4}
    assert sum(done) == 4
    line = "advimages_队伍.zip: valid; 4 files, changed pixels per image: maximum 10, mean 3.8"
    assert examined.lines() == (line,)
    assert examined.lines("zh") == ("advimages_队伍.zip：有效；4 张图片，每张修改像素数最多 10，平均 3.8",)


def test_every_problem_is_told_in_one_run(contest):
    files = [
        good(1, encoded(changed(picture(1), 11))),
        Raw(b"advimages/002.png", encoded(picture(2))),
        good(3, raw_png(head=header(16, 15, colour=6, bits=16))),
        Raw(b"advimages/notes.txt", b"x"),
        Raw(b"advimages/.DS_Store", b"x"),
        Raw(b"__MACOSX/advimages/._1.png", b"x"),
        Raw(b"advimages/Thumbs.db", b"x"),
        Raw(b"advimages/5.png", b"x"),
        Raw(b"advimages/data.npy", b"x"),
        Raw(b"advimages/old.zip", b"x"),
    ]
    junk = "__MACOSX/, advimages/.DS_Store, advimages/Thumbs.db"
    others = "advimages/notes.txt, advimages/data.npy"
    assert TEXTS["zip-name"][0].endswith("a TEAM of 1 to 64 letters (any script), digits, - and _")
    assert lines(contest, files, "advimages-team.zip") == [
        f"advimages-team.zip: {TEXTS['zip-name'][0]}",
        "advimages/002.png: a number with leading zeros, expected 2.png",
        "missing: 4.png (1 file)",
        "unexpected: advimages/5.png (1 file); expected numbers from 1 to 4",
        f"unexpected: {junk} (3 files of macOS or Windows); `holdfast contest pack` skips them",
        "unexpected: advimages/old.zip (1 archive inside the zip); expected the images themselves",
        f"unexpected: {others} (2 files); expected only the numbered images",
        "advimages/1.png: 11 changed pixels, limit 10",
        "advimages/3.png: 16×15, expected 16×16",
        "advimages/3.png: RGBA, expected RGB",
        "advimages/3.png: 16 bits per channel, expected 8",
    ]


def test_the_same_in_chinese(contest):
    files = [good(1, encoded(changed(picture(1), 11))), good(3, encoded(picture(3), "JPEG"))]
    assert lines(contest, files, lang="zh") == [
        "缺少：2.png, 4.png（共 2 个文件）",
        "advimages/1.png：修改了 11 个像素，上限 10",
        "advimages/3.png：不是 PNG 文件：JPEG（仅改扩展名无效）",
    ]


NAMES = {
    "upper case": (b"advimages/1.PNG", "advimages/1.PNG: an extension in upper case, expected 1.png"),
    "mixed case": (b"advimages/1.Png", "advimages/1.Png: expected 1.png"),
    "zeros": (b"advimages/0001.png", "advimages/0001.png: a number with leading zeros, expected 1.png"),
    "other ending": (b"advimages/1.jpg", "advimages/1.jpg: expected 1.png"),
}


@pytest.mark.parametrize("case", NAMES)
def test_a_wrong_name_is_one_problem_and_its_content_is_looked_at(contest, case):
    name, line = NAMES[case]
    assert lines(contest, goods(name=name)) == [line]
    broken = goods(name=name, data=encoded(changed(picture(1), 200)))
    assert lines(contest, broken) == [line, f"{name.decode()}: 200 changed pixels, limit 10"]


def test_wrong_folder_is_one_problem_and_the_rest_is_checked(contest):
    for folder in ("images/", "x/advimages/", "Advimages/"):
        files = [Raw(f"{folder}{n}.png".encode(), encoded(changed(picture(n), n * 4))) for n in range(1, 5)]
        assert lines(contest, files) == [
            f"the folder in the zip: {folder}, expected advimages/",
            f"{folder}3.png: 12 changed pixels, limit 10",
            f"{folder}4.png: 16 changed pixels, limit 10",
        ]
        around = Raw(folder.split("/")[0].encode() + b"/", mode=0o40755)
        assert len(lines(contest, [around, *files])) == 3
    empty = Raw(b"advimages/more/", mode=0o40755)
    assert lines(contest, goods(empty))[0].startswith("unexpected: advimages/more/ (1 file)")
    top = [Raw(b"%d.png" % n, encoded(picture(n))) for n in range(1, 5)]
    assert lines(contest, top) == ["the images are at the top level of the zip, expected in advimages/"]


def test_names_from_chinese_windows_can_be_read(contest):
    files = [Raw("对抗/".encode("gbk") + b"%d.png" % n, encoded(picture(n))) for n in range(1, 5)]
    assert lines(contest, files) == ["the folder in the zip: 对抗/, expected advimages/"]


def test_right_name_wins_over_another_of_the_same_number(contest):
    other = Raw(b"advimages/01.png", b"never looked at")
    assert lines(contest, [other, *goods()]) == [
        "advimages/01.png: a number with leading zeros, expected 1.png"
    ]


def test_long_lists_are_shortened_with_a_count(contest):
    found = lines(contest, goods(), images=100)
    names = "5.png, 6.png, 7.png, 8.png, 9.png, 10.png, 11.png, 12.png, 13.png, 14.png, …"
    assert found == [f"missing: {names} (96 files)"]
    assert listed("abc") == "a, b, c"


def test_any_channel_that_differs_counts(contest):
    for channel in range(3):
        pixels = picture(1).copy()
        pixels[:11, 0, channel] ^= 128
        assert lines(contest, goods(data=encoded(pixels))) == ["advimages/1.png: 11 changed pixels, limit 10"]
    swapped = picture(1).astype(int)
    swapped[0, :11] += [1, -1, 0]  # sums to nothing
    inside = encoded(np.clip(swapped, 0, 255).astype(np.uint8))
    assert lines(contest, goods(data=inside)) == ["advimages/1.png: 11 changed pixels, limit 10"]


def test_hostile_zip_is_one_line_in_both_languages(contest):
    assert lines(contest, b"hello") == ["advimages_team.zip: not a zip file: 'hello'"]
    assert lines(contest, b"hello", lang="zh") == ["advimages_team.zip：不是 zip 文件：'hello'"]
    files = goods(Raw(b"../x"))
    assert lines(contest, files, lang="zh") == [
        "../x：绝对路径，或路径含“..”“.”“//”“:”或反斜杠；应为 advimages/N.png"
    ]


def test_bomb_among_the_pictures_ends_the_examination(contest):
    bomb = raw_png(raw=bytes(100_000))
    files = [good(1, encoded(changed(picture(1), 11))), good(2, bomb), good(3, bomb), good(4, b"")]
    assert lines(contest, files) == [
        "advimages/1.png: 11 changed pixels, limit 10",
        "advimages/2.png: its pixel data unpacks to more than the 784 bytes of the image",
    ]


def test_damaged_contest_is_not_the_entrys_problem(contest):
    (contest / "images" / "2.png").unlink()
    with pytest.raises(DataError, match=r"2.png: expected an image of the contest, got: No such file"):
        lines(contest, goods())
    (contest / "images" / "2.png").write_bytes(encoded(picture(2, 20)))
    with pytest.raises(
        DataError, match=r"the contest's own image is not as its rules say: .*20×20, expected 16"
    ):
        lines(contest, goods())


@pytest.mark.parametrize("kind", TEXTS)
def test_both_languages_say_the_same_figures(kind):
    english, chinese = (
        {name for _, name, _, _ in string.Formatter().parse(text) if name} - {"s"} for text in TEXTS[kind]
    )
    assert {name.removesuffix("_zh") for name in chinese} == english
    assert re.search("[\u4e00-\u9fff]", TEXTS[kind][1])
    assert TEXTS[kind][0].isascii() or kind == "png-size"
    facts = dict.fromkeys(english | chinese, 7)
    for lang in ("en", "zh"):
        assert "{" not in str(Problem(kind, "a", facts, lang))


@pytest.mark.parametrize(
    "team", ["aisafety", "队伍一", "équipe", "e\u0301quipe", "team-1_b", "x" * 64, "กำไร"[:1]]
)
def test_teams_that_may_be(team):
    assert is_team(team)
    assert team_of(f"advimages_{team}.zip")


@pytest.mark.parametrize(
    "team",
    ["", "a b", "a.b", "../x", "a/b", "a\\b", "x" * 65, "nul", "COM1", "ｔeam", "a\u202eb", "a:b", "\ud800"],
)
def test_teams_that_may_not_be(team):
    assert not is_team(team)
    assert team_of(f"advimages_{team}.zip") is None


def test_names_are_printed_harmlessly():
    assert printable("a\x1b[31m\u202eb") == "a\\x1b[31m\\u202eb"
    assert len(printable("a" * 1000)) < 100


def test_command_says_all_and_its_exit_code(contest, capsys):
    write_rules(rules(), contest)
    archive, out = contest.parent / "advimages_team.zip", contest.parent / "found.json"
    archive.write_bytes(raw_zip(goods()))
    assert run(["contest", "validate", str(archive), "--contest", str(contest)]) == 0
    good_line = "advimages_team.zip: valid; 4 files, changed pixels per image: maximum 0, mean 0.0\n"
    assert capsys.readouterr().out == good_line

    archive.write_bytes(raw_zip(goods(data=encoded(changed(picture(1), 12)))[:3]))
    words = ["contest", "validate", str(archive), "--contest", str(contest), "--jobs", "1"]
    assert run([*words, "--json", str(out)]) == 2
    assert capsys.readouterr().out.splitlines() == [
        "missing: 4.png (1 file)",
        "advimages/1.png: 12 changed pixels, limit 10",
        "advimages_team.zip: not valid; 2 problems",
    ]
    found = json.loads(out.read_text())
    assert not found["good"]
    assert found["team"] == "team"
    assert found["changed_pixels"]["images"] == {"1": 12, "2": 0, "3": 0}
    assert [problem["kind"] for problem in found["problems"]] == ["missing", "pixels"]
    assert found["problems"][1]["facts"] == {"got": 12, "limit": 10}
    assert run([*words, "--lang", "zh"]) == 2
    assert capsys.readouterr().out.splitlines()[-1] == "advimages_team.zip：无效；共 2 个问题"


def test_command_without_a_contest_or_zip(contest, capsys):
    assert run(["contest", "validate", "advimages_x.zip", "--contest", str(contest / "no")]) == 2
    assert "no such file; expected the folder of a contest" in capsys.readouterr().err
    write_rules(rules(), contest)
    assert run(["contest", "validate", "nowhere/advimages_x.zip", "--contest", str(contest)]) == 2
    assert "advimages_x.zip: expected a zip file, found No such file" in capsys.readouterr().out


def test_entry_that_cannot_be_read_makes_no_traceback(contest, monkeypatch):
    archive = contest.parent / "advimages_team.zip"
    archive.write_bytes(raw_zip(goods()))
    monkeypatch.setattr(entering.Path, "open", _denied)
    assert "expected a zip file, found Permission denied" in str(
        examine(archive, contest, rules()).problems[0]
    )


def _denied(*_words, **_facts):
    raise PermissionError(13, "Permission denied")
