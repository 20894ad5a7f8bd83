"""YOLO text labels: yaml files as they are found, lines as they are found."""

from collections import Counter

import pytest
import yaml

from holdfast.core.errors import DataError
from holdfast.data import problems as kinds
from holdfast.data.open import open_dataset


def count(dataset):
    return Counter(problem.kind for problem in dataset.problems)


@pytest.fixture
def root(tmp_path, picture):
    for split in ("train", "val"):
        for part in ("images", "labels"):
            (tmp_path / part / split).mkdir(parents=True)
        for name in ("a", "b"):
            (tmp_path / "images" / split / f"{name}.jpg").write_bytes(picture())
            (tmp_path / "labels" / split / f"{name}.txt").write_text("1 0.5 0.5 0.5 0.5\n")
    config(tmp_path)
    return tmp_path


def config(root, **changes):
    content = {"path": ".", "train": "images/train", "val": "images/val", "names": ["ant", "bee"]} | changes
    kept = {key: value for key, value in content.items() if value is not None}
    (root / "data.yaml").write_text(yaml.safe_dump(kept))


def test_validation_is_taken_and_said(root):
    found = open_dataset(root)
    assert [entry.name for entry in found.entries] == ["images/val/a.jpg", "images/val/b.jpg"]
    assert count(found) == {kinds.SEVERAL_SPLITS: 1}
    assert found.entries[0].load().truth.xyxy.tolist() == [[10, 7.5, 30, 22.5]]
    train = open_dataset(root / "data.yaml", split="train")
    assert [entry.name for entry in train.entries] == ["images/train/a.jpg", "images/train/b.jpg"]
    assert train.problems == ()


def test_names_as_a_mapping_with_gaps(root):
    config(root, train=None, names={3: "cat", 1: "bee"})
    found = open_dataset(root)
    assert found.classes == ("bee", "cat")
    assert found.entries[0].load().truth.classes.tolist() == [0]


@pytest.mark.parametrize("value", ["images/val", "./images/val", "../images/val", ["images/val"], "val.txt"])
@pytest.mark.parametrize("path", [".", None, "../gone"])
def test_ways_to_state_the_images(root, value, path):
    (root / "val.txt").write_text("images/val/a.jpg\n./images/val/b.jpg\n")
    config(root, train=None, val=value, path=path)
    found = open_dataset(root)
    assert [entry.name for entry in found.entries] == ["images/val/a.jpg", "images/val/b.jpg"]
    assert found.problems == ()


def test_several_folders_each_image_once(root):
    config(root, train=None, val=["images/val", "images/train", "images/val"])
    found = open_dataset(root)
    assert len(found) == 4
    assert count(found) == {kinds.DUPLICATE_FILE: 1}


@pytest.mark.parametrize("names", [("ant", "bee"), ()])
def test_without_a_yaml(root, names):
    (root / "data.yaml").unlink()
    if names:
        (root / "classes.txt").write_text("\n".join(names))
    found = open_dataset(root)
    assert (found.format, len(found), found.classes) == ("yolo", 2, names or ("0", "1"))


def test_labels_beside_the_images(tmp_path, picture):
    (tmp_path / "val").mkdir()
    (tmp_path / "val" / "a.jpg").write_bytes(picture())
    (tmp_path / "val" / "a.txt").write_text("0 0.5 0.5 1 1")
    config(tmp_path, train=None, val="val")
    found = open_dataset(tmp_path)
    assert found.entries[0].load().truth.xyxy.tolist() == [[0, 0, 40, 30]]


def test_polygons_become_boxes(root):
    (root / "labels" / "val" / "a.txt").write_text("0 0.25 0.5 0.75 0.5 0.5 1.0")
    assert open_dataset(root).entries[0].load().truth.xyxy.tolist() == [[10, 15, 30, 30]]


def test_every_problem_at_once(root, picture):
    labels = root / "labels" / "val"
    lines = [
        "1 0.5 0.5 0.5 0.5",
        "2 0.5 0.5 0.5 0.5",
        "0 0.9 0.5 0.5 0.5",
        "0 0.5 0.5 0 0.5",
        "0 0.5 0.5 -0.1 0.5",
        "0 nan 0.5 0.5 0.5",
        "0 0.5 0.5 0.5",
        "bee 0.5 0.5 0.5 0.5",
        "0.5 0.5 0.5 0.5 0.5",
        "",
        "0 0.5 0.5 0.5 0.5 0.9",
    ]
    (labels / "a.txt").write_text("\n".join(lines))
    (labels / "b.txt").write_bytes(b"\xff\xfe\x00")
    (labels / "ghost.txt").write_text("0 0.5 0.5 0.5 0.5")
    (root / "images" / "val" / "bare.jpg").write_bytes(picture())
    (root / "images" / "val" / "a.png").write_bytes(picture())
    found = open_dataset(root, split="val")
    assert count(found) == {
        kinds.UNKNOWN_CLASS: 2,  # a.png shares the labels of a.jpg
        kinds.BOX_OUTSIDE: 2,
        kinds.EMPTY_BOX: 4,
        kinds.NOT_A_NUMBER: 2,
        kinds.UNREADABLE_LABEL: 9,
        kinds.LABEL_WITHOUT_IMAGE: 1,
        kinds.IMAGE_WITHOUT_LABEL: 1,
        kinds.DUPLICATE_FILE: 1,
    }
    wheres = [problem.where for problem in found.problems if problem.kind == kinds.UNREADABLE_LABEL]
    assert f"{labels / 'a.txt'}:11" in wheres
    truths = {entry.name: entry.load().truth for entry in found.entries}
    assert len(truths["images/val/bare.jpg"]) == 0  # a background image counts
    assert truths["images/val/a.jpg"].classes.tolist() == [1, 0]


def test_listed_image_that_is_missing(root):
    (root / "val.txt").write_text("images/val/a.jpg\n\nimages/val/gone.jpg\n")
    config(root, train=None, val="val.txt")
    found = open_dataset(root)
    assert [problem.where for problem in found.problems] == [f"{root / 'val.txt'}:3"]
    assert len(found) == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"val": "images/none", "train": None}, "no 'images/none' in"),
        ({"names": "ant"}, "expected class names as a list"),
        ({"names": {"ant": 1}}, "expected integer class ids"),
        ({"names": {999999999: "ant"}}, "expected class ids of 0 to 65535"),
        ({"val": None, "train": None}, "expected at least one of val, test, train"),
    ],
)
def test_yaml_that_cannot_be_used(root, changes, said):
    config(root, **changes)
    with pytest.raises(DataError, match=said):
        open_dataset(root / "data.yaml", format="yolo")


def test_yaml_that_is_none(root):
    (root / "data.yaml").write_text("a: [1,\nb")
    with pytest.raises(DataError, match=r"data\.yaml:\d: not valid YAML"):
        open_dataset(root / "data.yaml", format="yolo")


def test_absurd_class_number_without_names(root):
    (root / "data.yaml").unlink()
    (root / "labels" / "val" / "a.txt").write_text("99999999999 0.5 0.5 0.5 0.5")
    found = open_dataset(root, split="val")
    assert count(found) == {kinds.UNKNOWN_CLASS: 1}
    assert found.classes == ("0", "1")
