"""Rules files: written with a comment on every line, read back equal, every problem told."""

import dataclasses
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.contest import write_rules
from holdfast.contest.rules import AP_RULES, FIELDS, Member, Rules, RulesError, Scale, Vote, read_rules
from holdfast.metrics.rules import RULES

ONE, TWO = (Member(n, f"models/{n}.onnx", c * 64) for n, c in (("one", "a"), ("two", "b")))
PLAIN = Rules("signs", 8, ONE, Vote((ONE, TWO), 2), "signs", "c" * 64, "FD-signs", 12.5)


def spoiled(folder, *changes):
    """The message about rules in which the first of each pair was replaced by the second."""
    path = write_rules(PLAIN, folder)
    text = path.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    path.write_text(text)
    with pytest.raises(RulesError) as problem:
        read_rules(folder)
    return str(problem.value)


def test_the_names_of_ap_rules_are_those_of_the_metrics():
    assert set(AP_RULES) == set(RULES)


def test_every_line_says_what_it_means(tmp_path):
    text = write_rules(PLAIN, tmp_path).read_text()
    lines = [line for line in text.splitlines() if re.match(r"\w+ = ", line)]
    assert len(lines) == len(FIELDS) + 2 * 3
    assert all(re.search(r"  # \S.{6}", line) for line in lines)


@given(
    st.text(st.characters(categories=["L", "N", "P"]), min_size=1, max_size=20),
    st.floats(0, 1),
    st.floats(allow_nan=False),
    st.integers(1, 10**6),
)
def test_rules_are_read_as_they_were_written(tmp_path_factory, name, share, low, count):
    rules = dataclasses.replace(
        PLAIN, name=name, score=share, nms_iou=share, images=count, effect=Scale(low, float("inf"))
    )
    folder = tmp_path_factory.mktemp("rules")
    write_rules(rules, folder)
    assert read_rules(folder) == rules


def test_all_problems_are_told_at_once(tmp_path):
    said = spoiled(
        tmp_path,
        ("images = 8", "images = true"),
        ("width = 416", 'width = "wide"'),
        ("pixels = 3000", "pixls = 3000"),
        ('ap = "voc"', 'ap = "vox"'),
        ("score = 0.25", "score = 1.5"),
        ('sha256 = "aaaa', 'sha256 = "AAAA'),
        ("models/two.onnx", "../two.onnx"),
    )
    assert "8 problems:" in said
    for part in (
        "images: expected a whole number from 1 to 1e+06, got True",
        "width: expected a whole number from 1 to 16384, got 'wide'",
        "pixls: unknown; did you mean 'pixels'?",
        "pixels: missing; ",
        "detection.ap: expected one of coco, lecture, voc, voc2007, got 'vox'",
        "detection.score: expected a number from 0 to 1, got 1.5",
        "single.sha256: expected a sha256 of 64 hex digits",
        "mimic.members[2].file: expected a path inside the contest's folder, got '../two.onnx'",
    ):
        assert part in said


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("least = 2", "least = 3"), "mimic.least: expected 1 to 2, the number of members, got 3"),
        (("max = 12.5", "max = 0.0"), r"distance.max: expected more than distance.min \(0.0\), got 0.0"),
        (("low = 0.0", "low = 2.0"), r"effect.low: expected at most effect.high \(1.0\), got 2.0"),
        (("pixels = 3000", "pixels = 300000"), "pixels: expected at most the 173056 of an image"),
        (('name = "two"', 'name = "one"'), "mimic.members: 'one' is listed 2 times"),
        (("iou = 0.5 ", "iou = nan"), "mimic.iou: expected a number from 0 to 1, got nan"),
        (('sha256 = "aaaa', 'sha256 = "ffff'), "expected the single model 'one' among them; it has another"),
        (("[stealth]", "[stealthy]"), "stealthy: unknown; did you mean 'stealth'"),
    ],
)  # fmt: skip
def test_contradictions_are_told(tmp_path, change, said):
    assert re.search(said, spoiled(tmp_path, change))


def test_no_file_no_toml_no_text(tmp_path):
    with pytest.raises(RulesError, match="no such file; expected the folder of a contest"):
        read_rules(tmp_path)
    (tmp_path / "rules.toml").write_text("images = = 3")
    with pytest.raises(RulesError, match="expected TOML, got"):
        read_rules(tmp_path)
    (tmp_path / "rules.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RulesError, match="expected a readable TOML file"):
        read_rules(tmp_path)


def test_a_half_made_contest_says_so(tmp_path):
    (tmp_path / "making.json").write_text("{}")
    with pytest.raises(RulesError, match="incomplete: run `holdfast contest init` again"):
        read_rules(tmp_path)
