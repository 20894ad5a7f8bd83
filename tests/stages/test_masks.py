import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import ImageError, InputError
from holdfast.core.types import Size
from holdfast.stages.masks import HalfPlanes, PatchSize, SquareMasks, covering

sides = st.integers(1, 40)


@given(sides, sides, st.integers(1, 12), st.integers(1, 9))
def test_square_masks_cover_every_patch_up_to_their_size_at_every_place(width, height, patch, per_axis):
    size = Size(width, height)
    family = SquareMasks(PatchSize(patch), per_axis)
    if patch > min(size):
        with pytest.raises(ImageError, match=f"a patch of {patch} px, got {width}×{height}"):
            family.masks(size)
        return
    masks = family.masks(size)
    assert len(masks) <= per_axis**2
    assert (masks >= 0).all()
    assert (masks[:, 2:] <= size).all()
    for side in {1, patch}:
        places = [(x, y) for x in range(width - side + 1) for y in range(height - side + 1)]
        assert covering(masks, places, side).any(axis=0).all()


def test_squares_have_the_sides_and_strides_of_patchcleanser():
    # S = 224, p = 32, n = 6: s = ceil(193 / 6) = 33, m = 32 + 33 - 1 = 64
    masks = SquareMasks(PatchSize(32), 6).masks(Size(224, 224))
    assert len(masks) == 36
    assert masks[:6, 0].tolist() == [0, 33, 66, 99, 132, 165]
    assert (masks[:5, 2] - masks[:5, 0]).tolist() == [64] * 5
    assert masks[5].tolist() == [165, 0, 224, 64]


@given(sides, sides, st.integers(1, 50))
def test_half_planes_are_two_on_each_side_of_every_line(width, height, lines):
    masks = HalfPlanes(lines).masks(Size(width, height))
    assert len(masks) == 2 * (min(lines, width - 1) + min(lines, height - 1))
    assert len({tuple(mask) for mask in masks.tolist()}) == len(masks)
    for x1, y1, x2, y2 in masks.tolist():
        assert (x1 < x2, y1 < y2) == (True, True)
        assert x1 == 0 or x2 == width
        assert y1 == 0 or y2 == height


@given(sides, sides, st.integers(1, 12), st.data())
def test_a_mask_covers_a_patch_if_it_hides_all_its_pixels(width, height, patch, data):
    patch = min(patch, width, height)
    x1, y1 = data.draw(st.integers(0, width - 1)), data.draw(st.integers(0, height - 1))
    x2, y2 = data.draw(st.integers(x1 + 1, width)), data.draw(st.integers(y1 + 1, height))
    x, y = data.draw(st.integers(0, width - patch)), data.draw(st.integers(0, height - patch))
    hidden, pixels = np.zeros((height, width), bool), np.zeros((height, width), bool)
    hidden[y1:y2, x1:x2] = True
    pixels[y : y + patch, x : x + patch] = True
    covers = covering(np.array([[x1, y1, x2, y2]]), [(x, y)], patch)
    assert covers.tolist() == [[bool(hidden[pixels].all())]]


@pytest.mark.parametrize(
    ("text", "side"), [("32", 32), ("32px", 32), ("1%", 40), ("0.5%", 29), ("100%", 400), (" 8 ", 8)]
)
def test_a_patch_size_is_pixels_or_a_share_of_the_area(text, side):
    assert PatchSize.parse(text).side(Size(400, 400)) == side


@pytest.mark.parametrize("text", ["0", "0%", "101%", "-3", "", "big", "3.5", "1e3", "٣"])
def test_other_patch_sizes_are_one_line(text):
    with pytest.raises(InputError, match=rf"--patch: expected a side .* got {re.escape(repr(text))}"):
        PatchSize.parse(text)


def test_a_share_is_rounded_up_so_that_it_covers_at_least_that_share():
    size = Size(333, 500)
    for share in (0.001, 0.01, 0.037, 0.2):
        side = PatchSize(share=share).side(size)
        assert (side - 1) ** 2 < share * 333 * 500 <= side**2
    assert (str(PatchSize(share=0.005)), str(PatchSize(16))) == ("0.5%", "16 px")
