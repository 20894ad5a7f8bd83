"""Images and masks: folders, yaml files, the value that does not count."""

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
    for name in ("a", "b"):
        for part, ending, data in (
            ("images", "jpg", picture()),
            ("masks", "png", picture(kind="PNG", mode="L")),
        ):
            (tmp_path / part / "val").mkdir(parents=True, exist_ok=True)
            (tmp_path / part / "val" / f"{name}.{ending}").write_bytes(data)
    return tmp_path


def config(root, **content):
    (root / "masks.yaml").write_text(yaml.safe_dump(content))


def test_plain_folders(root):
    found = open_dataset(root)
    assert (found.format, found.classes, found.ignore_index) == ("masks", (), 255)
    assert [entry.name for entry in found.entries] == ["a.jpg", "b.jpg"]
    assert found.problems == ()


@pytest.mark.parametrize("images", ["images/val", "../images/val"])
def test_yaml_with_gaps_in_the_ids(root, images):
    config(root, val={"images": images, "masks": "masks/val"}, classes={1: "road", 4: "sky"})
    for path in (root, root / "masks.yaml"):
        found = open_dataset(path)
        assert found.classes == ("unused-0", "road", "unused-2", "unused-3", "sky")
        assert (found.ignore_index, len(found)) == (255, 2)


def test_class_named_as_void_does_not_count(root):
    config(root, images="images/val", masks="masks/val", names=["unlabeled", "road"])
    found = open_dataset(root)
    assert found.ignore_index == 0
    assert count(found) == {kinds.CHOICE: 1}
    assert "class 0 (unlabeled)" in found.problems[0].what


def test_stated_value_that_does_not_count(root):
    config(root, images="images/val", masks="masks/val", names=["unlabeled", "road"], ignore_index=9)
    found = open_dataset(root)
    assert (found.ignore_index, found.problems) == (9, ())
    config(root, images="images/val", masks="masks/val", ignore_index="none")
    with pytest.raises(DataError, match="expected an integer ignore_index, got 'none'"):
        open_dataset(root)


def test_255_may_be_a_class(root):
    config(root, images="images/val", masks="masks/val", names={255: "sky"})
    assert open_dataset(root).ignore_index is None


def test_every_problem_at_once(root, picture):
    (root / "images" / "val" / "bare.jpg").write_bytes(picture())
    (root / "images" / "val" / "a.png").write_bytes(picture(kind="PNG"))
    (root / "masks" / "val" / "ghost.png").write_bytes(picture(kind="PNG", mode="L"))
    found = open_dataset(root)
    assert count(found) == {
        kinds.IMAGE_WITHOUT_LABEL: 1,
        kinds.DUPLICATE_FILE: 1,
        kinds.LABEL_WITHOUT_IMAGE: 1,
    }
    assert len(found) == 2


def test_masks_named_by_an_ending(tmp_path, picture):
    for path in ("images/a.jpg", "masks/a_mask.png"):
        (tmp_path / path).parent.mkdir()
        (tmp_path / path).write_bytes(picture(kind="PNG" if "masks" in path else "JPEG", mode="L"))
    assert len(open_dataset(tmp_path)) == 1


def test_folders_that_do_not_exist(root):
    config(root, val={"images": "here", "masks": "there"})
    with pytest.raises(DataError, match=r"masks\.yaml: none of the folders it names exists: here"):
        open_dataset(root)


def test_forced_on_something_else(tmp_path, picture):
    (tmp_path / "a.jpg").write_bytes(picture())
    with pytest.raises(DataError, match="no images with masks found"):
        open_dataset(tmp_path, format="masks")


def test_masks_named_by_suffixes(tmp_path, picture):
    for folder, name, data in (
        ("in/x", "a_left.jpg", picture()),
        ("in/x", "a_right.jpg", picture()),
        ("in/x", "b_left.jpg", picture()),
        ("out/x", "a_ids.png", picture(kind="PNG", mode="L")),
        ("out/x", "a_colour.png", picture(kind="PNG")),
        ("out/x", "c_ids.png", picture(kind="PNG", mode="L")),
    ):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / name).write_bytes(data)
    config(
        tmp_path, images="in", masks="out", image_suffix="_left.jpg", mask_suffix="_ids.png", classes=["a"]
    )
    found = open_dataset(tmp_path, task="segment")
    assert [entry.name for entry in found.entries] == ["x/a_left.jpg"]
    assert found.entries[0].truth.path == str(tmp_path / "out/x/a_ids.png")
    assert count(found) == {kinds.IMAGE_WITHOUT_LABEL: 1, kinds.LABEL_WITHOUT_IMAGE: 1}
