import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.core.errors import DataError
from holdfast.metrics.coco import coco_numbers
from holdfast.metrics.cocofile import read_predictions, read_truth


def truth_content(**changes):
    content = {
        "images": [{"id": 7, "file_name": "b.jpg"}, {"id": 0, "file_name": "a.jpg"}],
        "categories": [{"id": 3, "name": "car"}, {"id": 0, "name": "sign"}],
        "annotations": [
            {"id": 0, "image_id": 0, "category_id": 3, "bbox": [1, 2, 3.5, 4], "area": 9.5, "iscrowd": 0},
            {"id": 1, "image_id": 7, "category_id": 0, "bbox": [0, 0, 10, 10], "area": 100, "iscrowd": 1},
        ],
    }
    return content | changes


def prediction(**changes):
    return {"image_id": 0, "category_id": 3, "bbox": [1, 2, 3.5, 4], "score": 0.5} | changes


@pytest.fixture
def write(tmp_path):
    def _write(content, name="file.json"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        return path

    return _write


@pytest.fixture
def truth(write):
    return read_truth(write(truth_content(), "truth.json"))


def test_ids_become_indices_in_rising_order(truth):
    assert truth.image_ids.tolist() == [0, 7]
    assert truth.image_names == ("a.jpg", "b.jpg")
    assert truth.class_names == ("sign", "car")
    assert (truth.images, truth.classes) == (2, 2)
    assert truth.table.image.tolist() == [0, 1]
    assert truth.table.category.tolist() == [1, 0]
    assert truth.table.xywh.tolist() == [[1, 2, 3.5, 4], [0, 0, 10, 10]]
    assert truth.table.area.tolist() == [9.5, 100]
    assert truth.table.crowd.tolist() == [False, True]


def test_area_crowd_and_names_may_be_absent(write):
    annotations = [{"image_id": 7, "category_id": 3, "bbox": [1, 2, 3, 4]}]
    read = read_truth(write({"images": [{"id": 7}], "categories": [{"id": 3}], "annotations": annotations}))
    assert read.table.area.tolist() == [12]
    assert read.table.crowd.tolist() == [False]
    assert (read.image_names, read.class_names) == (("7",), ("3",))


def test_id_zero_is_found_like_any_other(write, truth):
    """An annotation of id 0 in image 0 of class 0: pycocotools would call it unmatched."""
    content = truth_content(
        annotations=[
            {"id": 0, "image_id": 0, "category_id": 0, "bbox": [0, 0, 50, 50], "area": 2500, "iscrowd": 0}
        ]
    )
    read = read_truth(write(content))
    found = read_predictions(write([prediction(category_id=0, bbox=[0, 0, 50, 50])], "p.json"), read)
    result = coco_numbers(read.table, found, images=read.images, classes=read.classes)
    assert result.numbers["AP"] == pytest.approx(1.0)


def test_predictions(write, truth):
    table = read_predictions(write([prediction(), prediction(image_id=7, score=1, segmentation=[1])]), truth)
    assert table.image.tolist() == [0, 1]
    assert table.category.tolist() == [1, 1]
    assert table.score.tolist() == [0.5, 1.0]
    assert table.xywh.dtype == np.float64


NUMBER = st.one_of(st.integers(-(10**9), 10**9), st.floats(-1e9, 1e9))
SIDE = st.one_of(st.integers(0, 10**9), st.floats(0, 1e9))


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from([0, 7]), NUMBER, NUMBER, SIDE, SIDE, NUMBER), max_size=8))
def test_numbers_are_those_of_the_file_bit_for_bit(write, rows):
    annotations = [
        {"id": n, "image_id": image, "category_id": 3, "bbox": box, "area": area, "difficult": n % 2}
        for n, (image, *box, area) in enumerate(rows)
    ]
    predictions = [prediction(image_id=image, bbox=box, score=score) for image, *box, score in rows]
    true = read_truth(write(truth_content(annotations=annotations), "truth.json"))
    found = read_predictions(write(predictions), true)
    for table, last in ((true.table, true.table.area), (found, found.score)):
        assert table.image.tolist() == [(0, 7).index(image) for image, *_ in rows]
        assert np.c_[table.xywh, last].tobytes() == np.array([row[1:] for row in rows], float).tobytes()
    assert true.table.difficult.tolist() == [n % 2 == 1 for n in range(len(rows))]


def test_no_predictions_at_all(write, truth):
    assert len(read_predictions(write([]), truth)) == 0


def test_no_annotations_at_all(write):
    read = read_truth(write(truth_content(annotations=[])))
    assert (len(read.table), read.images, read.classes) == (0, 2, 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"image_id": 1}, r"\[1\].image_id: expected an id of the truth's images, got 1"),
        ({"category_id": 9}, r"\[1\].category_id: expected an id of the truth's categories, got 9"),
        ({"category_id": "car"}, r"\[1\].category_id: expected an integer, got 'car'"),
        ({"category_id": 3.0}, r"\[1\].category_id: expected an integer, got 3.0"),
        ({"image_id": True}, r"\[1\].image_id: expected an integer, got True"),
        ({"image_id": 2**63}, r"\[1\].image_id: expected an integer, got 9223372036854775808"),
        ({"image_id": 10**400}, r"\[1\].image_id: expected an integer, got 1000"),
        ({"score": 10**400}, r"\[1\].score: expected a finite number, got 1000"),
        ({"bbox": [1, 2, 3, 10**400]}, r"\[1\].bbox: expected 4 finite numbers"),
        ({"bbox": [1, 2, 3, 2e9]}, r"\[1\].bbox: .*at most 1e9"),
        ({"score": None}, r"\[1\].score: expected a finite number, got None"),
        ({"score": "0.5"}, r"\[1\].score: expected a finite number, got '0.5'"),
        ({"score": float("nan")}, r"\[1\].score: expected a finite number, got nan"),
        ({"bbox": [1, 2, 3]}, r"\[1\].bbox: expected 4 finite numbers .* got \[1, 2, 3\]"),
        ({"bbox": [1, 2, 3, "4"]}, r"\[1\].bbox: expected 4 finite numbers"),
        ({"bbox": [1, 2, -3, 4]}, r"\[1\].bbox: .* w ≥ 0 and h ≥ 0, got \[1, 2, -3, 4\]"),
        ({"bbox": [1, 2, 3, float("inf")]}, r"\[1\].bbox: expected 4 finite numbers"),
        ({"bbox": {"x": 1}}, r"\[1\].bbox: expected 4 finite numbers"),
        ({"bbox": None}, r"\[1\].bbox: expected 4 finite numbers"),
    ],
)
def test_a_wrong_prediction_is_named(write, truth, change, message):
    path = write([prediction(), prediction(**change), prediction()])
    with pytest.raises(DataError, match=message) as error:
        read_predictions(path, truth)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("key", ["image_id", "category_id", "bbox", "score"])
def test_a_missing_key_is_named(write, truth, key):
    record = prediction()
    del record[key]
    with pytest.raises(DataError, match=rf"\[1\]\.{key}: expected .*, got nothing \(the key is missing\)"):
        read_predictions(write([prediction(), record]), truth)


def test_all_problems_come_at_once_up_to_twenty(write, truth):
    records = [prediction(score="x"), prediction(image_id=5), prediction(bbox=[])] + [
        prediction(category_id=8)
    ] * 30
    with pytest.raises(DataError) as error:
        read_predictions(write(records), truth)
    text = str(error.value)
    assert "33 problems, the first 20" in text
    assert len(text.splitlines()) == 21
    with pytest.raises(DataError) as error:
        read_predictions(write(records[:3]), truth)
    for part in ("3 problems:", "[0].score", "[1].image_id", "[2].bbox"):
        assert part in str(error.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "expected JSON, got an empty file"),
        (b"  \n", "expected JSON, got an empty file"),
        (b'[{"image_id": 1,\n "score" 3}]', "not JSON at line 2 column 10"),
        (b'[{"image_id": 1}', "not JSON at line 1"),
        (b'["\xff\xfe"]', "expected UTF-8 text, got byte 0xff at 2"),
        (b"[" * 100_000, "cannot be read: maximum recursion depth exceeded"),
        (b"[" + b"1" * 5000 + b"]", "cannot be read: Exceeds the limit"),
        (b'{"images": []}', "expected a list of objects .* got an object .is this the truth file"),
        (b"3", "expected a list of objects with image_id, category_id, bbox and score, got 3"),
        (b"[3]", r"\[0\]: expected an object, got 3"),
    ],
)
def test_a_file_of_another_kind_is_named(write, truth, content, message):
    with pytest.raises(DataError, match=message):
        read_predictions(write(content), truth)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": None}, "images: expected a list, got None"),
        ({"images": [{"id": 7}, {"id": 7}, {"id": 0}]}, r"images\[1\].id: expected an id of its own, got 7"),
        (
            {"categories": [{"id": 3}, {"name": "x"}, {"id": 0}]},
            r"categories\[1\].id: expected an integer, got nothing",
        ),
        ({"annotations": [3]}, r"annotations\[0\]: expected an object, got 3"),
    ],
)
def test_a_wrong_truth_is_named(write, change, message):
    with pytest.raises(DataError, match=message):
        read_truth(write(truth_content(**change)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"area": "big"}, r"annotations\[0\].area: expected a finite number, got 'big'"),
        ({"iscrowd": "no"}, r"annotations\[0\].iscrowd: expected 0 or 1, got 'no'"),
        ({"image_id": 12}, r"annotations\[0\].image_id: expected an id of the truth's images, got 12"),
        ({"id": 1}, r"annotations\[1\].id: expected an id of its own, got 1"),
        ({"bbox": [0, 0, 1]}, r"annotations\[0\].bbox: expected 4 finite numbers"),
    ],
)
def test_a_wrong_annotation_is_named(write, change, message):
    content = truth_content()
    content["annotations"][0].update(change)
    with pytest.raises(DataError, match=message):
        read_truth(write(content))


def test_missing_keys_and_missing_files_are_named(write, tmp_path):
    with pytest.raises(DataError, match="annotations: expected a list, got 'nothing"):
        read_truth(write({"images": [], "categories": []}))
    with pytest.raises(DataError, match=r"got a list \(is this the predictions file\?\)"):
        read_truth(write([]))
    with pytest.raises(DataError, match=r"absent.json: cannot be read: No such file"):
        read_truth(tmp_path / "absent.json")
