"""The dataset on disk."""

import json

import numpy as np
import pytest
from PIL import Image

from holdfast.core.errors import DataError, InputError
from holdfast.data.signs.canvas import CLASSES, GROUP_OF, GROUPS
from holdfast.data.signs.scene import encode, make, scene


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("signs") / "new"
    steps: list[int] = []
    path = make(folder, 3, 9, progress=steps.append)
    return folder, path, steps


def test_layout_and_progress(made):
    folder, path, steps = made
    assert path == folder / "annotations.json"
    assert steps == [1, 2, 3]
    assert sorted(p.name for p in (folder / "images").iterdir()) == ["000000.jpg", "000001.jpg", "000002.jpg"]
    assert sorted(p.name for p in (folder / "masks").iterdir()) == ["000000.png", "000001.png", "000002.png"]
    assert not list(folder.glob("*.part"))


def test_annotations_are_the_truth_in_coco_form(made):
    _, path, _ = made
    content = json.loads(path.read_text())
    assert [c["name"] for c in content["categories"]] == list(CLASSES)
    assert [c["supercategory"] for c in content["categories"]] == [GROUPS[g] for g in GROUP_OF]
    assert len({row["id"] for row in content["annotations"]}) == len(content["annotations"])
    names = {c["id"]: c["name"] for c in content["categories"]}
    for number, picture in enumerate(content["images"]):
        truth = scene(9, number)
        rows = [row for row in content["annotations"] if row["image_id"] == picture["id"]]
        assert (picture["width"], picture["height"]) == (640, 480)
        assert [names[row["category_id"]] for row in rows] == [CLASSES[c] for c in truth.classes]
        corner = np.array([row["bbox"] for row in rows])
        assert np.hstack([corner[:, :2], corner[:, :2] + corner[:, 2:]]) == pytest.approx(truth.boxes)
        assert [row["area"] for row in rows] == pytest.approx(corner[:, 2] * corner[:, 3])
        assert {row["iscrowd"] for row in rows} == {0}


def test_files_are_the_scenes(made):
    folder, _, _ = made
    truth = scene(9, 2)
    assert (folder / "images" / "000002.jpg").read_bytes() == encode(truth.image)
    assert np.array_equal(np.asarray(Image.open(folder / "masks" / "000002.png")), truth.mask)


def test_own_folder_may_be_made_again_and_smaller(tmp_path):
    make(tmp_path, 2, 1)
    path = make(tmp_path, 1, 2)
    assert len(json.loads(path.read_text())["images"]) == 1
    assert [p.name for p in (tmp_path / "images").iterdir()] == ["000000.jpg"]


def test_foreign_folder_is_refused_and_untouched(tmp_path):
    (tmp_path / "holiday.jpg").write_bytes(b"x")
    with pytest.raises(DataError, match=r"holiday\.jpg"):
        make(tmp_path, 1, 0)
    assert [p.name for p in tmp_path.iterdir()] == ["holiday.jpg"]


def test_foreign_folder_of_the_same_form_is_refused(tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "a.jpg").write_bytes(b"x")
    with pytest.raises(DataError, match="empty this one"):
        make(tmp_path, 1, 0)
    assert (tmp_path / "images" / "a.jpg").exists()


def test_own_folder_with_something_added_is_refused(tmp_path):
    make(tmp_path, 1, 0)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(DataError, match=r"notes\.txt"):
        make(tmp_path, 1, 0)


def test_a_broken_run_leaves_no_annotations(tmp_path):
    make(tmp_path, 1, 0)

    def stop(done: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(tmp_path, 2, 0, progress=stop)
    assert not (tmp_path / "annotations.json").exists()
    assert make(tmp_path, 1, 0).exists()


def test_no_images_is_refused(tmp_path):
    with pytest.raises(InputError, match="at least 1"):
        make(tmp_path, 0, 0)
    assert list(tmp_path.iterdir()) == []


def test_the_masks_are_read_back_with_their_names(tmp_path):
    from holdfast.data.open import open_dataset
    from holdfast.data.signs.canvas import SEGMENTS
    from holdfast.data.signs.scene import make

    make(tmp_path / "scenes", 1, 3)
    read = open_dataset(tmp_path / "scenes", task="segment")
    assert read.classes == SEGMENTS
    assert len(read) == 1
    make(tmp_path / "scenes", 2, 3)  # a folder of its own making may be made again
    assert len(open_dataset(tmp_path / "scenes")) == 2
