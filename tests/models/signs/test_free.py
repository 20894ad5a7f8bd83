"""The anchor-free loss decodes by the YOLOX rule, lets the fit answer, and falls when they are right."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from holdfast.core.model import Card, Head, Input  # noqa: E402
from holdfast.core.types import Size  # noqa: E402
from holdfast.graph.heads.grids import yolox  # noqa: E402
from models.signs.free import FreeNet, assign, candidates, cells_of, decode, free_loss  # noqa: E402

CLASSES = 3
STRIDES = (8, 16, 32)
SIGN = torch.tensor([[0, 2, 33.0, 30.0, 13.0, 11.0]])


def card(size: Size, activation: str = "sigmoid", score: float = 0.3) -> Card:
    head = Head("yolox", {"strides": STRIDES, "activation": activation})
    return Card("detect", Input(size), head, ("a", "b", "c"), score=score)


def level(cells, index: int) -> set[tuple[int, int, int]]:
    return {(int(cells.stride[i]), int(cells.column[i]), int(cells.row[i])) for i in index}


def test_decode_equals_the_head_that_reads_the_shipped_model():
    cells = cells_of((32, 64), STRIDES)
    rows = np.random.default_rng(0).normal(size=(1, len(cells.stride), 5 + CLASSES)).astype(np.float32)
    found = yolox({"out": rows}, card(Size(64, 32), score=0.0))
    boxes = decode(torch.from_numpy(rows[0]), cells, torch.arange(len(cells.stride))).numpy()
    corners = np.concatenate([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2], 1)
    assert len(found) == 32 + 8 + 2
    order = np.lexsort(corners.T)
    np.testing.assert_allclose(found.boxes[np.lexsort(found.boxes.T)], corners[order], atol=1e-3)


@pytest.mark.parametrize(("side", "strides"), [(10, {8}), (40, {8, 16}), (70, {16, 32}), (200, {32})])
def test_levels_answer_for_signs_of_their_size(side, strides):
    cells = cells_of((256, 256), STRIDES)
    which, allowed = candidates(cells, torch.tensor([[0, 1, 100.0, 100.0, side, side / 2]]))
    assert which.shape == (1, 27)
    assert set(cells.stride[which[allowed]].tolist()) == strides
    near = torch.stack((cells.column, cells.row), 1)[which[allowed]] * cells.stride[which[allowed]][:, None]
    assert ((near - 100).abs() < 2 * cells.stride[which[allowed]][:, None]).all()


def test_cells_outside_the_map_do_not_answer():
    cells = cells_of((64, 64), STRIDES)
    which, allowed = candidates(cells, torch.tensor([[0, 1, 1.0, 63.0, 10.0, 10.0]]))
    assert level(cells, which[allowed]) == {(8, 0, 7), (8, 1, 7), (8, 0, 6), (8, 1, 6)}


def test_the_cell_that_says_it_best_answers():
    cells = cells_of((64, 64), STRIDES)
    rows = torch.zeros(1, len(cells.stride), 5 + CLASSES)
    rows[..., 2:4] = -3.0  # boxes far too small, so no overlaps add up to more than one answer
    best = int(((cells.stride == 8) & (cells.column == 3) & (cells.row == 4)).nonzero())
    rows[0, best] = torch.tensor([1.1, -0.2, math.log(13 / 8), math.log(11 / 8), 0, -5, -5, 5])
    found = assign(rows, cells, SIGN)
    assert found.cell.tolist() == [best]
    assert found.label.tolist() == [2]
    assert found.box.tolist() == [[33.0, 30.0, 13.0, 11.0]]


def test_a_cell_wanted_by_two_signs_answers_for_one():
    cells = cells_of((64, 64), STRIDES)
    rows = torch.zeros(1, len(cells.stride), 5 + CLASSES)
    found = assign(rows, cells, torch.cat((SIGN, SIGN + torch.tensor([[0, -1, 4.0, 0, 0, 0]]))))
    assert len(set(found.cell.tolist())) == len(found.cell)
    assert set(found.label.tolist()) == {1, 2}


def test_loss_without_signs_is_objectness_alone_and_has_a_gradient():
    cells = cells_of((32, 32), STRIDES)
    rows = torch.zeros(2, len(cells.stride), 5 + CLASSES, requires_grad=True)
    loss = free_loss(rows, cells, torch.zeros(0, 6))
    assert loss.item() == pytest.approx(2 * 21 * math.log(2), rel=1e-5)
    loss.backward()
    touched = rows.grad.abs().amax((0, 1))
    assert touched[4] > 0
    assert touched[[0, 1, 2, 3, 5, 6, 7]].max() == 0


def test_raw_rows_can_be_fitted_to_a_sign():
    cells = cells_of((64, 64), STRIDES)
    rows = torch.zeros(1, len(cells.stride), 5 + CLASSES, requires_grad=True)
    optimiser = torch.optim.Adam([rows], lr=0.2)
    for _ in range(120):
        optimiser.zero_grad()
        free_loss(rows, cells, SIGN).backward()
        optimiser.step()
    found = yolox({"out": rows.detach().numpy()}, card(Size(64, 64)))
    assert set(found.classes) == {2}
    np.testing.assert_allclose(found.boxes, np.tile([26.5, 24.5, 39.5, 35.5], (len(found), 1)), atol=1.0)


def test_network_learns_one_batch():
    torch.manual_seed(0)
    net, x = FreeNet(CLASSES, 16), torch.rand(2, 3, 64, 64)
    targets = torch.cat((SIGN, torch.tensor([[1, 0, 20.0, 40.0, 30.0, 34.0]])))
    optimiser = torch.optim.AdamW(net.parameters(), lr=3e-3)
    cells, losses = cells_of((64, 64), STRIDES), []
    for _ in range(25):
        loss = free_loss(net(x), cells, targets)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.6 * losses[0]


def test_untrained_network_is_quiet_and_read_by_the_head():
    torch.manual_seed(0)
    with torch.no_grad():
        rows = FreeNet(CLASSES, 16).eval()(torch.rand(1, 3, 64, 64))
    assert rows.shape == (1, 64 + 16 + 4, 5 + CLASSES)
    assert rows[..., 4].max() < 0.05
    assert len(yolox({"out": rows.numpy()}, card(Size(64, 64), "none"))) == 0
    assert len(yolox({"out": rows.numpy()}, card(Size(64, 64), "none", score=1e-5))) == 84
