import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import InputError
from holdfast.metrics.boxes import area, iou, pair_iou, xywh_to_xyxy, xyxy_to_xywh

SIDE = st.integers(1, 50)
BOX = st.tuples(st.integers(-20, 50), st.integers(-20, 50), SIDE, SIDE)


def test_iou_by_hand():
    # 10×10 boxes shifted by 5: 25 common, 175 in all
    assert iou([[0, 0, 10, 10]], [[5, 5, 15, 15], [0, 0, 10, 10], [20, 20, 30, 30]]).tolist() == [
        [25 / 175, 1, 0]
    ]


def test_plus_one_counts_the_last_pixel():
    # 11×11 boxes shifted by 5: 36 common, 206 in all
    assert iou([[0, 0, 10, 10]], [[5, 5, 15, 15]], plus_one=True).item() == 36 / 206
    assert area([[3, 3, 5, 4]]).item() == 2
    assert area([[3, 3, 5, 4]], plus_one=True).item() == 6


def test_overlap_with_a_crowd_is_measured_on_the_detection():
    assert iou([[0, 0, 10, 10]], [[0, 0, 100, 5]], crowd=[True]).item() == 0.5
    pair = pair_iou(np.array([[0.0, 0, 10, 10]]), np.array([[0.0, 0, 100, 5]]), np.array([True]))
    assert pair.item() == 0.5


def test_empty_boxes_and_empty_lists():
    assert iou([], []).shape == (0, 0)
    assert iou([[0, 0, 1, 1]], []).shape == (1, 0)
    assert iou([[5, 5, 5, 5]], [[5, 5, 5, 5]]).item() == 0.0


def test_touching_boxes_do_not_overlap():
    assert iou([[0, 0, 10, 10]], [[10, 0, 20, 10]]).item() == 0.0


@given(st.lists(BOX, min_size=1, max_size=6), st.lists(BOX, min_size=1, max_size=6), st.booleans())
def test_iou_is_symmetric_bounded_and_agrees_with_pairs(first, second, plus_one):
    a, b = xywh_to_xyxy(first), xywh_to_xyxy(second)
    table = iou(a, b, plus_one=plus_one)
    np.testing.assert_allclose(table, iou(b, a, plus_one=plus_one).T, rtol=1e-15)
    assert ((table >= 0) & (table <= 1)).all()
    rows, columns = np.indices(table.shape).reshape(2, -1)
    pairs = pair_iou(np.array(first, float)[rows], np.array(second, float)[columns], plus_one=plus_one)
    np.testing.assert_allclose(pairs.reshape(table.shape), table, rtol=1e-15)
    np.testing.assert_array_equal(np.diagonal(iou(a, a)), 1.0)


@given(st.lists(BOX, max_size=6))
def test_conversions_undo_each_other(boxes):
    xywh = np.array(boxes, float).reshape(-1, 4)
    np.testing.assert_array_equal(xyxy_to_xywh(xywh_to_xyxy(xywh)), xywh)


def test_wrong_shape_is_named():
    with pytest.raises(InputError, match=r"a: expected an array of shape \(n, 4\), got \(1, 3\)"):
        iou([[1, 2, 3]], [])
