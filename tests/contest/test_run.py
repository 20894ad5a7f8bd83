"""Scores: exact where they must be, by the formulas, the same every time."""

import dataclasses
import io
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import tiny_contest as staging
from helpers.contest import write_rules
from helpers.tiny_contest import IMAGES, copied, darkened, entry, pixels
from holdfast.contest.board import images_csv
from holdfast.contest.contest import open_contest
from holdfast.contest.rules import Member, Rules, Scale, Vote, read_rules
from holdfast.contest.run import Judgement, hits, mean_ap, scenario, score, score_of, vote
from holdfast.core.errors import DataError, InputError
from holdfast.core.types import Boxes, Detections, Size
from holdfast.engine.records import DetectionRecord
from holdfast.metrics.boxes import iou
from holdfast.metrics.frechet import frechet

ONE = Member("one", "models/one.onnx", "a" * 64)
RULES = Rules("hand", 4, ONE, Vote((ONE,), 1), "signs", "c" * 64, "FD-signs", 10.0, 2.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    source = staging.materials(tmp_path_factory.mktemp("materials"))
    place = tmp_path_factory.mktemp("made") / "contest"
    staging.made(place, source)
    return place


@pytest.fixture(scope="module")
def dark(folder, tmp_path_factory):
    return entry(tmp_path_factory.mktemp("zips"), "dark", darkened(folder, {1, 2, 3}))


def test_identity_is_exactly_zero(folder, tmp_path):
    same = entry(tmp_path, "same", {n: pixels(folder, n) for n in range(1, IMAGES + 1)})
    made = score(folder, same, jobs=1)
    for one in made.scenarios.values():
        assert one.effect == one.effect_raw == 0.0
        assert one.map_before == one.map_after > 0
    assert abs(made.distance) < 1e-9
    assert made.final == 0.0
    assert all(row.changed_pixels == 0 and row.psnr is None for row in made.rows)
    assert all(row.found_before == row.found_after for row in made.rows)


def test_half_of_the_targets_gone(folder, dark):
    made = score(folder, dark, jobs=1)
    for one in made.scenarios.values():
        assert one.effect > 0.3
        assert one.score == one.effect * one.stealth
    assert made.final == math.fsum(s.score for s in made.scenarios.values())
    gone = [row.found_after["single"] == 0 for row in made.rows]
    assert gone == [True] * 3 + [False] * 3
    assert [row.changed_pixels for row in made.rows] == [144] * 3 + [0] * 3
    assert made.distance > 0


def test_more_changed_pixels_than_allowed_are_never_scored(folder, dark, tmp_path):
    strict = copied(folder, tmp_path / "strict")
    write_rules(dataclasses.replace(read_rules(strict), pixels=143), strict)
    with pytest.raises(InputError, match=r"1\.png: 144 changed pixels, limit 143"):
        score(strict, dark, jobs=1)


def test_two_runs_say_the_same_and_the_second_computes_nothing(folder, dark, tmp_path):
    seen = []
    first, again = (score(folder, dark, lambda *step: seen.append(step), jobs=1) for _ in range(2))
    assert json.dumps(first.to_plain()) == json.dumps(again.to_plain())
    assert seen[-1] == (IMAGES, IMAGES), "all found in the cache"
    fresh = copied(folder, tmp_path / "c")
    import shutil

    shutil.rmtree(fresh / "cache")
    assert score(fresh, dark, jobs=1).to_plain() == first.to_plain()


def test_how_the_pngs_are_packed_changes_nothing(folder, tmp_path):
    import zipfile

    from PIL import Image

    images = darkened(folder, {4})
    one = score(folder, entry(tmp_path / "a", "x", images), jobs=1)
    (tmp_path / "b").mkdir()
    with zipfile.ZipFile(tmp_path / "b" / "advimages_x.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for number, image in reversed(images.items()):
            stream = io.BytesIO()
            Image.fromarray(image).save(stream, "PNG", compress_level=9)
            archive.writestr(f"advimages/{number}.png", stream.getvalue())
    other = score(folder, tmp_path / "b" / "advimages_x.zip", jobs=1)
    assert dataclasses.replace(other, archive=one.archive) == one


def test_json_and_csv_hold_what_was_promised(folder, dark):
    made = score(folder, dark, jobs=1)
    plain = made.to_plain()
    for name in ("single", "mimic"):
        assert {"S_e", "S_s", "score", "S_e_raw", "S_s_raw"} <= set(plain["scenarios"][name])
    assert plain["final"] == made.final
    assert set(plain["hashes"]) == {"rules", "models", "data", "features", "code"}
    lines = images_csv(made.rows).splitlines()
    assert len(lines) == 1 + IMAGES
    assert lines[0].startswith("image,changed_pixels,psnr,targets,single_detections_before")
    assert lines[1].startswith("1.png,144,")
    assert "single_still_found" in lines[0]
    assert lines[6].startswith("6.png,0,,")


def found(*rows):
    """Detections of rows (x1, y1, x2, y2, score, class)."""
    table = np.array(rows, np.float64).reshape(-1, 6)
    return Detections(table[:, :4], table[:, 4], table[:, 5].astype(int))


def records(*answers):
    """One true box of class 0 in each image, and what was found there."""
    truth = Boxes(np.array([[0, 0, 10, 10]]), np.array([0]))
    return tuple(
        DetectionRecord(f"{i}.png", Size(64, 64), truth, found(*a)) for i, a in enumerate(answers, 1)
    )


HIT, MISS, WRONG = [(0, 0, 10, 10, 0.9, 0)], [], [(0, 0, 10, 10, 0.8, 1)]


def test_a_known_effect_by_hand():
    """4 of 4 before is AP 1; 2 of 4 found, both right, is AP 1/2 by the all-point rule; class 1 is absent."""
    before, after = records(HIT, HIT, HIT, HIT), records(HIT, MISS, WRONG, HIT)
    assert mean_ap(before, RULES, 2) == 1.0
    assert mean_ap(after, RULES, 2) == 0.5
    made = scenario(1.0, 0.5, 4.0, RULES)
    assert (made.effect, made.stealth, made.score) == (0.5, 0.75, 0.375)


def test_the_whole_score_by_hand(folder):
    """Detections and features put in by hand: every number follows from the formulas."""
    contest = open_contest(folder)
    before, half = records(*[HIT] * 6), records(HIT, HIT, HIT, MISS, MISS, MISS)
    rng = np.random.default_rng(0)
    first = rng.normal(size=(6, 3))
    judged = Judgement(
        {"single": before, "mimic": before}, {"single": half, "mimic": before}, (first, first + 0.5),
        (10,) * 6, (30.0,) * 6,
    )  # fmt: skip
    rules = dataclasses.replace(contest.rules, distance_min=0.0, distance_max=1.5)
    made = score_of(dataclasses.replace(contest, rules=rules), judged, "hand", "0" * 64)
    assert frechet(first, first + 0.5) == pytest.approx(0.75), "three means moved by a half: 3 × 0.25"
    assert made.scenarios["single"].effect == 0.5
    assert made.scenarios["mimic"].effect == 0.0
    assert made.scenarios["single"].stealth == pytest.approx(0.5)
    assert made.final == pytest.approx(0.25)
    assert [row.found_after["single"] for row in made.rows] == [1, 1, 1, 0, 0, 0]


@pytest.mark.parametrize(
    ("distance", "raw", "clipped"),
    [(2.0, 1.0, 1.0), (10.0, 0.0, 0.0), (6.0, 0.5, 0.5), (12.0, -0.25, 0.0), (0.0, 1.25, 1.0)],
)
def test_stealth_at_inside_and_outside_of_its_range(distance, raw, clipped):
    made = scenario(0.8, 0.4, distance, RULES)
    assert (made.stealth_raw, made.stealth) == (raw, clipped)
    assert made.effect == 0.5


def test_an_effect_below_zero_counts_as_the_rules_say():
    made = scenario(0.5, 0.75, 2.0, RULES)
    assert (made.effect_raw, made.effect, made.score) == (-0.5, 0.0, 0.0)
    loose = dataclasses.replace(RULES, effect=Scale(-math.inf, 1.0))
    assert scenario(0.5, 0.75, 2.0, loose).score == -0.5


def test_nothing_found_before_is_refused():
    for value in (0.0, math.nan):
        with pytest.raises(DataError, match="mAP of the original images: expected more than 0"):
            scenario(value, 0.0, 1.0, RULES)


def test_hits_need_class_and_overlap_and_leave_out_ignored_boxes():
    truth = Boxes(
        np.array([[0, 0, 10, 10], [20, 0, 30, 10], [40, 0, 50, 10]]), np.array([0, 1, 0]),
        crowd=np.array([False, False, True]),
    )  # fmt: skip
    said = found((0, 0, 10, 5, 0.9, 0), (20, 0, 30, 10, 0.9, 0), (40, 0, 50, 10, 0.9, 0))
    assert hits(truth, said, 0.5).tolist() == [True, False, False]
    assert hits(truth, said, 0.51).tolist() == [False, False, False]


def test_other_models_images_or_rules_are_told_all_at_once(folder, tmp_path):
    spoiled = copied(folder, tmp_path / "c")
    with (spoiled / "models" / "wide.onnx").open("ab") as stream:
        stream.write(b"\0")
    (spoiled / "models" / "narrow.onnx").unlink()
    (spoiled / "images" / "4.png").unlink()
    with pytest.raises(InputError) as problem:
        open_contest(spoiled)
    said = str(problem.value)
    assert "3 problems:" in said
    assert "narrow: no file models/narrow.onnx" in said
    assert "wide: models/wide.onnx is not the model of the rules: its sha256 is" in said
    assert "images: the rules say 6, but 4.png are missing" in said


def test_an_original_that_was_changed_is_noticed(folder, dark, tmp_path):
    spoiled = copied(folder, tmp_path / "c")
    path = spoiled / "images" / "2.png"
    path.unlink()  # it is linked to the one in public/
    path.write_bytes((spoiled / "images" / "3.png").read_bytes())
    with pytest.raises(InputError, match=r"images: 2\.png: not the images the contest was made with"):
        score(spoiled, dark, jobs=1)


def test_a_distance_is_called_what_its_network_says(folder, dark, tmp_path):
    spoiled = copied(folder, tmp_path / "c")
    write_rules(dataclasses.replace(read_rules(spoiled), distance="FID"), spoiled)
    with pytest.raises(InputError, match=r"distance\.name: expected 'FD-signs' .* got 'FID'"):
        score(spoiled, dark, jobs=1)


def test_a_wrong_size_in_the_rules_is_not_laid_to_the_participant(folder, dark, tmp_path):
    spoiled = copied(folder, tmp_path / "c")
    rules = read_rules(spoiled)
    write_rules(dataclasses.replace(rules, width=rules.width - 1), spoiled)
    with pytest.raises(InputError, match="width, height: the rules say"):
        score(spoiled, dark, jobs=1)


def test_another_feature_net_is_refused(folder, dark, tmp_path):
    spoiled = copied(folder, tmp_path / "c")
    write_rules(dataclasses.replace(read_rules(spoiled), features_sha256="d" * 64), spoiled)
    with pytest.raises(InputError, match="the feature net 'signs' has the hash"):
        score(spoiled, dark, jobs=1)


@pytest.mark.slow
def test_two_processes_say_the_same(tmp_path):
    import shutil

    source = staging.materials(tmp_path / "m", images=28)
    staging.made(tmp_path / "c", source, images=27, distance_max=5.0)
    images = {n: pixels(tmp_path / "c", n) for n in range(1, 28)}
    images[26][:8, :8] = 255
    archive = entry(tmp_path, "both", images)
    alone = score(tmp_path / "c", archive, jobs=1)
    shutil.rmtree(tmp_path / "c" / "cache")
    assert score(tmp_path / "c", archive, jobs=2).to_plain() == alone.to_plain()
    assert alone.rows[25].changed_pixels == 64


def same(one, other):
    return all(np.array_equal(getattr(one, f), getattr(other, f)) for f in ("boxes", "scores", "classes"))


corner = st.integers(0, 6)
side = st.integers(1, 6)
row = st.tuples(corner, corner, side, side, st.sampled_from([0.25, 0.5, 0.5, 0.75, 1.0]), st.integers(0, 1))
answer = st.lists(row, max_size=4).map(
    lambda rows: found(*[(x, y, x + w, y + h, s, c) for x, y, w, h, s, c in rows])
)
answers = st.lists(answer, min_size=1, max_size=4)


def test_a_box_of_two_of_three_stands_with_their_mean_box_and_the_mean_over_all():
    one, two, none = found((0, 0, 10, 10, 0.9, 3)), found((0, 0, 10, 12, 0.3, 3)), found()
    made = vote([one, two, none], Vote(least=2))
    assert made.classes.tolist() == [3]
    assert made.boxes[0] == pytest.approx([0, 0, 10, (0.9 * 10 + 0.3 * 12) / 1.2])
    assert made.scores[0] == pytest.approx(1.2 / 3)


@pytest.mark.parametrize("least", [1, 2, 3])
def test_least_is_how_many_must_agree(least):
    box = (0, 0, 10, 10, 0.8, 0)
    members = [found(box), found(box), found()]
    assert len(vote(members, Vote(least=least))) == (least <= 2)


def test_another_class_or_too_little_overlap_is_no_support():
    one = found((0, 0, 10, 10, 0.9, 0))
    assert len(vote([one, found((0, 0, 10, 10, 0.9, 1))], Vote(least=2))) == 0
    assert len(vote([one, found((0, 0, 10, 5, 0.9, 0))], Vote(least=2, iou=0.5))) == 1
    assert len(vote([one, found((0, 0, 10, 4.99, 0.9, 0))], Vote(least=2, iou=0.5))) == 0


def test_boxes_that_do_not_meet_support_nothing_even_at_iou_0():
    assert len(vote([found((0, 0, 1, 1, 0.9, 0)), found((5, 5, 6, 6, 0.9, 0))], Vote(least=2, iou=0.0))) == 0


def test_a_box_is_used_once():
    two = found((0, 0, 10, 10, 0.9, 0), (0, 0, 10, 11, 0.8, 0))
    one = found((0, 0, 10, 10, 0.7, 0))
    assert len(vote([two, one], Vote(least=2))) == 1


def test_one_that_does_not_stand_itself_still_supports_another():
    left, middle, right = (0, 0, 10, 10, 0.9, 0), (3, 0, 13, 10, 0.8, 0), (6, 0, 16, 10, 0.7, 0)
    made = vote([found(left), found(middle), found(right)], Vote(least=3, iou=0.5))
    assert len(made) == 1, "the middle one overlaps both, the best scored one only the middle one"


@pytest.mark.parametrize("least", [0, 3])
def test_impossible_numbers_are_refused(least):
    with pytest.raises(InputError, match="expected 1 to 2 members to agree"):
        vote([found(), found()], Vote(least=least))


@settings(max_examples=150, deadline=None)
@given(answers, st.data())
def test_the_order_of_members_and_of_their_boxes_does_not_matter(members, data):
    least = data.draw(st.integers(1, len(members)))
    rule = Vote(least=least, iou=data.draw(st.sampled_from([0.3, 0.5, 0.8])))
    other = data.draw(st.permutations(members))
    other = [one.take(np.array(data.draw(st.permutations(range(len(one)))), int)) for one in other]
    assert same(vote(members, rule), vote(other, rule))


@settings(max_examples=100, deadline=None)
@given(answers, st.data())
def test_what_stands_has_support_and_uses_no_box_twice(members, data):
    least = data.draw(st.integers(1, len(members)))
    made = vote(members, Vote(least=least, iou=0.5))
    assert (np.diff(made.scores) <= 0).all()
    assert len(made) * least <= sum(map(len, members))
    for category in set(made.classes.tolist()):
        boxes = [m.boxes[m.classes == category] for m in members]
        for box in made.boxes[made.classes == category]:
            assert sum(bool((iou([box], b) > 0.2).any()) for b in boxes if len(b)) >= least
    total = sum(float(m.scores.sum()) for m in members) / len(members)
    assert made.scores.sum() <= total + 1e-9
    if least == 1:
        assert made.scores.sum() == pytest.approx(total), "with one vote enough, every box is part of some"


@given(answer)
def test_a_single_member_votes_as_it_says(one):
    made = vote([one], Vote(least=1))
    order = sorted(zip((-one.scores).tolist(), one.classes.tolist(), one.boxes.tolist(), strict=True))
    assert made.boxes.tolist() == [box for _, _, box in order]
    assert made.scores.tolist() == [-score for score, _, _ in order]
