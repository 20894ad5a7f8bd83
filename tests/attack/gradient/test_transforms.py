"""Transforms: a dot goes where the map says, gradients are right, values stay in range, seeds repeat."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.attack.gradient.transforms import moved
from holdfast.core.registry import lookup, names

MOVES = ("shift", "scale", "rotation", "diverse")
STILL = ("light", "jpeg")


def seeded(name, pixels, seed):
    return lookup("transform", name)(pixels, np.random.default_rng(seed))


def test_all_are_registered():
    assert {*MOVES, *STILL} <= set(names("transform"))


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(MOVES), st.integers(0, 10**6), st.integers(18, 40), st.integers(18, 60))
def test_a_dot_goes_where_the_map_says(name, seed, row, column):
    pixels = torch.zeros(1, 60, 80, 3)
    pixels[0, row : row + 2, column : column + 2] = 200.0  # its centre is the corner (column + 1, row + 1)
    seen, matrix = seeded(name, pixels, seed)
    weight = seen[0, :, :, 0].numpy().astype(np.float64)
    weight[weight == 114.0] = 0.0  # the grey around
    y, x = np.mgrid[:60, :80] + 0.5
    centre = np.array([(weight * x).sum(), (weight * y).sum()]) / weight.sum()
    expected = matrix[:, :2] @ [column + 1, row + 1] + matrix[:, 2]
    assert np.abs(centre - expected).max() < 0.3


@pytest.mark.parametrize("name", [*MOVES, *STILL])
def test_values_shape_and_seed(name):
    pixels = torch.from_numpy(np.random.default_rng(0).uniform(0, 255, (2, 40, 56, 3))).float()
    seen, matrix = seeded(name, pixels, 5)
    again, same = seeded(name, pixels, 5)
    other, _ = seeded(name, pixels, 6)
    assert seen.shape == pixels.shape
    assert matrix.shape == (2, 3)
    assert seen.min() >= -1e-3
    assert seen.max() <= 255 + 1e-3
    assert torch.equal(seen, again)
    assert np.array_equal(matrix, same)
    assert not torch.equal(seen, other)
    assert not torch.equal(seen, pixels)
    assert np.array_equal(matrix, np.eye(2, 3)) == (name in STILL)


@pytest.mark.parametrize("name", [*MOVES, "light"])
def test_gradients_by_finite_differences(name):
    start = np.random.default_rng(1).uniform(20, 230, (1, 6, 7, 3))
    pixels = torch.from_numpy(start).requires_grad_()
    assert torch.autograd.gradcheck(lambda p: seeded(name, p, 3)[0], pixels, atol=1e-6, fast_mode=True)


def test_jpeg_is_libjpeg_with_a_straight_gradient():
    import cv2

    rng = np.random.default_rng(2)
    image = cv2.resize(rng.integers(0, 256, (8, 8, 3), np.uint8), (64, 64))
    pixels = torch.from_numpy(image[None]).float().requires_grad_()
    seen, _ = seeded("jpeg", pixels, 0)
    quality = int(np.random.default_rng(0).integers(50, 95, endpoint=True))
    flags = [cv2.IMWRITE_JPEG_QUALITY, quality]
    expected = cv2.imdecode(cv2.imencode(".jpg", image[:, :, ::-1], flags)[1], cv2.IMREAD_COLOR)[:, :, ::-1]
    assert np.abs(seen[0].detach().numpy() - expected).max() <= 1
    weights = torch.rand_like(seen)
    (seen * weights).sum().backward()
    assert torch.equal(pixels.grad, weights)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_maps_join_and_boxes_follow(seed):
    pixels = torch.zeros(1, 60, 80, 3)
    first, second = (seeded(name, pixels, seed)[1] for name in ("diverse", "scale"))
    boxes = np.array([[10.0, 12.0, 30.0, 44.0]])
    both = np.concatenate(
        [second[:, :2] @ first[:, :2], second[:, :2] @ first[:, 2:] + second[:, 2:]], axis=1
    )
    assert np.allclose(moved(moved(boxes, first), second), moved(boxes, both))
    corners = boxes.reshape(2, 2) @ first[:, :2].T + first[:, 2]
    assert np.allclose(moved(boxes, first), corners.reshape(1, 4))  # without a turn: the corners' own way


def test_a_turned_circle_keeps_its_box():
    c, s = np.cos(0.4), np.sin(0.4)
    turned = moved(np.array([[-5.0, -5.0, 5.0, 5.0]]), np.array([[c, -s, 7.0], [s, c, 0.0]]))
    assert np.allclose(turned, [[2.0, -5.0, 12.0, 5.0]])
