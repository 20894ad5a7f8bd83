import dataclasses
import itertools

import numpy as np
import pytest

from holdfast.core.errors import InputError
from holdfast.metrics.boxes import detection_table, truth_table
from holdfast.metrics.curves import average_precision, curve, trapezoid_area
from holdfast.metrics.explain import (
    LECTURE_DETECTIONS,
    LECTURE_TRUTH,
    averages_text,
    explain,
    explain_lecture,
    explanation_text,
    lecture_text,
    table,
)
from holdfast.metrics.rules import RULES


@pytest.fixture(scope="module")
def lecture():
    return explain_lecture()


def test_the_lecture_counts(lecture):
    high, low = lecture.at(0.9), lecture.at(0.7)
    assert (high.tp, high.fp, high.fn) == (2, 0, 2)
    assert (high.precision, high.recall) == (1.0, 0.5)
    assert (low.tp, low.fp, low.fn) == (3, 2, 1)
    assert (low.precision, low.recall) == (0.6, 0.75)


def test_the_lecture_procedure(lecture):
    assert [s.score for s in lecture.steps] == sorted((s.score for s in lecture.steps), reverse=True)
    assert [s.outcome for s in lecture.steps] == ["TP", "TP", "TP", "FP", "FP"]
    truck = lecture.steps[3]
    assert (truck.iou, truck.truth) == (0.0, -1)
    assert "overlaps no true box" in truck.why
    assert 0 < lecture.steps[4].iou < 0.7
    assert "is not > 0.7" in lecture.steps[4].why
    assert [p.tenth for p in lecture.points] == list(range(11))
    assert [p.hits_needed for p in lecture.points] == [0, 1, 1, 2, 2, 2, 3, 3, 4, 4, 4]


def test_the_lecture_ap_is_the_area_and_eleven_points_give_a_little_less(lecture):
    assert lecture.by_interpolation["all-point"] == 0.75
    assert lecture.ap == pytest.approx(8 / 11)
    assert lecture.by_interpolation["11-point"] == lecture.ap


def test_no_order_of_hits_gives_three_quarters_by_eleven_points():
    """What docs/explanation/ap-rules.md says about the 0.75: which orders and ways of averaging come near."""
    eleven, area, lines = {}, {}, {}
    for tail in set(itertools.permutations([1, 0, 0])):
        c = curve(np.linspace(1, 0.5, 5), [1, 1, *tail], 4, end_points=True)
        eleven[tail], area[tail] = average_precision(c, "11-point"), average_precision(c, "all-point")
        lines[tail] = trapezoid_area(c)
    assert sorted(eleven.values()) == pytest.approx([7.2 / 11, 7.5 / 11, 8 / 11])
    assert area[1, 0, 0] == 0.75
    assert max(area[0, 1, 0], area[0, 0, 1]) < 0.69
    assert lines[0, 1, 0] == pytest.approx(0.7521, abs=1e-4)
    straight = np.interp(np.arange(11) / 10, [0, 0.5, 0.75, 1], [1, 1, 0.6, 0])  # the two stated points
    assert straight.mean() == pytest.approx(0.7491, abs=1e-4)


def test_the_threshold_table_has_a_row_every_hundredth(lecture):
    assert [r.score for r in lecture.thresholds] == [k / 100 for k in range(100, -1, -1)]
    by_score = {r.score: r for r in lecture.thresholds}
    assert by_score[0.94].tp == 1  # 0.94 is not > 0.94
    assert by_score[0.93].tp == 2
    loose = dataclasses.replace(RULES["lecture"], score_strict=False)
    e = explain(LECTURE_TRUTH, LECTURE_DETECTIONS, loose, images=1, class_names=("car",), iou=0.7)
    assert {r.score: r.tp for r in e.thresholds}[0.94] == 2
    assert np.isnan(by_score[1.0].precision)


def test_every_reason_is_told():
    truth = truth_table(
        [0, 0, 0],
        [0, 0, 0],
        xyxy=[[0, 0, 10, 10], [0, 2, 10, 12], [50, 0, 90, 40]],
        crowd=[False, False, True],
    )
    found = detection_table(
        [0] * 5,
        [0] * 5,
        [0.9, 0.8, 0.7, 0.6, 0.5],
        xyxy=[[0, 0, 10, 10], [0, 0, 10, 10], [0, 0, 10, 10], [60, 0, 70, 10], [8, 8, 18, 18]],
    )
    steps = explain(truth, found, RULES["coco"], images=1, class_names=("x",), iou=0.5).steps
    assert [s.outcome for s in steps] == ["TP", "TP", "FP", "ignored", "FP"]
    for step, words in zip(
        steps,
        (
            "box not matched before",
            "it matched the next",
            "a higher score already matched the box",
            "matches an ignored box",
            "is not ≥ 0.5",
        ),
        strict=True,
    ):
        assert words in step.why


def test_text(lecture):
    text = lecture_text(lecture)
    for words in (
        "Example of the lecture: four cars, five detections",
        str(RULES["lecture"]),
        "At score > 0.9: TP 2, FP 0, FN 2; precision 2/2 = 1, recall 2/4 = 0.5",
        "At score > 0.7: TP 3, FP 2, FN 1; precision 3/5 = 0.6, recall 3/4 = 0.75",
        "on the truck's front",
        "0.93 … 0.88",
        "AP 0.7273 by 11-point",
    ):
        assert words in text
    text = explanation_text(lecture, image_names=("scene",), limit=2)
    assert "in scene" in text
    assert "… and 3 more" in text


def test_a_class_without_truth_has_no_ap():
    found = detection_table([0], [1], [0.5], xyxy=[[0, 0, 1, 1]])
    e = explain(
        LECTURE_TRUTH, found, RULES["voc"], images=1, class_names=("car", "bus"), iou=0.5, class_index=1
    )
    assert np.isnan(e.ap)
    assert "AP: n/a" in explanation_text(e)
    with pytest.raises(InputError, match="class index: expected 0 to 0, got 1"):
        explain(LECTURE_TRUTH, found, RULES["voc"], images=1, class_names=("car",), iou=0.5, class_index=1)


def test_steps_as_rows_and_tables(lecture):
    rows = [vars(step) for step in lecture.steps]
    assert rows[0]["score"] == 0.98
    assert list(rows[0])[:3] == ["place", "detection", "image"]
    assert table(["a", "bc"], [["12", "3"]]) == "   a   bc\n   12  3"


def test_it_says_why_eleven_points_and_all_points_differ():
    text = lecture_text(explain_lecture())
    assert "(8 × 1.0000 + 3 × 0.0000) / 11 = 0.7273" in text
    assert "8 of the 11 recalls" in text
    assert "3/4 × 1.0000 = 0.7500" in text


def test_the_sums_are_the_averages_of_any_curve():
    rng = np.random.default_rng(3)
    corners = rng.uniform(0, 200, (12, 2))
    truth = truth_table([0] * 12, [0] * 12, xyxy=np.hstack([corners, corners + 30]))
    near = corners[rng.permutation(12)] + rng.normal(0, 8, (12, 2))
    found = detection_table([0] * 12, [0] * 12, rng.random(12), xyxy=np.hstack([near, near + 30]))
    e = explain(truth, found, RULES["voc"], images=1, class_names=("x",), iou=0.5)
    text = averages_text(e)
    assert f"/ 11 = {e.by_interpolation['11-point']:.4f}" in text
    assert f" = {e.by_interpolation['all-point']:.4f}." in text
