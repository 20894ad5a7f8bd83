"""Crops of one sign each."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.data.signs import CLASSES, crop_classify, crop_single


@given(seed=st.integers(0, 2**32), index=st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
def test_single_lies_inside_with_a_margin(seed, index):
    image, box, group = crop_single(seed, index)
    side = image.shape[0]
    assert image.shape == (side, side, 3)
    assert 96 <= side <= 160
    assert group in (0, 1, 2)
    assert (box[:2] > 0).all()
    assert (box[2:] < 1).all()
    assert 0.3 <= (box[3] - box[1]) <= 0.82


def test_single_is_off_centre():
    boxes = np.array([crop_single(0, index)[1] for index in range(40)])
    centres = (boxes[:, :2] + boxes[:, 2:]) / 2
    assert (centres.std(axis=0) > 0.05).all()


@given(index=st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
def test_classify_sizes_and_labels(index):
    image, label = crop_classify(0, index)
    assert image.dtype == np.uint8
    assert image.shape[0] == image.shape[1]
    assert 72 <= image.shape[0] <= 160
    assert 0 <= label < len(CLASSES)


@pytest.mark.parametrize("crop", [crop_classify, crop_single])
def test_same_bytes_twice_and_other_seeds_differ(crop):
    first, again, other = crop(0, 5), crop(0, 5), crop(1, 5)
    assert first[0].tobytes() == again[0].tobytes()
    assert first[-1] == again[-1]
    assert first[0].tobytes() != other[0].tobytes()


def test_all_labels_and_groups_occur():
    assert {crop_classify(0, index)[1] for index in range(120)} == set(range(20))
    assert {crop_single(0, index)[2] for index in range(20)} == {0, 1, 2}
