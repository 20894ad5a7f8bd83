import numpy as np
import pytest

from holdfast.core.errors import InputError
from holdfast.core.types import Boxes, Detections, Scores, no_detections


def test_detections_are_checked_and_frozen():
    d = Detections([[0, 0, 1, 1]], [0.5], [3])
    assert d.boxes.dtype == np.float64
    assert d.classes.dtype == np.int64
    with pytest.raises(ValueError, match="read-only"):
        d.boxes[0, 0] = 1


@pytest.mark.parametrize(
    ("boxes", "scores", "classes", "message"),
    [
        ([[0, 0, 1]], [0.5], [3], r"Detections.boxes: expected shape \(1, 4\), got \(1, 3\)"),
        ([[0, 0, 1, 1]], [0.5, 0.6], [3], r"Detections.scores: expected shape \(1,\), got \(2,\)"),
        ([[0, 0, 1, 1]], [np.nan], [3], "Detections.scores: expected finite numbers, got nan"),
        ([[0, 0, np.inf, 1]], [0.1], [3], "Detections.boxes: expected finite numbers, got inf"),
    ],
)
def test_bad_detections_name_field_expected_and_got(boxes, scores, classes, message):
    with pytest.raises(InputError, match=message):
        Detections(boxes, scores, classes)


def test_take_keeps_the_asked_order():
    d = Detections(np.arange(12).reshape(3, 4), [0.1, 0.2, 0.3], [0, 1, 2]).take([2, 0])
    assert d.scores.tolist() == [0.3, 0.1]
    assert len(no_detections()) == 0


def test_truth_fills_in_areas_crowd_and_difficult():
    truth = Boxes([[0, 0, 2, 3], [1, 1, 1, 5]], [0, 1])
    assert truth.areas.tolist() == [6.0, 0.0]
    assert not truth.crowd.any()
    assert len(Boxes(np.zeros((0, 4)), [])) == 0


def test_a_writable_array_of_the_caller_stays_writable():
    mine = np.array([0.25, 0.75])
    Scores(mine)
    mine[0] = 1.0
    assert mine[0] == 1.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Boxes(np.zeros((1, 5)), [0]), r"Boxes.xyxy: expected shape \(1, 4\), got \(1, 5\)"),
        (lambda: Boxes(np.zeros((3, 4)), []), r"Boxes.classes: expected shape \(3,\), got \(0,\)"),
        (lambda: Boxes([[1, 2, 3, 4], [1]], [0, 0]), "Boxes.xyxy: expected numbers of shape"),
        (lambda: Detections([[0, 0, 1, 1]], ["a"], [0]), "Detections.scores: expected numbers of shape"),
    ],
)
def test_what_numpy_would_refuse_is_said_in_our_words(make, message):
    with pytest.raises(InputError, match=message):
        make()
