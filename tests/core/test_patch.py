"""A patch as data."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import InputError
from holdfast.core.patch import (
    OnBoxes,
    Patch,
    Position,
    amplitude,
    apply,
    changed,
    changed_pixels,
    difference,
)


def image(height=12, width=16, value=7):
    return np.full((height, width, 3), value, np.uint8)


def test_a_patch_replaces_exactly_the_masked_pixels():
    pixels = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
    mask = np.array([[1, 0, 1], [0, 1, 0]], bool)
    before = image()
    after = apply(before, Patch(pixels, mask, Position(4, 5)))
    assert (before == 7).all()  # the input is not written to
    assert changed_pixels(before, after) == 3
    assert (after[5, 4] == pixels[0, 0]).all()
    assert (after[5, 6] == pixels[0, 2]).all()
    assert (after[6, 5] == pixels[1, 1]).all()
    assert (after[5, 5] == 7).all()


@given(st.integers(-20, 20), st.integers(-20, 20))
def test_what_lies_outside_is_cut_off(x, y):
    patch = Patch(np.full((5, 6, 3), 200, np.uint8), np.ones((5, 6), bool), Position(x, y))
    before = image()
    inside = [(r, c) for r in range(12) for c in range(16) if y <= r < y + 5 and x <= c < x + 6]
    after = apply(before, patch)
    assert sorted(map(tuple, np.argwhere(changed(before, after)).tolist())) == inside


def test_a_pixel_counts_once_if_any_channel_differs():
    before, after = image(), image()
    after[0, 0] = (8, 6, 7)  # the sum of the differences is 0
    after[3, 3, 2] += 40
    assert changed_pixels(before, after) == 2
    assert amplitude(before, after) == 40
    assert amplitude(before, before) == 0


@given(st.integers(0, 2**32 - 1))
def test_the_difference_turns_one_image_into_the_other(seed):
    rng = np.random.default_rng(seed)
    before = rng.integers(0, 256, (9, 7, 3), np.uint8)
    after = np.where(rng.random((9, 7, 1)) < 0.3, rng.integers(0, 256, (9, 7, 3)), before).astype(np.uint8)
    patch = difference(before, after)
    assert (apply(before, patch) == after).all()
    assert patch.mask.sum() == changed_pixels(before, after)


def test_on_boxes_it_is_scaled_and_centred_on_every_box():
    patch = Patch(np.full((4, 4, 3), 99, np.uint8), np.ones((4, 4), bool), OnBoxes(0.5, 0.5, 0.5))
    boxes = np.array([[0.0, 0.0, 8.0, 8.0], [8.0, 4.0, 16.0, 12.0]])
    after = apply(image(), patch, boxes)
    rows, columns = np.nonzero(changed(image(), after))
    assert set(zip(rows.tolist(), columns.tolist(), strict=True)) == {
        *((r, c) for r in range(2, 6) for c in range(2, 6)),
        *((r, c) for r in range(6, 10) for c in range(10, 14)),
    }


def test_a_patch_on_boxes_needs_boxes():
    patch = Patch(np.zeros((2, 2, 3), np.uint8), np.ones((2, 2), bool), OnBoxes())
    with pytest.raises(InputError, match="expected the boxes"):
        apply(image(), patch)


@pytest.mark.parametrize(
    ("pixels", "mask", "said"),
    [
        (np.zeros((2, 2, 4), np.uint8), np.ones((2, 2)), r"expected \(h, w, 3\) uint8"),
        (np.zeros((2, 2, 3)), np.ones((2, 2)), "got .*float64"),
        (np.zeros((2, 2, 3), np.uint8), np.ones((3, 2)), "Patch.mask"),
    ],
)
def test_wrong_patches_are_refused(pixels, mask, said):
    with pytest.raises(InputError, match=said):
        Patch(pixels, mask)


def test_images_of_two_sizes_have_no_difference():
    with pytest.raises(InputError, match="one size"):
        changed(image(3, 3), image(3, 4))
