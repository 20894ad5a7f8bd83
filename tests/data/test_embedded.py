"""The embedded dataset: a view for each task, keys without drawing."""

import pickle
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from holdfast.core.errors import InputError
from holdfast.core.types import Boxes, Label, MaskFile
from holdfast.data.embedded import EmbeddedEntry
from holdfast.data.images import sniff
from holdfast.data.open import open_dataset
from holdfast.data.signs import scene as signs


@pytest.mark.parametrize(
    ("name", "seed", "count"), [("signs", 0, 1000), ("signs:7", 7, 1000), ("signs:7:12", 7, 12)]
)
def test_names(name, seed, count):
    found = open_dataset(name)
    assert (found.name, found.format, found.task, len(found)) == (name, "signs", "detect", count)
    assert found.entries[-1] == EmbeddedEntry("signs", seed, count - 1, "detect")
    assert len({entry.name for entry in found.entries}) == count


@pytest.mark.parametrize("name", ["signs:", "signs:x", "signs:1:0", "signs:1:2:3", "signs:-1", "signs:1.5"])
def test_names_that_are_none(name):
    with pytest.raises(InputError, match=name):
        open_dataset(name)


def test_options():
    assert len(open_dataset("signs:3:5", images=2)) == 2
    with pytest.raises(InputError, match="has no splits"):
        open_dataset("signs", split="val")


def test_detection_view():
    found = open_dataset("signs:3:2", task="detect")
    sample = found.entries[0].load()
    drawn = signs.scene(3, 0)
    assert found.classes == tuple(signs.CLASSES)
    assert isinstance(sample.truth, Boxes)
    np.testing.assert_array_equal(sample.truth.xyxy, np.reshape(drawn.boxes, (-1, 4)))
    np.testing.assert_array_equal(sample.truth.classes, drawn.classes)
    assert sniff(sample.data).format == "JPEG"
    assert sniff(sample.data).size == drawn.image.shape[1::-1]


def test_classification_view():
    found = open_dataset("signs:3:2", task="classify")
    assert found.classes == tuple(signs.CLASSES)
    assert found.entries[1].load().truth == Label(signs.crop_classify(3, 1)[1])


def test_single_view_is_in_pixels():
    found = open_dataset("signs:3:2", task="single")
    image, box, group = signs.crop_single(3, 1)
    truth = found.entries[1].load().truth
    assert found.classes == tuple(signs.GROUPS)
    height, width = image.shape[:2]
    np.testing.assert_allclose(truth.xyxy, [np.asarray(box) * [width, height, width, height]])
    assert truth.classes.tolist() == [group]


def test_segmentation_view():
    found = open_dataset("signs:3:2", task="segment")
    truth = found.entries[0].load().truth
    assert found.classes == tuple(signs.SEGMENTS)
    assert isinstance(truth, MaskFile)
    np.testing.assert_array_equal(np.asarray(Image.open(BytesIO(truth.data))), signs.scene(3, 0).mask)


def test_keys_need_no_drawing_and_tell_everything_apart(monkeypatch):
    monkeypatch.setattr(signs, "scene", None)
    entries = [
        EmbeddedEntry("signs", seed, index, task)
        for seed in (0, 1)
        for index in (0, 1)
        for task in ("detect", "segment")
    ]
    assert len({entry.key() for entry in entries}) == len(entries)


def test_loading_twice_gives_the_same():
    entry = pickle.loads(pickle.dumps(EmbeddedEntry("signs", 5, 9, "detect")))  # noqa: S301
    assert entry.load().data == entry.load().data


def test_written_to_a_folder_it_is_the_same_data(tmp_path):
    signs.make(tmp_path / "made", 3, 5)
    written, drawn = open_dataset(tmp_path / "made", task="detect"), open_dataset("signs:5:3")
    assert (written.format, written.classes, written.problems) == ("coco", drawn.classes, ())
    for file, entry in zip(written.entries, drawn.entries, strict=True):
        one, other = file.load(), entry.load()
        assert one.data == other.data
        np.testing.assert_allclose(one.truth.xyxy, other.truth.xyxy, atol=0.01)
        np.testing.assert_array_equal(one.truth.classes, other.truth.classes)
