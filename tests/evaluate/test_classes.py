import numpy as np
import pytest

from holdfast.core.errors import DataError, UnknownName
from holdfast.core.types import Boxes, Detections, Size
from holdfast.engine.records import ClassificationRecord, DetectionRecord, FailedImage
from holdfast.evaluate.classes import Alignment, align, realign


def test_names_match_whatever_their_order_case_and_spaces():
    found = align(("Stop sign", "traffic_light", "car"), ("trafficlight", "stop-sign", "CAR"))
    assert found.names == ("trafficlight", "stop-sign", "CAR")
    assert found.of_model.tolist() == [1, 0, 2]
    assert found.of_data.tolist() == [0, 1, 2]


def test_a_model_may_know_more_than_the_data():
    found = align(("car", "bus", "stop"), ("stop",))
    assert found.of_model.tolist() == [-1, -1, 0]


def test_a_class_the_model_does_not_know_is_an_error_that_says_what_to_do():
    with pytest.raises(DataError, match=r"has 2 classes, the model 1; .*crosswalk.*common"):
        align(("stop",), ("stop", "crosswalk"))


def test_common_leaves_the_others_out_and_says_so():
    found = align(("stop",), ("stop", "crosswalk"), common=True)
    assert found.names == ("stop",)
    assert found.of_data.tolist() == [0, -1]
    assert "skipped 1 classes of the dataset" in found.note


def test_nothing_in_common_stays_an_error():
    with pytest.raises(DataError, match="class mismatch"):
        align(("a",), ("b",), common=True)


def test_numbers_for_names_match_by_place():
    found = align(("0", "1"), ("cat", "dog"))
    assert found.names == ("cat", "dog")
    assert "by number" in found.note


def test_renames_are_checked():
    found = align(("stop sign",), ("stop",), renames={"stop": "stop sign"})
    assert found.of_model.tolist() == [0]
    with pytest.raises(UnknownName, match=r"unknown class of the dataset 'stpo'. Did you mean 'stop'\?"):
        align(("stop sign",), ("stop",), renames={"stpo": "stop sign"})


def test_several_classes_of_the_data_can_be_one_of_the_model():
    found = align(
        ("person", "vehicle"), ("car", "person", "truck"), renames={"car": "vehicle", "truck": "vehicle"}
    )
    assert found.names == ("vehicle", "person")
    assert found.of_model.tolist() == [1, 0]
    assert found.of_data.tolist() == [0, 1, 0]
    assert "one class of the model: vehicle" in found.note


def test_names_alike_but_for_case_are_told_apart():
    assert align(("Stop", "stop"), ("stop", "Stop")).of_data.tolist() == [0, 1]
    assert align(("Stop", "stop"), ("stop", "Stop")).of_model.tolist() == [1, 0]
    with pytest.raises(DataError, match="does not have STOP"):
        align(("Stop", "stop"), ("STOP",))


def test_records_get_the_evaluated_numbers():
    alignment = Alignment(("b",), np.array([-1, 0]), np.array([0, -1]))
    boxes = np.zeros((2, 4))
    record = DetectionRecord("x", Size(1, 1), Boxes(boxes, [0, 1]), Detections(boxes, [0.5, 0.25], [0, 1]))
    ranked = ClassificationRecord("y", Size(1, 1), 1, np.array([1]), np.array([1.0]))
    (only,) = realign([record, ranked, FailedImage("z", "torn")], alignment)
    assert only.truth.classes.tolist() == [0]
    assert only.detections.scores.tolist() == [0.25]
    assert Alignment.from_plain(alignment.to_plain()).names == ("b",)


@pytest.mark.parametrize(
    "record",
    [
        DetectionRecord("x", Size(1, 1), Boxes([[0, 0, 1, 1]], [2]), Detections(np.zeros((0, 4)), [], [])),
        DetectionRecord("x", Size(1, 1), Boxes([[0, 0, 1, 1]], [-1]), Detections(np.zeros((0, 4)), [], [])),
        DetectionRecord("x", Size(1, 1), Boxes(np.zeros((0, 4)), []), Detections([[0, 0, 1, 1]], [0.5], [2])),
        ClassificationRecord("x", Size(1, 1), 2, np.array([1]), np.array([1.0])),
        ClassificationRecord("x", Size(1, 1), -1, np.array([1]), np.array([1.0])),
    ],
)
def test_a_class_nobody_has_is_named(record):
    with pytest.raises(DataError, match=r"x: got class (2|-1) of the (dataset|model), expected 0 to 1"):
        realign([record], align(("a", "b"), ("a", "b")))


def test_one_object_of_a_class_left_out_leaves_its_image_out():
    alignment = align(("a",), ("a", "b"), common=True)
    nothing = Detections(np.zeros((0, 4)), [], [])
    records = [
        DetectionRecord(name, Size(9, 9), Boxes([[0, 0, 1, 1]], [i]), nothing) for i, name in enumerate("xy")
    ]
    assert [r.name for r in realign(records, alignment, "single")] == ["x"]
    assert [r.name for r in realign(records, alignment, "detect")] == ["x", "y"]  # may have false positives
