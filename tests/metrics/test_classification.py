import numpy as np
import pytest

from holdfast.core.errors import InputError
from holdfast.metrics.boxes import single_result, single_values
from holdfast.metrics.classification import classification_result, pixel_confusion, segmentation_result

TRUTH = np.array([[0, 0, 1], [1, 255, 1]], dtype=np.uint8)
FOUND = np.array([[0, 1, 1], [1, 2, 2]], dtype=np.uint16)


def test_confusion_and_iou_by_hand():
    table = pixel_confusion(TRUTH, FOUND, 4, ignore_index=255)
    assert table.tolist() == [[1, 1, 0, 0], [0, 2, 1, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    both = segmentation_result(table)
    np.testing.assert_allclose(both.iou, [1 / 2, 2 / 4, 0.0, np.nan])
    assert both.mean_iou == pytest.approx(1 / 3)
    assert both.pixel_accuracy == pytest.approx(3 / 5)


def test_tables_of_images_add_up():
    rng = np.random.default_rng(0)
    truth, found = rng.integers(0, 3, (2, 4, 8, 8))
    parts = sum(pixel_confusion(t, f, 3) for t, f in zip(truth, found, strict=True))
    np.testing.assert_array_equal(parts, pixel_confusion(truth, found, 3))


def test_no_pixel_left():
    result = segmentation_result(
        pixel_confusion(np.full((2, 2), 255), np.zeros((2, 2), int), 2, ignore_index=255)
    )
    assert np.isnan(result.mean_iou)
    assert np.isnan(result.pixel_accuracy)


def test_wrong_masks_are_refused():
    with pytest.raises(InputError, match="expected masks of one shape"):
        pixel_confusion(TRUTH, FOUND[:1], 3)
    with pytest.raises(InputError, match="truth mask: expected classes 0 to 2, got 255"):
        pixel_confusion(TRUTH, FOUND, 3)
    with pytest.raises(InputError, match="prediction mask: expected classes 0 to 1, got 2"):
        pixel_confusion(np.zeros_like(TRUTH), FOUND, 2)


def test_single_is_iou_where_the_class_is_right_and_zero_elsewhere():
    boxes = [[0, 0, 10, 10], [0, 0, 10, 10], [0, 0, 10, 5], [5, 5, 0, 0]]
    values = single_values(boxes, [1, 1, 2, 0], [[0, 0, 10, 10]] * 4, [1, 0, 2, 0])
    assert values.tolist() == [1.0, 0.0, 0.5, 0.0]
    assert single_result(values) == {"iou_equal": 0.375, "above_half": 0.25}  # 0.5 itself is not above
    assert np.isnan(single_result(values[:0])["iou_equal"])
    with pytest.raises(InputError, match=r"got sizes \[1, 2\]"):
        single_values(boxes[:1], [1, 2], [[0, 0, 1, 1]], [1])


def test_top_one_and_top_two_by_hand():
    result = classification_result(np.array([0, 1, 1, 2]), [0, 2, 1, 0], 3, ks=(1, 2))
    assert result.top == {1: 0.25, 2: 0.75}
    np.testing.assert_allclose(result.per_class, [0.5, 0.0, 0.0])
    assert result.images.tolist() == [2, 1, 1]


def test_a_class_without_images_and_no_images():
    result = classification_result(np.array([0]), [0], 2)
    assert result.top[5] == 1.0
    assert np.isnan(result.per_class[1])
    assert np.isnan(classification_result(np.zeros(0, int), np.zeros(0, int), 3).top[1])
