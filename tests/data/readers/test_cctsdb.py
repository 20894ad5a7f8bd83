"""CCTSDB lines and the labels of the CCTSDB-YOLO benchmark."""

from collections import Counter

import pytest

from holdfast.core.errors import DataError
from holdfast.data import problems as kinds
from holdfast.data.open import open_dataset


def count(dataset):
    return Counter(problem.kind for problem in dataset.problems)


@pytest.fixture
def images(tmp_path, picture):
    (tmp_path / "images").mkdir()
    for name in ("00001.jpg", "00002.jpg"):
        (tmp_path / "images" / name).write_bytes(picture())
    return tmp_path


def test_the_three_groups_are_the_classes_even_if_one_is_missing(images):
    lines = ["00001.jpg;1;2;11;12;warning", "00001.jpg;3;4;13;14;mandatory;", "00002.jpg;1.5;2;11;12;warning"]
    (images / "gt.txt").write_text("\r\n".join(lines))
    for path in (images, images / "gt.txt"):
        found = open_dataset(path)
        assert (found.format, found.classes) == ("cctsdb", ("mandatory", "prohibitory", "warning"))
        assert found.problems == ()
        truth = found.entries[0].load().truth
        assert truth.xyxy.tolist() == [[1, 2, 11, 12], [3, 4, 13, 14]]
        assert truth.classes.tolist() == [2, 0]


def test_numbered_classes_are_sorted_as_numbers(images):
    (images / "gt.txt").write_text("00001.jpg;1;2;11;12;10\n00002.jpg;1;2;11;12;9")
    found = open_dataset(images)
    assert found.classes == ("9", "10")
    assert found.entries[0].load().truth.classes.tolist() == [1]


def test_every_problem_at_once(images, picture):
    (images / "images" / "00003.jpg").write_bytes(picture())
    lines = [
        "00001.jpg;1;2;11;12;warning",
        "00001.jpg;11;2;1;12;warning",
        "00001.jpg;nan;2;1;12;warning",
        "00001.jpg;1;2;11;warning",
        "00001.jpg;1;2;x;12;warning",
        "gone.jpg;1;2;11;12;warning",
        "00002.jpg;1;2;1;2;warning",
    ]
    (images / "gt.txt").write_text("\n".join(lines))
    found = open_dataset(images)
    assert count(found) == {
        kinds.EMPTY_BOX: 2,
        kinds.NOT_A_NUMBER: 1,
        kinds.UNREADABLE_LABEL: 2,
        kinds.MISSING_FILE: 1,
        kinds.IMAGE_WITHOUT_LABEL: 1,
    }
    assert {p.where for p in found.problems if p.kind == kinds.UNREADABLE_LABEL} == {
        f"{images / 'gt.txt'}:4",
        f"{images / 'gt.txt'}:5",
    }
    assert [len(entry.load().truth) for entry in found.entries] == [1, 0]


def test_forced_on_something_else(images):
    with pytest.raises(DataError, match="lines found"):
        open_dataset(images, format="cctsdb")


def test_benchmark_labels(images):
    (images / "gt_labels").mkdir()
    (images / "gt_labels" / "00001.txt").write_text("2 0.25 0.5 0.75 1.5")
    (images / "gt_labels" / "00002.txt").write_text("3 0.25 0.5 0.75 1")
    (images / "gt_labels" / "00004.txt").write_text("0 0.25 0.5 0.75 1")
    found = open_dataset(images, task="single")
    assert (found.format, found.task, len(found)) == ("cctsdb-yolo", "single", 1)
    assert found.entries[0].load().truth.xyxy.tolist() == [[10, 15, 30, 45]]
    assert count(found) == {kinds.UNKNOWN_CLASS: 1, kinds.LABEL_WITHOUT_IMAGE: 1, kinds.BOX_OUTSIDE: 1}
    assert open_dataset(images, task="detect").task == "detect"


@pytest.mark.parametrize("text", ["", "1 2 3", "0 0 0 1 1\n0 0 0 1 1", "a 0 0 1 1", "inf 0 0 1 1"])
def test_benchmark_label_that_cannot_be_read(images, text):
    (images / "gt_labels").mkdir()
    (images / "gt_labels" / "00001.txt").write_text(text)
    (images / "gt_labels" / "00002.txt").write_text("1 0 0 1 1")
    found = open_dataset(images)
    assert count(found) == {kinds.UNREADABLE_LABEL: 1}
    assert len(found) == 1
