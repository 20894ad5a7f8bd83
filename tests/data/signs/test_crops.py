"""Pictures of one sign: sizes, seeds, the folder they are written to, the name they are opened by."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.errors import DataError, InputError
from holdfast.core.types import Label
from holdfast.data.embedded import EmbeddedEntry, is_embedded
from holdfast.data.images import sniff
from holdfast.data.open import open_dataset
from holdfast.data.signs.canvas import CLASSES
from holdfast.data.signs.scene import crop_classify, crop_far, crop_single, encode


def far(seed, index):
    return EmbeddedEntry("far", seed, index, "classify")


@given(index=st.integers(0, 2**32))
@settings(max_examples=10, deadline=None)
def test_sizes_labels_and_qualities(index):
    image, label, quality = crop_far(0, index)
    assert image.dtype == np.uint8
    assert image.shape[0] == image.shape[1]
    assert 112 <= image.shape[0] <= 160
    assert 0 <= label < len(CLASSES)
    assert 10 <= quality <= 40


def test_same_twice_and_other_seeds_differ():
    first, again, other = crop_far(0, 5), crop_far(0, 5), crop_far(1, 5)
    assert first[0].tobytes() == again[0].tobytes()
    assert first[1:] == again[1:]
    assert first[0].shape != other[0].shape or first[0].tobytes() != other[0].tobytes()


def test_by_name():
    found = open_dataset("far:2:5", images=3)
    assert (found.name, found.format, found.task, len(found)) == ("far:2:5", "far", "classify", 3)
    assert found.entries[1] == far(2, 1)
    image, label, quality = crop_far(2, 1)
    sample = found.entries[1].load()
    assert sample.data == encode(image, quality)
    assert sample.truth == Label(label)
    assert sniff(sample.data).format == "JPEG"
    assert len({entry.key() for entry in (far(0, 1), far(1, 0), far(1, 1))}) == 3


@pytest.mark.parametrize("name", ["far:", "far:x", "far:1:0", "far:1:2:3"])
def test_names_that_are_none(name):
    with pytest.raises(InputError, match=name):
        open_dataset(name)


def test_it_serves_classifiers_only():
    with pytest.raises(DataError, match="expected a dataset for detection, got one for classification"):
        open_dataset("far", task="detect")
    with pytest.raises(InputError, match="far:SEED"):
        open_dataset("far", split="val")


def test_what_is_embedded():
    assert is_embedded("far:1:2")
    assert is_embedded("signs")
    assert not is_embedded("farther")


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
