import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.errors import InputError
from holdfast.metrics.boxes import detection_table, truth_table
from holdfast.metrics.detection import counts_at, evaluate
from holdfast.metrics.rules import RULES


@pytest.fixture
def two_classes():
    """Two images and three classes, of which the last has no truth; image 1 has no detection."""
    truth = truth_table(
        [0, 0, 0, 1], [0, 0, 1, 1], xyxy=[[0, 0, 10, 10], [20, 0, 30, 10], [40, 0, 50, 10], [0, 0, 10, 10]]
    )
    detections = detection_table(
        [0, 0, 0, 0, 0],
        [0, 1, 0, 1, 2],
        [0.9, 0.8, 0.7, 0.6, 0.5],
        xyxy=[[0, 0, 10, 10], [20, 0, 30, 10], [60, 0, 70, 10], [40, 0, 50, 10], [60, 0, 70, 10]],
    )
    return truth, detections


def test_counts_at_score_thresholds(two_classes):
    result = evaluate(*two_classes, RULES["voc"], images=2, classes=3, score=0.65)
    assert result.counts.tp.tolist() == [1, 0, 0]
    assert result.counts.fp.tolist() == [1, 1, 0]
    assert result.counts.fn.tolist() == [1, 2, 0]
    lower = counts_at(result.matches, 0.0, result.rule)
    assert (lower.tp.tolist(), lower.fp.tolist(), lower.fn.tolist()) == ([1, 1, 0], [1, 1, 1], [1, 1, 0])
    np.testing.assert_allclose(lower.precision, [0.5, 0.5, 0.0])
    np.testing.assert_allclose(lower.recall, [0.5, 0.5, np.nan])
    np.testing.assert_allclose(lower.f1, [0.5, 0.5, 0.0])
    total = lower.total()
    assert (total.tp.tolist(), total.fp.tolist(), total.fn.tolist()) == ([2], [3], [2])
    assert total.f1.item() == pytest.approx(4 / 9)


def test_a_score_on_the_threshold_counts_unless_the_rule_says_greater(two_classes):
    for name, expected in (("voc", 1), ("lecture", 0)):
        matches = evaluate(*two_classes, RULES[name], images=2, classes=3).matches
        assert counts_at(matches, 0.9, RULES[name]).tp.tolist() == [expected, 0, 0]


def test_confusion_has_true_positives_on_its_diagonal_and_the_background_last(two_classes):
    result = evaluate(*two_classes, RULES["voc"], images=2, classes=3, score=0.0)
    assert result.confusion.tolist() == [
        [1, 1, 0, 0],  # the second box of class 0 was taken for class 1
        [0, 1, 0, 1],  # one of class 1 was missed
        [0, 0, 0, 0],
        [1, 0, 1, 0],  # background taken for class 0 and for class 2
    ]


def test_mean_is_over_classes_with_truth(two_classes):
    result = evaluate(*two_classes, RULES["voc"], images=2, classes=3)
    np.testing.assert_allclose(result.ap, [0.5, 0.25, np.nan])
    assert result.mean_ap == pytest.approx(0.375)
    assert str(RULES["voc"]) in str(result)


def test_nothing_at_all():
    truth, detections = truth_table([], [], xyxy=[]), detection_table([], [], [], xyxy=[])
    for rule in RULES.values():
        result = evaluate(truth, detections, rule, images=3, classes=2)
        assert np.isnan(result.mean_ap)
        assert result.confusion.sum() == 0
        assert result.counts.tp.tolist() == [0, 0]
    assert np.isnan(evaluate(truth, detections, RULES["coco"], images=0, classes=0).mean_ap)


def test_score_must_be_a_number(two_classes):
    with pytest.raises(InputError, match="score threshold"):
        evaluate(*two_classes, RULES["voc"], images=2, classes=3, score=float("nan"))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"image": [0, 1], "category": [0]}, "image: expected 1 indices"),
        ({"image": [-1], "category": [0]}, "image: expected indices 0, 1, 2"),
        ({"image": [0.5], "category": [0]}, "image: expected indices"),
        ({"image": [0], "category": [0], "area": [float("nan")]}, "area row 0: expected a number, got NaN"),
        ({"image": [0], "category": [0], "crowd": [0, 1]}, "crowd: expected 1 values"),
        (
            {"image": [0], "category": [0], "xyxy": [[0, 0, -1, 5]]},
            "boxes row 0: expected finite numbers and sides",
        ),
        ({"image": [0], "category": [0], "xywh": [[0, 0, 1, 1]]}, "either as xyxy or as xywh"),
    ],
)
def test_a_table_names_what_is_wrong(rows, message):
    with pytest.raises(InputError, match=message):
        truth_table(**{"xyxy": [[0, 0, 1, 1]], **rows})


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(list(RULES)), st.sampled_from([0.0, 0.3, 0.6]))
def test_confusion_adds_up(seed, name, score):
    """Rows add up to the boxes that count, columns to the detections, the diagonal to the hits."""
    rng = np.random.default_rng(seed)
    boxes = lambda n: np.c_[rng.integers(0, 12, (n, 2)), rng.integers(5, 9, (n, 2))]  # noqa: E731
    truth = truth_table(
        rng.integers(0, 2, 12), rng.integers(0, 3, 12), xywh=boxes(12), difficult=rng.random(12) < 0.2
    )
    found = detection_table(
        rng.integers(0, 2, 20), rng.integers(0, 3, 20), np.round(rng.random(20), 1), xywh=boxes(20)
    )
    result = evaluate(truth, found, RULES[name], images=2, classes=3, iou=0.3, score=score)
    c = result.counts
    assert np.diagonal(result.confusion)[:3].tolist() == c.tp.tolist()
    assert result.confusion[:3].sum(axis=1).tolist() == (c.tp + c.fn).tolist()
    assert result.confusion[:, :3].sum(axis=0).tolist() == (c.tp + c.fp).tolist()
    assert result.confusion[3, 3] == 0


@pytest.mark.shared
def test_the_published_voc_example(shared_data):
    """All-point AP with +1 pixel, at three IoU thresholds."""
    truth = json.loads((shared_data / "metrics" / "voc_g.json").read_text())
    found = json.loads((shared_data / "metrics" / "voc_d.json").read_text())
    rows = truth["annotations"]
    table = truth_table([r["image_id"] - 1 for r in rows], [0] * len(rows), xywh=[r["bbox"] for r in rows])
    detections = detection_table(
        [r["image_id"] - 1 for r in found],
        [0] * len(found),
        [r["score"] for r in found],
        xywh=[r["bbox"] for r in found],
    )
    for iou, expected in ((0.1, 0.3371980676), (0.3, 0.2456866804), (0.5, 0.0222222222)):
        result = evaluate(table, detections, RULES["voc"], images=len(truth["images"]), classes=1, iou=iou)
        assert result.mean_ap == pytest.approx(expected, abs=1e-9)
