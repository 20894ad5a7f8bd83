"""Bounds of the shallow net contain what any content of the patch gives."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from holdfast.train.certified.net import ShallowNet, bounded_share, iou, loss  # noqa: E402


@pytest.fixture
def net():
    torch.manual_seed(0)
    return ShallowNet(3, (16, 16)).eval()


def squares(count, row, column, side):
    patch = torch.zeros(count, 1, 16, 16, dtype=torch.bool)
    patch[:, :, row : row + side, column : column + side] = True
    return patch


def test_bounds_contain_boxes_leads_and_overlaps_of_all_contents(net):
    images = torch.rand(4, 3, 16, 16)
    labels = torch.tensor([0, 1, 2, 0])
    patch = squares(4, 5, 9, 3)
    bounds = net.bounds(torch.where(patch, 0.5, images), 0.5 * patch.expand_as(images), labels)
    truth = torch.tensor([[0.2, 0.2, 0.8, 0.9]]).repeat(4, 1)
    least = bounds.least_iou(truth)
    for number in range(60):
        content = torch.rand(4, 3, 16, 16)
        content = content.round() if number % 2 else content
        with torch.no_grad():
            box, scores = net(torch.where(patch, content, images))
        assert (bounds.lower - 1e-5 <= box).all()
        assert (box <= bounds.upper + 1e-5).all()
        lead = scores - scores.gather(1, labels[:, None])
        assert (lead <= bounds.lead + 1e-5).all()
        assert (iou(box, truth) >= least - 1e-5).all()


def test_bounds_of_an_image_without_a_patch_are_its_outputs(net):
    images = torch.rand(3, 3, 16, 16)
    labels = torch.tensor([2, 1, 0])
    with torch.no_grad():
        box, scores = net(images)
        bounds = net.bounds(images, torch.zeros_like(images), labels)
    torch.testing.assert_close(bounds.lower, box)
    torch.testing.assert_close(bounds.upper, box)
    torch.testing.assert_close(bounds.lead, scores - scores.gather(1, labels[:, None]))


def test_loss_of_the_bounds_is_at_least_that_of_the_image(net):
    images, boxes = torch.rand(5, 3, 16, 16), torch.tensor([[0.1, 0.2, 0.7, 0.8]]).repeat(5, 1)
    labels, patch = torch.tensor([0, 1, 2, 1, 0]), squares(5, 0, 0, 4)
    values = [
        float(loss(net, (images, boxes, labels, patch, torch.tensor(weight))).detach())
        for weight in (0.0, 1.0)
    ]
    assert values[1] > values[0]


def test_share_of_bounded_positions_falls_with_the_size_of_the_patch(net):
    images = torch.rand(4, 3, 16, 16)
    with torch.no_grad():
        net.box.weight.mul_(0.02)
        net.scores.weight.mul_(0.3)
        net.scores.bias.copy_(torch.tensor([1.0, 0.0, 0.0]))
    positions = np.random.default_rng(0).integers(0, 5, (4, 20, 2))
    shares = [bounded_share(net, images, side, positions) for side in (1, 12)]
    assert 0 <= shares[1] < shares[0] <= 1
