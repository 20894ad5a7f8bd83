"""PASCAL VOC xml: layouts, splits, counting from one, faults."""

from collections import Counter

import pytest

from holdfast.core.errors import DataError
from holdfast.data import problems as kinds
from holdfast.data.open import open_dataset
from holdfast.data.readers.voc import voc


def thing(name="stop", corners=(1, 2, 11, 12), difficult=None):
    keys = ("xmin", "ymin", "xmax", "ymax")
    sides = "".join(f"<{key}>{value}</{key}>" for key, value in zip(keys, corners, strict=True))
    flag = "" if difficult is None else f"<difficult>{difficult}</difficult>"
    return f"<object><name>{name}</name><truncated>1</truncated>{flag}<bndbox>{sides}</bndbox></object>"


def page(*things, image="a.jpg", size=(40, 30)):
    stated = f"<size><width>{size[0]}</width><height>{size[1]}</height></size>" if size else ""
    return f"<annotation><filename>{image}</filename>{stated}{''.join(things)}</annotation>"


@pytest.fixture
def root(tmp_path, picture):
    (tmp_path / "annotations").mkdir()
    (tmp_path / "images").mkdir()
    for name in ("a", "b"):
        (tmp_path / "images" / f"{name}.jpg").write_bytes(picture())
        (tmp_path / "annotations" / f"{name}.xml").write_text(page(thing(), image=f"{name}.jpg"))
    return tmp_path


def count(dataset):
    return Counter(problem.kind for problem in dataset.problems)


def test_corners_as_written_or_counted_from_one(root):
    assert open_dataset(root).entries[0].load().truth.xyxy.tolist() == [[1, 2, 11, 12]]
    for found in (open_dataset(root, format="voc-one-based"), voc(root, one_based=True)):
        assert found.entries[0].load().truth.xyxy.tolist() == [[0, 1, 11, 12]]


def test_difficult(root):
    (root / "annotations" / "a.xml").write_text(page(thing(difficult=1), thing(difficult=0), thing()))
    assert open_dataset(root).entries[0].load().truth.difficult.tolist() == [True, False, False]


def test_classes_are_sorted(root):
    (root / "annotations" / "a.xml").write_text(page(thing("zebra"), thing("ant")))
    assert open_dataset(root).classes == ("ant", "stop", "zebra")


@pytest.mark.parametrize(
    ("xml", "images"),
    [
        ("Annotations", "JPEGImages"),
        ("annotations", "images"),
        (".", "."),
        ("Annotations", "."),
        ("xml", "images"),
    ],
)
def test_layouts(tmp_path, picture, xml, images):
    for name in (xml, images):
        (tmp_path / name).mkdir(exist_ok=True)
    (tmp_path / images / "a.jpg").write_bytes(picture())
    (tmp_path / xml / "a.xml").write_text(page(thing()))
    found = open_dataset(tmp_path)
    assert (found.format, len(found), found.problems) == ("voc", 1, ())


def test_stated_name_that_does_not_exist_gives_way_to_the_files_name(root):
    (root / "annotations" / "a.xml").write_text(page(thing(), image="C:\\photos\\IMG_1.png"))
    assert [entry.name for entry in open_dataset(root).entries] == ["a.jpg", "b.jpg"]


def test_every_problem_at_once(root, picture):
    (root / "annotations" / "a.xml").write_text(
        page(
            thing(corners=(1, 2, 1, 12)),
            thing(corners=(9, 2, 1, 12)),
            thing(corners=(1, 2, 300, 12)),
            thing(corners=("nan", 2, 3, 12)),
            thing(corners=("", 2, 3, 12)),
            thing(name=""),
            thing(),
        )
    )
    (root / "annotations" / "c.xml").write_text("<annotation><object>")
    (root / "annotations" / "d.xml").write_text("<html></html>")
    (root / "annotations" / "e.xml").write_text(page(thing(), image="e.jpg"))
    (root / "annotations" / "f.xml").write_text(page(thing(), image="b.jpg"))
    (root / "annotations" / "g.xml").write_text('<!DOCTYPE a [<!ENTITY b "c">]><annotation>&b;</annotation>')
    (root / "images" / "c.jpg").write_bytes(picture())
    (root / "images" / "alone.jpg").write_bytes(picture())
    found = open_dataset(root)
    assert count(found) == {
        kinds.EMPTY_BOX: 2,
        kinds.BOX_OUTSIDE: 1,
        kinds.NOT_A_NUMBER: 2,
        kinds.UNKNOWN_CLASS: 1,
        kinds.UNREADABLE_LABEL: 3,
        kinds.MISSING_FILE: 1,
        kinds.DUPLICATE_FILE: 1,
        kinds.IMAGE_WITHOUT_LABEL: 1,
    }
    assert [entry.name for entry in found.entries] == ["a.jpg", "b.jpg"]
    outside = next(problem for problem in found.problems if problem.kind == kinds.BOX_OUTSIDE)
    assert "a.xml: object 3 (stop)" in outside.where
    assert len(found.entries[0].load().truth) == 2


def test_image_sets_are_splits(root):
    (root / "ImageSets" / "Main").mkdir(parents=True)
    (root / "ImageSets" / "Main" / "test.txt").write_text("b\n")
    found = open_dataset(root, split="test")
    assert [entry.name for entry in found.entries] == ["b.jpg"]
    assert found.problems == ()
    with pytest.raises(DataError, match="no split 'night'"):
        open_dataset(root, split="night")


def test_folders_are_splits_and_share_their_classes(tmp_path, picture):
    for split, name in (("train", "ant"), ("test", "bee")):
        (tmp_path / split).mkdir()
        (tmp_path / split / "a.jpg").write_bytes(picture())
        (tmp_path / split / "a.xml").write_text(page(thing(name)))
    for split, index in (("train", 0), ("test", 1)):
        found = open_dataset(tmp_path, split=split)
        assert found.classes == ("ant", "bee")
        assert found.entries[0].load().truth.classes.tolist() == [index]


def test_size_is_optional(root):
    (root / "annotations" / "a.xml").write_text(page(thing(corners=(1, 2, 300, 12)), size=None))
    found = open_dataset(root)
    assert found.problems == ()  # known only once the header is read
    assert found.entries[0].size is None


def test_forced_on_something_else(tmp_path, picture):
    (tmp_path / "a.jpg").write_bytes(picture())
    with pytest.raises(DataError, match="no VOC xml files found"):
        open_dataset(tmp_path, format="voc")
