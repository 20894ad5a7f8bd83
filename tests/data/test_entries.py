"""Entries: small, picklable, exact; files that cannot be read are named."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import ImageError
from holdfast.core.types import Boxes, Label, MaskFile, Size
from holdfast.data.entries import (
    BoxRow,
    FileEntry,
    PixelBoxes,
    StoredLabel,
    StoredMask,
    UnitBoxes,
    pack,
    read_image_file,
)

numbers = st.floats(-1e6, 1e6)
rows = st.builds(
    BoxRow,
    numbers,
    numbers,
    numbers,
    numbers,
    st.integers(0, 10_000),
    st.booleans(),
    st.booleans(),
    st.floats(0, 1e9),
)


@given(st.lists(rows, max_size=5))
def test_packed_rows_come_back_exactly(given_rows):
    boxes = PixelBoxes(pack(given_rows)).read("a", b"")
    assert boxes.xyxy.tolist() == [list(row[:4]) for row in given_rows]
    assert boxes.classes.tolist() == [row.category for row in given_rows]
    assert boxes.crowd.tolist() == [row.crowd for row in given_rows]
    assert boxes.difficult.tolist() == [row.difficult for row in given_rows]
    assert boxes.areas.tolist() == [row.area for row in given_rows]


def test_area_is_that_of_the_box_unless_stated():
    boxes = PixelBoxes(pack([BoxRow(1, 2, 4, 8, 0), BoxRow(1, 2, 4, 8, 0, area=7.5)])).read("a", b"")
    assert boxes.areas.tolist() == [18.0, 7.5]


def test_shares_become_pixels_by_the_header(tmp_path, picture):
    (tmp_path / "a.jpg").write_bytes(picture(40, 30))
    entry = FileEntry("a.jpg", str(tmp_path / "a.jpg"), UnitBoxes(pack([BoxRow(0.25, 0.5, 0.75, 1.0, 2)])))
    truth = entry.load().truth
    assert isinstance(truth, Boxes)
    assert truth.xyxy.tolist() == [[10.0, 15.0, 30.0, 30.0]]
    assert truth.areas.tolist() == [300.0]


@pytest.mark.parametrize(
    "truth",
    [PixelBoxes(pack([BoxRow(0, 0, 5, 5, 1)])), UnitBoxes(pack([BoxRow(0, 0, 1, 1, 1)])), StoredLabel(3)],
)
def test_pickles_small_and_loads_the_same(tmp_path, picture, truth):
    (tmp_path / "a.jpg").write_bytes(picture(400, 300))
    entry = FileEntry("a.jpg", str(tmp_path / "a.jpg"), truth, Size(400, 300))
    entry.load()
    copy = pickle.loads(pickle.dumps(entry))  # noqa: S301
    assert copy == entry
    assert copy.key() == entry.key()
    assert len(pickle.dumps(entry)) < 1000
    assert copy.load().data == picture(400, 300)


def test_key_follows_content_and_truth_not_the_name(tmp_path, picture):
    for name, data in (("a", picture()), ("b", picture()), ("c", picture(41, 30))):
        (tmp_path / f"{name}.jpg").write_bytes(data)

    def key(name, index):
        return FileEntry(name, str(tmp_path / f"{name}.jpg"), StoredLabel(index)).key()

    assert key("a", 1) == key("b", 1)
    assert len({key("a", 1), key("a", 2), key("c", 1)}) == 3


@pytest.mark.parametrize("kind", [PixelBoxes, UnitBoxes])
def test_key_follows_the_boxes(tmp_path, picture, kind):
    (tmp_path / "a.jpg").write_bytes(picture())
    row = BoxRow(0, 0, 0.5, 0.5, 1)
    changes = [{}, {"x2": 0.6}, {"category": 2}, {"crowd": True}, {"difficult": True}, {"area": 0.1}]
    truths = [kind(pack([row._replace(**change)])) for change in changes]
    keys = {FileEntry("a.jpg", str(tmp_path / "a.jpg"), truth).key() for truth in (*truths, kind())}
    assert len(keys) == len(changes) + 1


def test_key_follows_the_mask(tmp_path, picture):
    for name, data in (("i.jpg", picture()), ("m.png", picture(kind="PNG", mode="L"))):
        (tmp_path / name).write_bytes(data)
    entry = FileEntry("i.jpg", str(tmp_path / "i.jpg"), StoredMask(str(tmp_path / "m.png")))
    before = entry.key()
    assert isinstance(entry.load().truth, MaskFile)
    (tmp_path / "m.png").write_bytes(picture(41, 30, "PNG", "L"))
    assert entry.key() != before


def test_label_is_loaded(tmp_path, picture):
    (tmp_path / "a.jpg").write_bytes(picture())
    assert FileEntry("a", str(tmp_path / "a.jpg"), StoredLabel(7)).load().truth == Label(7)


def test_files_that_cannot_be_read_are_named(tmp_path, picture, monkeypatch):
    (tmp_path / "empty.jpg").touch()
    (tmp_path / "folder.jpg").mkdir()
    (tmp_path / "large.jpg").write_bytes(picture())
    for name, said in (("none.jpg", "no such"), ("empty.jpg", "0 bytes"), ("folder.jpg", "cannot be read")):
        entry = FileEntry(name, str(tmp_path / name), StoredLabel(0))
        for call in (entry.load, entry.key):
            with pytest.raises(ImageError, match=said) as caught:
                call()
            assert name in str(caught.value)
    monkeypatch.setenv("HOLDFAST_LIMITS", "image-mb=1")
    with (tmp_path / "large.jpg").open("ab") as stream:
        stream.truncate(3 << 20)
    with pytest.raises(ImageError, match=r"large\.jpg: 3 MB; the limit image-mb is 1 "):
        read_image_file(tmp_path / "large.jpg")


def test_boxes_cannot_be_scaled_by_what_is_no_image(tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"not an image at all")
    with pytest.raises(ImageError, match=r"a\.jpg: not a supported image"):
        FileEntry("a.jpg", str(tmp_path / "a.jpg"), UnitBoxes(pack([BoxRow(0, 0, 1, 1, 0)]))).load()


def test_no_boxes_are_boxes(tmp_path, picture):
    (tmp_path / "a.jpg").write_bytes(picture())
    for truth in (PixelBoxes(), UnitBoxes()):
        found = FileEntry("a.jpg", str(tmp_path / "a.jpg"), truth).load().truth
        assert isinstance(found, Boxes)
        assert found.xyxy.shape == (0, 4)
        assert found.classes.dtype == np.int64
