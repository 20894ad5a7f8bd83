"""Masks keep to their budget, to the pixels that may be touched, and to their shape."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.attack.masks import count_regions, dilated, heaviest, inside, limited
from holdfast.attack.types import Target
from holdfast.core.registry import lookup, names
from holdfast.core.types import Boxes, no_detections

MASKS = ("square", "cross", "grid", "half-neighbour", "top-gradient")


def target_of(boxes, height=60, width=80):
    boxes = np.array(boxes, np.float64).reshape(-1, 4)
    return Target(np.zeros((height, width, 3), np.uint8), Boxes(boxes, np.zeros(len(boxes))), no_detections())


def box():
    return st.tuples(st.floats(-10, 70), st.floats(-10, 50), st.floats(0.5, 60), st.floats(0.5, 50)).map(
        lambda b: [b[0], b[1], b[0] + b[2], b[1] + b[3]]
    )


def test_the_masks_there_are():
    assert set(MASKS) <= set(names("mask"))


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(MASKS),
    st.lists(box(), min_size=1, max_size=3),
    st.integers(1, 700),
    st.sampled_from(["inside", "anywhere"]),
    st.integers(0, 99),
)
def test_budget_and_place(name, boxes, budget, place, seed):
    target, rng = target_of(boxes), np.random.default_rng(seed)
    allowed = np.ones((60, 80), bool) if place == "anywhere" else inside(target)
    gains = np.where(allowed, rng.random((60, 80)), -1.0)
    mask = lookup("mask", name)(target, budget, gains, rng)
    assert mask.shape == (60, 80)
    assert mask.dtype == bool
    assert mask.sum() <= budget
    assert not (mask & ~allowed).any()
    if name in ("top-gradient", "half-neighbour"):
        assert mask.sum() == min(budget, allowed.sum())


def mask_of(name, boxes, budget):
    """The mask without a gradient, as the black-box search asks for it."""
    target = target_of(boxes)
    gains = np.where(inside(target), 0.0, -1.0)
    return lookup("mask", name)(target, budget, gains, np.random.default_rng(0))


def test_a_cross_is_three_pixels_wide():
    mask = mask_of("cross", [[10, 10, 51, 41]], 3000)
    assert mask.sum() == 3 * 41 + 3 * 31 - 9
    assert mask[24:27, 10:51].all()
    assert mask[10:41, 29:32].all()


def test_a_cross_too_long_for_its_budget_loses_its_ends():
    mask = mask_of("cross", [[10, 10, 51, 41]], 50)
    assert mask.sum() == 50
    assert mask[25, 30]
    assert not mask[25, 10]


def test_a_square_lies_where_the_gradient_is():
    gradient = np.zeros((60, 80))
    gradient[31:41, 52:62] = 1.0
    mask = lookup("mask", "square")(target_of([[0, 0, 80, 60]]), 100, gradient, np.random.default_rng(0))
    assert np.array_equal(mask, gradient > 0)


def test_a_grid_is_of_single_pixels():
    mask = mask_of("grid", [[0, 0, 80, 60]], 300)
    assert 200 <= mask.sum() <= 300
    assert count_regions(mask) == mask.sum()


def test_clusters_are_of_five_pixels():
    gradient = np.zeros((60, 80))
    gradient[10, 10], gradient[40, 60] = 9.0, 8.0
    mask = lookup("mask", "half-neighbour")(
        target_of([[0, 0, 80, 60]]), 10, gradient, np.random.default_rng(0)
    )
    assert mask.sum() == 10
    assert count_regions(mask) == 2


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 6), st.integers(1, 300), st.integers(0, 99))
def test_few_regions(regions, budget, seed):
    rng = np.random.default_rng(seed)
    gains = rng.random((60, 80))
    mask = lookup("mask", "top-gradient")(target_of([[0, 0, 80, 60]]), budget, gains, rng)
    found = limited(mask, gains, budget, regions, np.ones((60, 80), bool))
    assert count_regions(found) <= regions
    assert found.sum() == budget


def test_regions_touch_at_corners():
    mask = np.eye(5, dtype=bool)
    mask[0, 4] = True
    assert count_regions(mask) == 2
    assert heaviest(mask, np.ones((5, 5)), 1).sum() == 5
    assert dilated(mask)[0, 3]
    assert count_regions(np.zeros((3, 3), bool)) == 0


def test_an_unknown_mask_is_named():
    with pytest.raises(Exception, match="cros"):
        lookup("mask", "cros")
