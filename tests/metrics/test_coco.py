import numpy as np
import pytest

from holdfast.core.errors import InputError
from holdfast.metrics.boxes import detection_table, truth_table
from holdfast.metrics.coco import KEYS, coco_numbers

BOX = [[0.0, 0.0, 40.0, 40.0]]  # area 1600: medium


def numbers(truth, detections, images=1, classes=1):
    return coco_numbers(truth, detections, images=images, classes=classes)


def test_a_perfect_detection():
    result = numbers(truth_table([0], [0], xywh=BOX), detection_table([0], [0], [0.9], xywh=BOX))
    assert list(result.numbers) == list(KEYS)
    medium = {"APm", "ARm"}
    for key, value in result.numbers.items():
        absent = key in {"APs", "APl", "ARs", "ARl"}
        assert value == (-1.0 if absent else pytest.approx(1.0)), key
    assert medium < set(result.numbers)
    assert result.per_class[0] == pytest.approx(list(result.numbers.values()))


def test_thresholds_count_from_one_half_upwards():
    # IoU exactly 0.75: six of the ten thresholds are passed
    result = numbers(truth_table([0], [0], xywh=BOX), detection_table([0], [0], [0.9], xywh=[[0, 0, 40, 30]]))
    assert result.numbers["AP"] == pytest.approx(0.6)
    assert result.numbers["AP75"] == pytest.approx(1.0)
    assert result.numbers["AR100"] == pytest.approx(0.6)


def test_the_area_of_the_annotation_decides_not_that_of_the_box():
    found = detection_table([0], [0], [0.9], xywh=BOX)
    result = numbers(truth_table([0], [0], xywh=BOX, area=[100.0]), found)
    assert result.numbers["APs"] == pytest.approx(1.0)
    assert result.numbers["APm"] == -1.0


def test_an_area_on_the_border_belongs_to_both_ranges():
    square = [[0.0, 0.0, 32.0, 32.0]]
    result = numbers(truth_table([0], [0], xywh=square), detection_table([0], [0], [0.9], xywh=square))
    assert result.numbers["APs"] == pytest.approx(1.0)
    assert result.numbers["APm"] == pytest.approx(1.0)
    assert result.numbers["APl"] == -1.0


@pytest.mark.parametrize(("side", "key"), [(10.0, "APs"), (40.0, "APm"), (32.0, "APs"), (32.0, "APm")])
def test_a_false_positive_on_the_border_belongs_to_both_ranges(side, key):
    truth = truth_table([0], [0], xywh=[[0, 0, side, side]])
    found = detection_table([0, 0], [0, 0], [0.9, 0.5], xywh=[[200, 200, 32, 32], [0, 0, side, side]])
    assert numbers(truth, found).numbers[key] == pytest.approx(0.5)


def test_recall_is_limited_to_one_ten_and_a_hundred_detections():
    n = 101
    boxes = np.c_[np.arange(n) * 50.0, np.zeros(n), np.full((n, 2), 40.0)]
    truth = truth_table([0] * n, [0] * n, xywh=boxes)
    result = numbers(truth, detection_table([0] * n, [0] * n, np.linspace(1, 0.1, n), xywh=boxes))
    got = [result.numbers[key] for key in ("AR1", "AR10", "AR100")]
    assert got == pytest.approx([1 / n, 10 / n, 100 / n])


def test_classes_without_truth_are_left_out_of_the_mean():
    truth = truth_table([0], [1], xywh=BOX)
    found = detection_table([0, 0], [1, 2], [0.9, 0.9], xywh=BOX * 2)
    result = numbers(truth, found, classes=3)
    assert result.numbers["AP"] == pytest.approx(1.0)
    assert result.per_class[:, 0].tolist() == [-1.0, pytest.approx(1.0), -1.0]


def test_nothing_to_find_and_nothing_found():
    nothing_true, nothing_found = truth_table([], [], xywh=[]), detection_table([], [], [], xywh=[])
    assert set(numbers(nothing_true, nothing_found).numbers.values()) == {-1.0}
    assert numbers(nothing_true, nothing_found, classes=0).per_class.shape == (0, 12)
    assert numbers(truth_table([0], [0], xywh=BOX), nothing_found).numbers["AP"] == 0.0
    assert numbers(nothing_true, detection_table([0], [0], [1.0], xywh=BOX)).numbers["AP"] == -1.0


def test_a_crowd_swallows_detections_without_harm():
    truth = truth_table([0, 0], [0, 0], xywh=[[0, 0, 40, 40], [100, 0, 200, 200]], crowd=[False, True])
    found = detection_table(
        [0] * 3, [0] * 3, [0.9, 0.95, 0.99], xywh=[[0, 0, 40, 40], [110, 9, 30, 30], [150, 9, 30, 30]]
    )
    assert numbers(truth, found).numbers["AP"] == pytest.approx(1.0)


def test_images_in_another_order_change_nothing():
    rng = np.random.default_rng(3)
    where, category = rng.integers(0, 9, 200), rng.integers(0, 4, 200)
    boxes = np.c_[rng.integers(0, 60, (200, 2)), rng.integers(10, 60, (200, 2))]
    scores = rng.permutation(200) / 200  # no ties, so that the order of rows cannot matter
    truth = truth_table(where[:60], category[:60], xywh=boxes[:60])
    first = numbers(truth, detection_table(where, category, scores, xywh=boxes), images=9, classes=4)
    order = rng.permutation(200)
    shuffled = detection_table(where[order], category[order], scores[order], xywh=boxes[order])
    assert numbers(truth, shuffled, images=9, classes=4).numbers == first.numbers


def test_an_image_index_out_of_range_is_refused():
    with pytest.raises(InputError, match="detections row 0: image index 1 but there are only 1"):
        numbers(truth_table([], [], xywh=[]), detection_table([1], [0], [0.5], xywh=BOX))
