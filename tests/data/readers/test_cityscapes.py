"""Cityscapes: train ids, label ids converted to them, splits."""

import io

import numpy as np
import pytest
from PIL import Image

from holdfast.core.errors import DataError, ImageError
from holdfast.data.open import open_dataset
from holdfast.data.readers.cityscapes import CLASSES


def png(pixels):
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


def values(sample):
    return np.asarray(Image.open(io.BytesIO(sample.truth.data)))


@pytest.fixture
def root(tmp_path):
    for split, city in (("train", "aachen"), ("val", "lindau")):
        stem = f"{city}/{city}_000000_000019"
        for part in ("leftImg8bit", "gtFine"):
            (tmp_path / part / split / city).mkdir(parents=True)
        image, ids = np.zeros((4, 6, 3), np.uint8), np.array([[0, 7, 8, 33, 34, 255]] * 4, np.uint8)
        (tmp_path / "leftImg8bit" / split / f"{stem}_leftImg8bit.png").write_bytes(png(image))
        (tmp_path / "gtFine" / split / f"{stem}_gtFine_labelIds.png").write_bytes(png(ids))
        (tmp_path / "gtFine" / split / f"{stem}_gtFine_instanceIds.png").write_bytes(png(ids))
        (tmp_path / "gtFine" / split / f"{stem}_gtFine_color.png").write_bytes(png(image))
    return tmp_path


def test_label_ids_are_converted_to_train_ids(root):
    found = open_dataset(root, split="val")
    assert (found.format, found.task, found.ignore_index) == ("cityscapes", "segment", 255)
    assert found.classes == tuple(CLASSES.values())
    assert (len(found.classes), found.classes[0], found.classes[18]) == (19, "road", "bicycle")
    assert [entry.name for entry in found.entries] == ["lindau/lindau_000000_000019_leftImg8bit.png"]
    assert values(found.entries[0].load())[0].tolist() == [255, 0, 1, 18, 255, 255]
    assert found.problems == ()


def test_train_ids_are_used_as_they_are(root):
    ids = np.full((4, 6), 3, np.uint8)
    stem = root / "gtFine/val/lindau/lindau_000000_000019_gtFine_labelTrainIds.png"
    stem.write_bytes(png(ids))
    before = open_dataset(root, split="train").entries[0]
    after = open_dataset(root, split="val").entries[0]
    assert (before.truth.table != b"", after.truth.table) == (True, b"")
    assert values(after.load()).tolist() == ids.tolist()
    assert before.key() != after.key()


def test_the_first_split_is_val(root):
    assert open_dataset(root).entries[0].name.startswith("lindau/")
    with pytest.raises(DataError, match="no split 'demo'"):
        open_dataset(root, split="demo")
    with pytest.raises(DataError, match="found no split in both"):
        open_dataset(root / "gtFine", format="cityscapes")


def test_a_damaged_mask_is_named(root):
    mask = root / "gtFine/val/lindau/lindau_000000_000019_gtFine_labelIds.png"
    mask.write_bytes(b"no picture")
    with pytest.raises(ImageError, match=r"labelIds\.png: expected a mask of 8 bits"):
        open_dataset(root, split="val").entries[0].load()
