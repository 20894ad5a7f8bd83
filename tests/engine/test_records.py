import numpy as np
import orjson
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.types import Boxes, Detections, Size
from holdfast.engine.records import (
    GRID,
    ClassificationRecord,
    DetectionRecord,
    FailedImage,
    SegmentationRecord,
    from_plain,
    sampled,
    to_plain,
)

numbers = st.floats(-1e6, 1e6, allow_nan=False)


@given(st.lists(st.tuples(*[numbers] * 5, st.integers(0, 90)), max_size=6))
def test_a_detectors_record_comes_back_bit_for_bit(rows):
    boxes = np.array([r[:4] for r in rows]).reshape(-1, 4)
    scores, classes = np.array([r[4] for r in rows]), np.array([r[5] for r in rows], np.int64)
    truth = Boxes(boxes, classes, classes > 40, classes < 3, np.abs(scores))
    record = DetectionRecord("a.jpg", Size(3, 4), truth, Detections(boxes, scores, classes))
    back = from_plain(orjson.loads(orjson.dumps(to_plain(record))))
    assert isinstance(back, DetectionRecord)
    assert (back.name, back.size) == ("a.jpg", (3, 4))
    for name in ("xyxy", "classes", "crowd", "difficult", "areas"):
        np.testing.assert_array_equal(getattr(back.truth, name), getattr(truth, name))
    np.testing.assert_array_equal(back.detections.boxes, boxes)
    np.testing.assert_array_equal(back.detections.scores, scores)


def test_the_other_records_come_back():
    ranked = ClassificationRecord("a", Size(1, 2), 3, np.array([3, 1]), np.array([0.75, 0.125]))
    back = from_plain(orjson.loads(orjson.dumps(to_plain(ranked))))
    assert isinstance(back, ClassificationRecord)
    assert (back.label, back.top.tolist(), back.scores.tolist()) == (3, [3, 1], [0.75, 0.125])
    counted = SegmentationRecord("a", Size(1, 2), np.eye(3, dtype=np.int64))
    again = from_plain(orjson.loads(orjson.dumps(to_plain(counted))))
    assert isinstance(again, SegmentationRecord)
    assert (again.confusion == counted.confusion).all()
    failed = FailedImage("a.jpg", "torn")
    assert from_plain(to_plain(failed)) == failed
    assert str(failed) == "a.jpg: torn"


@given(st.integers(1, 200), st.integers(1, 200), st.integers(0, 10**6))
def test_a_label_grid_is_the_nearest_pixel_of_each_cell_and_comes_back(height, width, seed):
    labels = np.random.default_rng(seed).integers(0, 65536, (height, width)).astype(np.uint16)
    grid = sampled(labels)
    assert grid.shape == (GRID, GRID)
    centres = [int((i + 0.5) * height / GRID) for i in range(GRID)]
    np.testing.assert_array_equal(grid[:, 0], labels[centres, int(0.5 * width / GRID)])
    record = SegmentationRecord("a", Size(width, height), np.eye(2, dtype=np.int64), grid)
    back = from_plain(orjson.loads(orjson.dumps(to_plain(record))))
    assert isinstance(back, SegmentationRecord)
    np.testing.assert_array_equal(back.grid, grid)


def test_a_record_from_before_there_were_grids_has_none():
    plain = {"name": "a", "size": [1, 2], "confusion": [[1]]}
    back = from_plain(plain)
    assert isinstance(back, SegmentationRecord)
    assert back.grid.size == 0
    assert to_plain(back)["grid"] == ""
    packed = to_plain(
        SegmentationRecord("a", Size(9, 9), np.eye(1, dtype=np.int64), sampled(np.zeros((9, 9))))
    )
    assert len(packed["grid"]) < 100  # a plain picture costs next to nothing
