"""COCO json: layouts, ids, and every fault named at once."""

import json
from collections import Counter

import pytest

from holdfast.core.errors import DataError
from holdfast.data import problems as kinds
from holdfast.data.open import open_dataset
from holdfast.data.readers.coco import coco

CATEGORIES = [{"id": 3, "name": "stop"}, {"id": 0, "name": "yield"}]


def image(key, name="a.jpg", **more):
    return {"id": key, "file_name": name, "width": 40, "height": 30, **more}


def box(key, image_id=0, category=0, bbox=(1, 2, 10, 10), **more):
    return {"id": key, "image_id": image_id, "category_id": category, "bbox": list(bbox), **more}


def write(path, images, annotations=(), categories=CATEGORIES):
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"images": images, "annotations": list(annotations), "categories": categories}
    path.write_text(json.dumps(content))
    return path


def count(dataset):
    return Counter(problem.kind for problem in dataset.problems)


@pytest.fixture
def folder(tmp_path, picture):
    for name in ("a.jpg", "b.jpg"):
        (tmp_path / name).write_bytes(picture())
    return tmp_path


def test_classes_follow_the_order_of_ids_and_zero_is_legal(folder):
    found = coco(write(folder / "x.json", [image(0), image(-5, "b.jpg")], [box(0, 0, 3), box(1, -5, 0)]))
    assert found.classes == ("yield", "stop")
    assert [entry.load().truth.classes.tolist() for entry in found.entries] == [[1], [0]]
    assert found.problems == ()


def test_area_stated_is_kept_and_crowd_too(folder):
    path = write(folder / "x.json", [image(0), image(1, "b.jpg")], [box(0, area=33.5, iscrowd=1), box(1)])
    truth = open_dataset(path).entries[0].load().truth
    assert truth.areas.tolist() == [33.5, 100.0]
    assert truth.crowd.tolist() == [True, False]
    assert truth.xyxy.tolist() == [[1, 2, 11, 12]] * 2


def test_every_problem_at_once(folder):
    annotations = [
        box(1),
        box(1, bbox=(0, 0, 5, 5)),  # same id: kept
        box(2, category=9),
        box(3, image_id=77),
        box(4, bbox=(35, 2, 20, 5)),  # beyond the border: kept
        box(5, bbox=(1, 1, 0, 5)),
        box(6, bbox=(5, 5, -3, 4)),
        box(7, bbox=(float("nan"), 1, 2, 3)),
        box(8, bbox=(1, 2, 3)),
        box(10, bbox=("a", "b", "c", "d")),
        box(11, bbox=(10**400, 2, 3, 4)),
        box([12], bbox=(None, 2, 3, 4)),
        box(13, image_id=[0]),
        box(14, category={}),
        {"id": 9, "image_id": 0, "category_id": 0},
    ]
    images = [image(0), image(0, "b.jpg"), image(1, "a.jpg"), image(2, "gone.jpg"), {"id": 3}]
    categories = [*CATEGORIES, {"id": 3, "name": "again"}, {"id": 4, "name": "stop"}, {"name": "no id"}]
    found = open_dataset(write(folder / "x.json", images, annotations, categories))
    assert count(found) == {
        kinds.DUPLICATE_ID: 3,  # a category, an annotation, an image
        kinds.DUPLICATE_CLASS: 1,
        kinds.UNREADABLE_LABEL: 5,  # a category without id, three numbers, no numbers, no box
        kinds.UNKNOWN_CLASS: 2,
        kinds.LABEL_WITHOUT_IMAGE: 2,
        kinds.BOX_OUTSIDE: 1,
        kinds.EMPTY_BOX: 2,
        kinds.NOT_A_NUMBER: 2,
        kinds.DUPLICATE_FILE: 1,
        kinds.MISSING_FILE: 2,
    }
    assert [entry.name for entry in found.entries] == ["a.jpg"]
    assert len(found.entries[0].load().truth) == 3
    assert all("x.json: " in problem.where for problem in found.problems)


def test_boxes_as_text_or_without_a_size_are_read_all_the_same(folder):
    bare = {"id": 1, "file_name": "b.jpg"}
    path = write(
        folder / "x.json",
        [image(0), bare],
        [box(0, bbox=("1", "2", "3", "4")), box(1, 1), box(2, 1, area=1e999)],
    )
    found = coco(path)
    assert found.problems == ()
    first, second = (entry.load().truth for entry in found.entries)
    assert first.xyxy.tolist() == [[1, 2, 4, 6]]
    assert second.xyxy.tolist() == [[1, 2, 11, 12]] * 2
    assert second.areas.tolist() == [100, 100]


def test_rounding_beyond_the_border_is_no_fault(folder):
    path = write(folder / "x.json", [image(0), image(1, "b.jpg")], [box(0, bbox=(-0.4, 0, 40.9, 30.5))])
    assert coco(path).problems == ()


def test_image_that_is_not_listed_is_a_note(folder):
    found = coco(write(folder / "x.json", [image(0)]))
    assert count(found) == {kinds.IMAGE_WITHOUT_LABEL: 1}
    assert "b.jpg" in found.problems[0].where


@pytest.mark.parametrize(
    ("json_file", "image_folder"),
    [
        ("annotations.json", "."),
        ("_annotations.coco.json", "."),
        ("annotations.json", "images"),
        ("labels.json", "data"),
        ("whatever.json", "images"),
        ("annotations/instances_val2017.json", "val2017"),
        ("annotations/instances_val2017.json", "images/val2017"),
        ("valid/_annotations.coco.json", "valid"),
    ],
)
def test_layouts(tmp_path, picture, json_file, image_folder):
    place = tmp_path / image_folder
    place.mkdir(parents=True, exist_ok=True)
    (place / "a.jpg").write_bytes(picture())
    write(tmp_path / json_file, [image(0)], [box(0)])
    for path in (tmp_path, tmp_path / json_file):
        found = open_dataset(path)
        assert (found.format, len(found), found.problems) == ("coco", 1, ())
        assert found.entries[0].load().data == picture()


def test_file_names_may_hold_folders(tmp_path, picture):
    (tmp_path / "day").mkdir()
    (tmp_path / "day" / "a.jpg").write_bytes(picture())
    found = coco(write(tmp_path / "x.json", [image(0, "day/a.jpg")]))
    assert [entry.name for entry in found.entries] == ["day/a.jpg"]


def test_images_elsewhere(tmp_path, picture):
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "a.jpg").write_bytes(picture())
    path = write(tmp_path / "near" / "deep" / "x.json", [image(0)])
    assert len(coco(path)) == 0
    assert len(coco(path, image_folder=tmp_path / "far")) == 1


def test_splits(tmp_path, picture):
    for split, names in (("train", ("a.jpg", "b.jpg")), ("valid", ("c.jpg",)), ("test", ("d.jpg",))):
        (tmp_path / split).mkdir()
        for name in names:
            (tmp_path / split / name).write_bytes(picture())
        images = [image(key, name) for key, name in enumerate(names)]
        write(tmp_path / split / "_annotations.coco.json", images)
    found = open_dataset(tmp_path)
    assert [entry.name for entry in found.entries] == ["c.jpg"]
    assert count(found) == {kinds.SEVERAL_SPLITS: 1}
    assert "valid, test, train; using valid" in found.problems[0].what
    assert len(open_dataset(tmp_path, split="train")) == 2
    assert [entry.name for entry in open_dataset(tmp_path, split="val").entries] == ["c.jpg"]
    with pytest.raises(DataError, match="no split 'night'; there are: test, train, valid"):
        open_dataset(tmp_path, split="night")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "x.json:1: not valid JSON"),
        ("", "not valid JSON"),
        ("[1]", "expected a COCO json object, got a JSON list"),
        ('{"images": [], "b": 1}', "missing annotations, categories; got the keys images, b"),
        (
            '{"images": [3], "annotations": [], "categories": []}',
            r"images\[0\]: expected a JSON object, got int",
        ),
        ('{"images": [], "annotations": [], "categories": []}', "it lists no images"),
    ],
)
def test_files_that_are_no_data_set(tmp_path, text, said):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(DataError, match=said):
        open_dataset(tmp_path / "x.json")


def test_nothing_remains(tmp_path):
    with pytest.raises(
        DataError, match=r"no usable image remains: missing file \(2, first: .*image 0: no file"
    ):
        open_dataset(write(tmp_path / "x.json", [image(0), image(1, "b.jpg")]))
