"""The loss decodes by the YOLOv3 rule, asks the right cells, and falls when the answer is right."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from holdfast.core.model import Card, Head, Input  # noqa: E402
from holdfast.core.types import Size  # noqa: E402
from holdfast.graph.heads.grids import yolov3  # noqa: E402
from models.signs.yolo import SCALE_XY, Grid, ciou, decode, match, split, yolo_loss  # noqa: E402

ANCHORS = [[10.0, 14.0], [30.0, 20.0]]
CLASSES = 3


def grid() -> Grid:
    return Grid(8, torch.tensor(ANCHORS))


def test_decode_equals_the_written_rule():
    raw = torch.tensor([[0.3, -1.2, 0.5, -0.4]])
    x, y, w, h = decode(raw, torch.tensor([[10.0, 14.0]]), torch.tensor([3]), torch.tensor([5]), 8)[
        0
    ].tolist()
    s = SCALE_XY
    assert x == pytest.approx((s / (1 + math.exp(-0.3)) - (s - 1) / 2 + 3) * 8, abs=1e-4)
    assert y == pytest.approx((s / (1 + math.exp(1.2)) - (s - 1) / 2 + 5) * 8, abs=1e-4)
    assert (w, h) == pytest.approx((10 * math.exp(0.5), 14 * math.exp(-0.4)), abs=1e-4)


def test_decode_equals_the_head_that_reads_the_shipped_model():
    head = torch.from_numpy(
        np.random.default_rng(0).normal(size=(1, 2 * (5 + CLASSES), 4, 6)).astype(np.float32)
    )
    options = {"anchors": [ANCHORS], "strides": [8], "scale_xy": [SCALE_XY], "multi_label": False}
    card = Card("detect", Input(Size(48, 32)), Head("yolov3", options), ("a", "b", "c"), score=0.0)
    found = yolov3({"out": head.numpy()}, card)
    raw = split(head, 2)
    rows, columns = torch.meshgrid(torch.arange(4), torch.arange(6), indexing="ij")
    mine = [decode(raw[0, a], grid().anchors[a], columns, rows, 8).reshape(-1, 4) for a in range(2)]
    boxes = torch.cat(mine).numpy()
    corners = np.concatenate([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2], 1)
    order = np.lexsort(corners.T)
    theirs = found.boxes[np.lexsort(found.boxes.T)]
    np.testing.assert_allclose(theirs, corners[order], atol=1e-3)


def test_three_cells_answer_for_a_sign_inside_and_fewer_at_the_border():
    inside = torch.tensor([[0, 1, 33.0, 30.0, 12.0, 12.0]])
    found = match(grid(), inside, (10, 10))
    assert {
        (r, c)
        for r, c, a in zip(found.row.tolist(), found.column.tolist(), found.anchor.tolist(), strict=True)
        if a == 0
    } == {
        (3, 4),
        (3, 3),
        (4, 4),
    }
    corner = match(grid(), torch.tensor([[0, 1, 1.0, 1.0, 12.0, 12.0]]), (10, 10))
    assert set(zip(corner.row.tolist(), corner.column.tolist(), strict=True)) == {(0, 0)}


def test_anchors_of_another_shape_do_not_answer():
    found = match(grid(), torch.tensor([[0, 1, 33.0, 30.0, 7.0, 6.0]]), (10, 10))
    assert set(found.anchor.tolist()) == {0}
    assert len(match(grid(), torch.tensor([[0, 1, 33.0, 30.0, 200.0, 200.0]]), (10, 10)).anchor) == 0


def test_ciou_of_equal_boxes_is_one_and_falls_with_distance():
    box = torch.tensor([[20.0, 20.0, 10.0, 8.0]])
    iou, complete = ciou(box, box)
    assert iou.item() == pytest.approx(1, abs=1e-5)
    assert complete.item() == pytest.approx(1, abs=1e-5)
    far = [ciou(box + torch.tensor([[d, 0.0, 0.0, 0.0]]), box)[1].item() for d in (20.0, 40.0)]
    assert 0 > far[0] > far[1]


def test_loss_without_signs_is_objectness_alone_and_has_a_gradient():
    head = torch.zeros(2, 2 * (5 + CLASSES), 4, 4, requires_grad=True)
    loss = yolo_loss((head,), (grid(),), torch.zeros(0, 6))
    assert loss.item() == pytest.approx(2 * 2 * 16 * math.log(2), rel=1e-5)
    loss.backward()
    touched = split(head.grad, 2).abs().amax((0, 1, 2, 3))
    assert touched[4] > 0
    assert touched[[0, 1, 2, 3, 5, 6, 7]].max() == 0


def test_raw_head_can_be_fitted_to_a_sign():
    head = torch.zeros(1, 2 * (5 + CLASSES), 8, 8, requires_grad=True)
    target = torch.tensor([[0, 2, 33.0, 30.0, 13.0, 11.0]])
    optimiser = torch.optim.Adam([head], lr=0.2)
    for _ in range(120):
        optimiser.zero_grad()
        yolo_loss((head,), (grid(),), target).backward()
        optimiser.step()
    options = {"anchors": [ANCHORS], "strides": [8], "scale_xy": [SCALE_XY]}
    card = Card("detect", Input(Size(64, 64)), Head("yolov3", options), ("a", "b", "c"), score=0.3)
    found = yolov3({"out": head.detach().numpy()}, card)
    assert set(found.classes) == {2}
    np.testing.assert_allclose(found.boxes, np.tile([26.5, 24.5, 39.5, 35.5], (len(found), 1)), atol=1.0)
