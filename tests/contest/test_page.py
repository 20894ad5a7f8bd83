"""`holdfast contest show`: the page of an entry, made from a real score on a tiny contest."""

import base64
import io
import re
import shutil
import subprocess

import numpy as np
import pytest
from PIL import Image

from helpers import tiny_contest as staging
from helpers.tiny_contest import darkened, entry, pixels
from holdfast.cli import run
from holdfast.contest.board import enter
from holdfast.contest.cli import attacked_images
from holdfast.contest.contest import open_contest
from holdfast.contest.entry import open_entry
from holdfast.contest.page import describe_row, image_table, lost, score_table, select_rows, show_page
from holdfast.contest.run import ImageScore, judge, score_of
from holdfast.report.html import write_page
from holdfast.report.patched import amplified

BROWSER = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    source = staging.materials(tmp_path_factory.mktemp("materials"))
    place = tmp_path_factory.mktemp("made") / "contest"
    staging.made(place, source)
    return place


@pytest.fixture(scope="module")
def dark(folder, tmp_path_factory):
    return entry(tmp_path_factory.mktemp("zips"), "dark", darkened(folder, {1, 2, 3}))


@pytest.fixture(scope="module")
def judged(folder, dark):
    contest = open_contest(folder)
    found = judge(contest, open_entry(dark, contest.rules), jobs=1)
    return contest, found, score_of(contest, found, "dark", "ab" * 32)


@pytest.fixture(scope="module")
def page(judged, dark):
    contest, found, made = judged
    packed = open_entry(dark, contest.rules)
    parts = [attacked_images(contest, found, packed, rows) for rows in select_rows(made.rows, 4)]
    return show_page(made, contest.rules, parts, contest.classes, "holdfast contest show x.zip --contest c")


def images_in(page, number):
    """The embedded pictures of an image: original, changed pixels, outlined regions, difference."""
    start = page.index(f'<strong class="file">{number}.png</strong>')
    found = re.findall(r'href="data:image/(jpeg|png);base64,([^"]+)"', page[start:])[:4]
    return [np.asarray(Image.open(io.BytesIO(base64.b64decode(data)))) for _, data in found]


def row(number, pixels, before, after):
    one, two = {"single": before[0], "mimic": before[1]}, {"single": after[0], "mimic": after[1]}
    return ImageScore(number, pixels, None, 3, one, two, one, two)


def test_the_page_shows_exactly_what_was_changed(page, folder):
    original, only, outlined, away = images_in(page, 1)
    before, after = pixels(folder, 1), darkened(folder, {1})[1]
    where = (before != after).any(axis=2)
    assert where.sum() == 144
    assert (outlined[..., 3] > 0)[where].all(), "every changed pixel is inside an outline"
    assert np.array_equal(only[..., 3] == 255, where)
    assert np.array_equal(only[..., :3][where], after[where]), "the changed pixels as they are"
    assert (away[..., 3] > 0)[where].all()
    assert (away[..., 3] > 0).sum() >= where.sum(), "single pixels are enlarged"
    assert np.abs(original.astype(int) - before).mean() < 6  # a JPEG of the original


def test_the_page_is_self_contained_and_says_the_score(page, judged):
    _, _, made = judged
    assert re.findall(r'(?:href|src)="(?!data:|#)', page) == []
    assert "Content-Security-Policy" in page
    assert f"Final score {made.final:.4f}" in page
    for one in made.scenarios.values():
        assert f"{one.effect_raw:.4f}" in page
        assert f"{one.stealth_raw:.4f}" in page
    assert page.count('<figure class="triple">') == 4
    used = set(re.findall(r'<use href="#([^"]+)"', page))
    assert used <= set(re.findall(r' id="([^"]+)"', page)), "what is used again is there"


def test_boxes_before_and_after(page):
    """A darkened square: found by both before; after, the true box is missed and no detection is drawn."""
    best = page[page.index('id="best"') : page.index('id="worst"')]
    original, adversarial = re.findall(
        r"<svg[^>]*><title>\d.png, (?:original|attacked)</title>.*?</svg>", best
    )[:2]
    assert 'class="mark right"' in original
    assert 'class="mark mimic"' in original
    assert 'class="mark missed"' not in original
    assert 'class="mark missed"' in adversarial
    assert 'class="mark right"' not in adversarial
    assert 'class="mark mimic"' not in adversarial
    worst = page[page.index('id="worst"') :]
    assert 'class="mark missed" x="2"' in worst  # the legend's
    assert 'class="mark missed" x="2"' not in worst.replace('x="2" y="2" width="22"', "")


def test_best_and_worst():
    rows = [
        row(1, 50, (2, 2), (0, 0)), row(2, 10, (2, 2), (0, 0)), row(3, 5, (2, 2), (2, 2)),
        row(4, 500, (2, 2), (2, 2)), row(5, 7, (2, 2), (1, 2)), row(6, 1, (0, 0), (0, 0)),
    ]  # fmt: skip
    assert [lost(r) for r in rows] == [1.0, 1.0, 0.0, 0.0, 0.25, None]
    best, worst = select_rows(rows, 4)
    assert [r.number for r in best] == [2, 1]
    assert [r.number for r in worst] == [4, 3]
    best, worst = select_rows(rows, 12)  # fewer than asked for: each once, the one with nothing to lose never
    assert sorted(r.number for r in (*best, *worst)) == [1, 2, 3, 4, 5]
    assert select_rows(rows, 0) == ([], [])
    assert [len(part) for part in select_rows(rows, 3)] == [2, 1]


def test_words_and_tables(judged):
    _, _, made = judged
    assert describe_row(made.rows[0]).startswith("144 pixels changed, ")
    assert "1 target: single model detects 1 before, 0 after" in describe_row(made.rows[0])
    assert describe_row(made.rows[5]).startswith("0 pixels changed; ")
    table = image_table(made.rows)
    assert table.rows[0][:2] == (1, 144)
    assert table.rows[0][-1] == 1.0
    assert table.rows[5][2] is None
    names = [column.name for column in score_table(made).heads]
    assert score_table(made).rows[-1][names.index("score")] == made.final


def test_a_clipped_value_is_told(judged):
    import dataclasses

    contest, _, made = judged
    cut = dataclasses.replace(made.scenarios["mimic"], effect=0.0, effect_raw=-0.0312, stealth=1.0)
    other = dataclasses.replace(made, scenarios={**made.scenarios, "mimic": cut}, team="<b>evil</b>")
    page = show_page(other, contest.rules, ([], []), contest.classes)
    assert "S_e of the mimic model is clipped from -0.0312 to 0" in page
    assert "<b>evil" not in page
    assert "&lt;b&gt;evil" in page


def test_the_difference_is_amplified_by_the_stated_factor():
    before, after = np.full((1, 2, 3), 100, np.uint8), np.full((1, 2, 3), 90, np.uint8)
    after[0, 1] = 150
    scaled, factor = amplified(before, after)
    assert factor == 5
    assert scaled[0].tolist() == [[50] * 3, [250] * 3]
    assert amplified(before, before)[1] == 255


def shown(archive, folder, out, *more):
    return run(
        ["contest", "show", str(archive), "--contest", str(folder), "-o", str(out), "--jobs", "1", *more]
    )


def test_command(folder, dark, tmp_path, capfd):
    out = tmp_path / "page.html"
    assert shown(dark, folder, out, "--images", "2") == 0
    said = capfd.readouterr().out
    assert re.search(r"final \d\.\d{4}\npage: .*page\.html \(\d+\.\d MB\)", said)
    assert out.read_text().count('<figure class="triple">') == 2
    assert not (folder / "entries" / "dark").exists(), "nothing is entered"


def test_command_refuses(folder, tmp_path, capfd):
    changed = darkened(folder, {1})
    del changed[4]
    bad = entry(tmp_path, "bad", changed)
    assert shown(bad, folder, tmp_path / "no.html") == 2
    assert "4.png" in capfd.readouterr().err
    assert not (tmp_path / "no.html").exists()
    assert shown(bad, folder, tmp_path) == 2
    assert "is a folder" in capfd.readouterr().err
    assert shown(bad, tmp_path, tmp_path / "no.html") == 2
    assert "no such file; expected the folder of a contest" in capfd.readouterr().err


@pytest.mark.skipif(BROWSER is None, reason="no Chromium found: scripts/install-browser.sh installs it")
def test_a_browser_has_nothing_to_complain_about(page, tmp_path):
    out, shot = write_page(page, tmp_path / "page.html"), tmp_path / "shot.png"
    quiet = [
        "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
        "--disable-background-networking", "--disable-component-update", f"--user-data-dir={tmp_path / 'p'}",
        "--enable-logging=stderr", "--v=0", "--hide-scrollbars", "--window-size=1200,3000",
    ]  # fmt: skip
    done = subprocess.run(
        [BROWSER, *quiet, f"--screenshot={shot}", out.as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
    drawn = np.asarray(Image.open(shot).convert("RGB")).astype(int)
    missed = (np.abs(drawn - (0x2F, 0xE0, 0xA8)).max(axis=2) < 8).sum()
    assert missed > 200, "the missed boxes are drawn"


def test_board_page(folder, judged, dark, tmp_path):
    from holdfast.contest.board import board
    from holdfast.contest.page import board_page

    place = staging.copied(folder, tmp_path / "c")
    assert "No valid scores yet." in board_page(board(place))
    _, _, made = judged
    enter(place, dark, made, keep=False)
    found = board(place)
    text = board_page(found)
    assert f"dark leads with {made.final:.4f}." in text
    assert re.findall(r'(?:href|src)="(?!data:|#)', text) == []
    assert 'id="history"' in text
    rules = place / "rules.toml"
    rules.write_text(re.sub(r"(?m)^pixels = \d+", "pixels = 299", rules.read_text()))
    text = board_page(board(place))
    assert "1 submission not ranked" in text
    assert "changed since" in text
    out = tmp_path / "board.html"
    assert write_page(text, out) == out
    assert out.read_text() == text
