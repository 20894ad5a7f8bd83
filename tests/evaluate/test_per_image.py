"""Files of results per image: one row per image, and all detections as COCO has them."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

import holdfast as hf
from holdfast.core.errors import InputError
from holdfast.core.types import Boxes, Detections, Size
from holdfast.engine.records import DetectionRecord
from holdfast.evaluate.per_image import CocoIds, RecordSet, coco_results
from holdfast.evaluate.score import Settings
from holdfast.metrics.rules import RULES


def rows_of(path):
    return list(csv.DictReader(Path(path).read_text().splitlines()))


def test_the_rows_of_all_images_add_up_to_the_counts_of_the_evaluation(holdfast):
    done = holdfast(
        "evaluate", "signs-yolo", "signs:0:8", "--jobs", "1", "--per-image", "i.csv", "--json", "e.json"
    )
    rows, whole = rows_of("i.csv"), json.loads(Path("e.json").read_text())["at_score"]
    assert done.code == 0
    assert list(rows[0]) == ["image", "true_positives", "false_positives", "misses", "AP"]
    for column, key in {"true_positives": "tp", "false_positives": "fp", "misses": "fn"}.items():
        assert sum(int(row[column]) for row in rows) == whole[key]


def test_written_predictions_score_as_the_evaluation_does(holdfast, tmp_path):
    assert holdfast("data", "make", "signs", "set", "--images", "8").code == 0
    command = ("evaluate", "signs-yolo", "set", "--format", "coco", "--jobs", "1")
    holdfast(*command, "--predictions-out", "dt.json", "--json", "e.json")
    truth = next((tmp_path / "set").rglob("*nnotations*.json"))
    holdfast("evaluate", "--truth", truth, "--predictions", "dt.json", "--json", "f.json")
    first, second = (json.loads(Path(name).read_text()) for name in ("e.json", "f.json"))
    assert first["AP"] == pytest.approx(second["AP"], abs=1e-9)
    detection = json.loads(Path("dt.json").read_text())[0]
    assert set(detection) == {"image_id", "category_id", "bbox", "score"}


def test_a_suite_names_the_option_of_every_row_and_detection(holdfast):
    files = ("--per-image", "i.csv", "--predictions-out", "dt.json")
    done = holdfast(
        "noise", "signs-yolo", "signs:0:4", "--only", "resize=opencv-nearest", "--jobs", "1", *files
    )
    assert done.code == 0
    options = ["clean"] * 4 + ["resize=opencv-nearest"] * 4
    assert [row["option"] for row in rows_of("i.csv")] == options
    found = json.loads(Path("dt.json").read_text())
    assert {one["option"] for one in found} == set(options)
    assert {one["file_name"] for one in found} == {row["image"] for row in rows_of("i.csv")}


def test_an_audit_writes_the_clean_rows_and_those_of_its_noises(holdfast):
    files = ("--per-image", "i.csv", "--predictions-out", "dt.json")
    audit = ("audit", "signs-yolo", "signs:0:4", "--budget", "none", "--jobs", "1")
    assert holdfast(*audit, "--only", "evaluate", *files).code == 0
    assert [row["option"] for row in rows_of("i.csv")] == ["clean"] * 4


@pytest.mark.parametrize(
    ("model", "columns"),
    [
        ("signs-class", ["image", "truth", "predicted", "score", "correct"]),
        ("signs-seg", ["image", "mIoU", "pixel_accuracy"]),
        ("signs-single", ["image", "iou_equal"]),
    ],
)
def test_other_tasks_have_columns_of_their_own(holdfast, fails, model, columns):
    assert holdfast("evaluate", model, "signs:0:3", "--jobs", "1", "--per-image", "i.csv").code == 0
    rows = rows_of("i.csv")
    assert (len(rows), list(rows[0])) == (3, columns)
    if model in ("signs-class", "signs-seg"):
        line = fails("evaluate", model, "signs:0:3", "--jobs", "1", "--predictions-out", "dt.json")
        assert line.startswith("--predictions-out: COCO results hold detections")


def test_classes_without_an_id_get_numbers_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pairs = [(s.data, {"boxes": s.truth.xyxy[:1], "labels": s.labels[:1]}) for s in hf.dataset("signs:0:3")]
    hf.evaluate("signs-yolo", pairs, predictions_out="dt.json", per_image="i.csv")
    found = json.loads((tmp_path / "dt.json").read_text())
    numbers = {(one["category_id"], one["category"]) for one in found}
    assert len(numbers) == len({number for number, _ in numbers})
    assert all(min(one["bbox"][2:]) > 0 for one in found)


def test_a_category_with_the_id_0_keeps_it():
    truth = Boxes(np.array([[0.0, 0.0, 4.0, 4.0]]), np.array([0]))
    found = Detections(np.array([[0.0, 0.0, 4.0, 4.0]]), np.array([0.9]), np.array([0]))
    record = DetectionRecord("a.jpg", Size(9, 9), truth, found)
    one = RecordSet([record], "detect", ("stop",), Settings(RULES["coco"]))
    (result,) = coco_results(one, CocoIds({"a.jpg": 0}, {"stop": 0}, known=True))
    assert (result["image_id"], result["category_id"]) == (0, 0)


def test_a_file_in_the_place_of_a_folder_is_reported_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises((InputError, hf.HoldfastError), match="file"):
        hf.evaluate("signs-yolo", "signs:0:2", per_image="file/i.csv")
