"""The loss of the one map decodes by the FastestDet rule, asks four cells, and falls when they are right."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from holdfast.core.model import Card, Head, Input  # noqa: E402
from holdfast.core.types import Size  # noqa: E402
from holdfast.graph.heads.grids import fastestdet  # noqa: E402
from models.signs.plain import PlainNet, decode, match, plain_loss  # noqa: E402

CLASSES = 3
WHOLE = Size(64, 64)
SIGN = torch.tensor([[0, 2, 33.0, 30.0, 13.0, 11.0]])


def read(found: torch.Tensor, size: Size = WHOLE, score: float = 0.3):
    head = Head("fastestdet", {"stride": 8})
    card = Card("detect", Input(size), head, ("a", "b", "c"), score=score)
    return fastestdet({"out": found.detach().numpy()}, card)


def activated(found: torch.Tensor) -> torch.Tensor:
    return torch.cat((found[:, :1].sigmoid(), found[:, 1:5], found[:, 5:].softmax(1)), 1)


def test_decode_equals_the_head_that_reads_the_shipped_model():
    raw = torch.from_numpy(np.random.default_rng(0).normal(size=(1, 5 + CLASSES, 4, 6)).astype(np.float32))
    found = read(activated(raw), Size(48, 32), score=0.0)
    row, column = torch.meshgrid(torch.arange(4), torch.arange(6), indexing="ij")
    boxes = decode(raw[0, 1:5].permute(1, 2, 0), column, row, 8, Size(48, 32)).reshape(-1, 4).numpy()
    corners = np.concatenate([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2], 1)
    assert len(found) == 24
    order = np.lexsort(corners.T)
    np.testing.assert_allclose(found.boxes[np.lexsort(found.boxes.T)], corners[order], atol=1e-3)


@pytest.mark.parametrize(
    ("centre", "cells"),
    [
        ((33.0, 30.0), {(4, 3), (5, 3), (4, 4), (5, 4)}),
        ((63.0, 30.0), {(7, 3), (7, 4)}),
        ((63.0, 63.0), {(7, 7)}),
        ((1.0, 1.0), {(0, 0), (1, 0), (0, 1), (1, 1)}),
    ],
)
def test_the_cells_around_the_centre_answer_and_reach_it(centre, cells):
    found = match(torch.tensor([[0, 1, *centre, 12.0, 12.0]]), 8, (8, 8))
    assert set(zip(found.column.tolist(), found.row.tolist(), strict=True)) == cells
    reach = torch.stack((found.column, found.row), 1) - found.box[:, :2] / 8
    assert reach.abs().max() < 1


def test_loss_without_signs_is_objectness_alone_and_has_a_gradient():
    found = torch.zeros(2, 5 + CLASSES, 4, 4, requires_grad=True)
    loss = plain_loss(found, 8, WHOLE, torch.zeros(0, 6))
    assert loss.item() == pytest.approx(2 * 16 * math.log(2), rel=1e-5)
    loss.backward()
    touched = found.grad.abs().amax((0, 2, 3))
    assert touched[0] > 0
    assert touched[1:].max() == 0


def test_raw_map_can_be_fitted_to_a_sign():
    found = torch.zeros(1, 5 + CLASSES, 8, 8, requires_grad=True)
    optimiser = torch.optim.Adam([found], lr=0.2)
    for _ in range(120):
        optimiser.zero_grad()
        plain_loss(found, 8, WHOLE, SIGN).backward()
        optimiser.step()
    said = read(activated(found))
    assert set(said.classes) == {2}
    np.testing.assert_allclose(said.boxes, np.tile([26.5, 24.5, 39.5, 35.5], (len(said), 1)), atol=1.0)


def test_sides_are_parts_of_the_whole_input_also_in_a_window():
    raw = torch.zeros(1, 4)
    box = decode(raw, torch.tensor([2]), torch.tensor([1]), 8, Size(416, 208))
    assert box.tolist() == [[16.0, 8.0, 208.0, 104.0]]


def test_network_learns_one_batch():
    torch.manual_seed(0)
    net, x = PlainNet(CLASSES, 16, (1, 2)), torch.rand(2, 3, 64, 64)
    targets = torch.cat((SIGN, torch.tensor([[1, 0, 20.0, 40.0, 30.0, 34.0]])))
    optimiser = torch.optim.AdamW(net.parameters(), lr=3e-3)
    losses = []
    for _ in range(25):
        loss = plain_loss(net(x), net.stride, WHOLE, targets)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.6 * losses[0]


def test_untrained_network_is_quiet_and_read_by_the_head():
    torch.manual_seed(0)
    with torch.no_grad():
        found = PlainNet(CLASSES, 16).eval()(torch.rand(1, 3, 64, 64))
    assert found.shape == (1, 5 + CLASSES, 8, 8)
    assert found[:, 0].max() < 0.05
    np.testing.assert_allclose(found[:, 5:].sum(1).numpy(), 1, atol=1e-5)
    assert len(read(found)) == 0
    assert len(read(found, score=1e-5)) == 64
