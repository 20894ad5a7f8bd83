import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.graph import nms as module
from holdfast.graph.nms import ious, nms


def overlap(a, b, offset):
    width = max(0.0, min(a[2], b[2]) - max(a[0], b[0]) + offset)
    height = max(0.0, min(a[3], b[3]) - max(a[1], b[1]) + offset)
    areas = [max(0.0, c[2] - c[0] + offset) * max(0.0, c[3] - c[1] + offset) for c in (a, b)]
    union = areas[0] + areas[1] - width * height
    return width * height / union if union > 0 else 0.0


def by_definition(boxes, scores, classes, iou, strict, offset):
    """The greedy rule as one says it, one pair at a time."""
    kept = []
    for i in sorted(range(len(boxes)), key=lambda i: -scores[i]):
        found = [overlap(boxes[j], boxes[i], offset) for j in kept if classes[j] == classes[i]]
        if not any(v > iou if strict else v >= iou for v in found):
            kept.append(i)
    return kept


coarse = st.integers(0, 8)  # few values: many ties of score and of IoU
candidates = st.lists(
    st.tuples(coarse, coarse, coarse, coarse, st.integers(0, 4), st.integers(0, 2)), max_size=60
)


@settings(max_examples=150, deadline=None)
@given(
    candidates,
    st.sampled_from([0.0, 0.25, 1 / 3, 0.5, 1.0]),
    st.booleans(),
    st.sampled_from([0.0, 1.0]),
    st.sampled_from([None, 1, 5, 2000]),
)
def test_equals_the_definition(rows, iou, strict, offset, limit):
    table = np.array(rows, np.float64).reshape(-1, 6)
    boxes = np.concatenate([table[:, :2], table[:, :2] + table[:, 2:4]], axis=1)
    scores, classes = table[:, 4] / 4, table[:, 5].astype(np.int64)
    got = nms(boxes, scores, classes, iou, strict=strict, plus=offset, max_detections=limit)
    assert got.tolist() == by_definition(boxes, scores, classes, iou, strict, offset)[:limit]


@pytest.mark.parametrize("limit", [None, 40, 100])
def test_equals_the_definition_over_several_blocks(limit):
    rng = np.random.default_rng(3)
    n = 3 * module.BLOCK + 17
    corners = rng.uniform(0, 200, (n, 2))
    boxes = np.concatenate([corners, corners + rng.uniform(10, 90, (n, 2))], axis=1)
    scores, classes = rng.integers(0, 50, n) / 50, rng.integers(0, 3, n)
    got = nms(boxes, scores, classes, 0.4, max_detections=limit)
    assert got.tolist() == by_definition(boxes, scores, classes, 0.4, True, 0.0)[:limit]


def test_nothing_in_nothing_out():
    assert nms(np.zeros((0, 4)), np.zeros(0), np.zeros(0, np.int64), 0.5).tolist() == []
    assert nms(np.zeros((0, 4)), np.zeros(0), np.zeros(0, np.int64), 0.5, max_detections=5).tolist() == []


def test_the_extra_pixel_changes_what_is_suppressed():
    boxes = np.array([[0, 0, 9, 9], [5, 0, 14, 9]], float)
    assert ious(boxes[:1], boxes[1:])[0, 0] == pytest.approx(36 / 126)
    assert ious(boxes[:1], boxes[1:], 1.0)[0, 0] == pytest.approx(50 / 150)
    same = np.zeros(2, np.int64)
    assert len(nms(boxes, np.array([0.9, 0.8]), same, 0.3)) == 2
    assert len(nms(boxes, np.array([0.9, 0.8]), same, 0.3, plus=1.0)) == 1
