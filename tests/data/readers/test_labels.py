"""Image folders and listings: classes by folder, by number and by name; faults."""

from collections import Counter

import pytest

from holdfast.core.errors import DataError
from holdfast.core.types import Label
from holdfast.data import problems as kinds
from holdfast.data.open import open_dataset


def count(dataset):
    return Counter(problem.kind for problem in dataset.problems)


def put(picture, root, *names):
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(picture())


def test_folder_classes_are_sorted_and_deep(tmp_path, picture):
    put(picture, tmp_path, "bee/2.jpg", "bee/1.PNG", "ant/deep/3.jpg", ".hidden/4.jpg", "loose.jpg")
    (tmp_path / "notes").mkdir()
    (tmp_path / "bee" / "readme.txt").write_text("not an image")
    found = open_dataset(tmp_path)
    assert (found.format, found.classes) == ("folder", ("ant", "bee"))
    assert [entry.name for entry in found.entries] == ["ant/deep/3.jpg", "bee/1.PNG", "bee/2.jpg"]
    assert [entry.load().truth for entry in found.entries] == [Label(0), Label(1), Label(1)]
    assert count(found) == {kinds.IMAGE_WITHOUT_LABEL: 1}


def test_folder_splits(tmp_path, picture):
    put(picture, tmp_path, "train/ant/1.jpg", "train/bee/2.jpg", "val/ant/3.jpg")
    assert [entry.name for entry in open_dataset(tmp_path).entries] == ["ant/3.jpg"]
    assert len(open_dataset(tmp_path, split="train")) == 2
    with pytest.raises(DataError, match="no split 'test'; there are: train, val"):
        open_dataset(tmp_path, split="test")


def test_folder_without_classes(tmp_path, picture):
    put(picture, tmp_path, "1.jpg")
    with pytest.raises(DataError, match="no sub folders with images"):
        open_dataset(tmp_path, format="folder")
    with pytest.raises(DataError, match=r"no known dataset format; .*folder; found 1\.jpg; .*labels"):
        open_dataset(tmp_path)


@pytest.mark.parametrize("place", [".", "images", "val"])
@pytest.mark.parametrize("line", ["{} {}", "{}\t{}", "{},{}", "{}  {}"])
def test_listing_lines_and_places(tmp_path, picture, place, line):
    put(picture, tmp_path, f"{place}/a b.jpg", f"{place}/c.jpg")
    (tmp_path / "val.txt").write_text("\n".join([line.format("a b.jpg", 7), line.format("c.jpg", 0)]))
    for path in (tmp_path, tmp_path / "val.txt"):
        found = open_dataset(path)
        assert (found.format, found.classes, found.problems) == ("listing", (), ())
        assert [(entry.name, entry.load().truth.index) for entry in found.entries] == [
            ("a b.jpg", 7),
            ("c.jpg", 0),
        ]


def test_listing_by_class_name(tmp_path, picture):
    put(picture, tmp_path, "a.jpg", "b.jpg")
    (tmp_path / "val.txt").write_text("a.jpg great white shark\nb.jpg bee\n")
    found = open_dataset(tmp_path)
    assert found.classes == ("bee", "great white shark")
    assert [entry.load().truth.index for entry in found.entries] == [1, 0]


def test_listing_names_beside(tmp_path, picture):
    put(picture, tmp_path, "a.jpg", "b.jpg", "c.jpg")
    (tmp_path / "val.txt").write_text("a.jpg 1\nb.jpg 2\nc.jpg 0\n")
    (tmp_path / "classes.txt").write_text("ant\nbee\n")
    found = open_dataset(tmp_path)
    assert found.classes == ("ant", "bee")
    assert count(found) == {kinds.UNKNOWN_CLASS: 1}
    assert found.problems[0].where.endswith("val.txt:2")


def test_listing_every_problem_at_once(tmp_path, picture):
    put(picture, tmp_path, "a.jpg", "b.jpg", "alone.jpg")
    (tmp_path / "val.txt").write_text("a.jpg 1\n\nb.jpg\ngone.jpg 3\na.jpg 2\n")
    found = open_dataset(tmp_path)
    assert count(found) == {
        kinds.UNREADABLE_LABEL: 1,
        kinds.MISSING_FILE: 1,
        kinds.DUPLICATE_FILE: 1,
        kinds.IMAGE_WITHOUT_LABEL: 2,
    }
    wheres = {problem.kind: problem.where for problem in found.problems}
    assert wheres[kinds.UNREADABLE_LABEL].endswith("val.txt:3")
    assert wheres[kinds.MISSING_FILE].endswith("val.txt:4")


def test_listing_prefers_validation(tmp_path, picture):
    put(picture, tmp_path, "a.jpg")
    for split in ("train", "val"):
        (tmp_path / f"{split}.txt").write_text(f"a.jpg {len(split)}")
    assert open_dataset(tmp_path).entries[0].load().truth == Label(3)
    assert open_dataset(tmp_path, split="train").entries[0].load().truth == Label(5)


def test_listing_of_something_else(tmp_path):
    (tmp_path / "notes.txt").write_text("dear diary\n")
    with pytest.raises(DataError, match=r"found a \.txt file of 11 bytes"):
        open_dataset(tmp_path / "notes.txt")
    with pytest.raises(DataError, match="no listing found"):
        open_dataset(tmp_path, format="listing")
    (tmp_path / "bin.txt").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(DataError, match="expected text in UTF-8, got byte 0xff"):
        open_dataset(tmp_path / "bin.txt", format="listing")
