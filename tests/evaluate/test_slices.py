"""Slices of the data: the metric and the points lost by size, class, brightness and columns of a CSV file."""

import numpy as np
import orjson
import pytest
from PIL import Image

from helpers import models as making
from holdfast.core.errors import DataError, InputError
from holdfast.core.types import Boxes, Detections, Size
from holdfast.data.open import open_dataset
from holdfast.engine.records import ClassificationRecord, DetectionRecord, SegmentationRecord
from holdfast.evaluate.difference import ScoredRun, compare
from holdfast.evaluate.run import EvaluationPlan, evaluate
from holdfast.evaluate.score import Settings
from holdfast.evaluate.slices import objects_in, slice_losses, slice_results, slice_tables
from holdfast.evaluate.slicing import Slicing, mean_luma, open_slicings, read_columns
from holdfast.graph.load import load_model
from holdfast.metrics.rules import RULES
from holdfast.noise.suite import NoiseSelection
from holdfast.noise.vision.run import NoisePlan, measure, prepare
from holdfast.noise.vision.tables import slice_tables as noise_slice_tables


def detection_records(images=14, seed=0, shift=4.0):
    rng = np.random.default_rng(seed)
    records = []
    for n in range(images):
        corner = rng.uniform(0, 300, (6, 2))
        side = rng.choice([12.0, 60.0, 140.0], (6, 1)) * rng.uniform(0.7, 1.2, (6, 2))
        boxes, classes = np.hstack([corner, corner + side]), rng.integers(0, 3, 6)
        crowd = rng.random(6) < 0.1
        moved = boxes[:5] + np.tile(rng.normal(0, shift, (5, 2)), 2)
        false = rng.uniform(0, 90, (3, 4)) + np.array([0, 0, 99, 99])
        found = np.vstack([moved, false])
        found_classes = np.r_[classes[:5], rng.integers(0, 3, 3)]
        detections = Detections(found, rng.random(8), found_classes)
        records.append(DetectionRecord(f"{n}.jpg", Size(500, 500), Boxes(boxes, classes, crowd), detections))
    return tuple(records)


def run_of(records, task="detect", classes=("a", "b", "c"), rule="coco"):
    return ScoredRun(records, task, classes, Settings(RULES[rule]))


def test_slices_by_size_are_cocos_numbers():
    run = run_of(detection_records())
    rows = slice_results(run, [Slicing("size")], replicates=20)
    metrics = run.result["metrics"]
    assert {row.slice: row.value for row in rows} == pytest.approx(
        {"small": metrics["APs"], "medium": metrics["APm"], "large": metrics["APl"]}, abs=1e-12
    )
    assert sum(row.objects for row in rows) == objects_in(run)
    assert all(row.low <= row.value <= row.high for row in rows)


def test_slices_by_class_are_the_aps_of_the_classes():
    run = run_of(detection_records())
    rows = slice_results(run, [Slicing("class")], replicates=20)
    want = {row["class"]: row["AP"] for row in run.result["per_class"]}
    assert {row.slice: row.value for row in rows} == pytest.approx(want, abs=1e-12)


def test_slices_of_images_are_the_metric_of_these_images():
    records = detection_records()
    run = run_of(records, rule="voc")
    values = {record.name: "rain" if n < 6 else "sun" for n, record in enumerate(records[:10])}
    rows = slice_results(run, [Slicing("weather", values)], replicates=20)
    assert [(row.slice, row.images) for row in rows] == [("rain", 6), ("sun", 4)]
    assert [row.value for row in rows] == pytest.approx(
        [run_of(records[:6], rule="voc").value, run_of(records[6:10], rule="voc").value]
    )
    tables = slice_tables([vars(row) for row in rows])
    assert tables[0].caption.startswith("By weather. A slice of fewer than 20 images")
    assert [row[0] for row in tables[0].rows] == ["rain", "sun"]


def test_points_lost_on_a_slice_are_those_of_its_images():
    before, after = run_of(detection_records()), run_of(detection_records(shift=9.0))
    values = {f"{n}.jpg": "night" if n % 2 else "day" for n in range(14)}
    losses = slice_losses(before, after, [Slicing("light", values), Slicing("size")], replicates=50)
    night = [[r for n, r in enumerate(run.records) if n % 2] for run in (before, after)]
    want = compare(*(run_of(tuple(records)) for records in night), replicates=50).points_lost
    found = next(loss for loss in losses if loss.slice == "night")
    assert (found.points_lost, found.low, found.high) == (want.estimate, want.low, want.high)
    assert {loss.slice for loss in losses} == {"day", "night", "small", "medium", "large"}


def test_classifiers_and_segmenters_have_slices_by_class():
    size, scores = Size(9, 9), np.array([1.0])
    labels = [ClassificationRecord(str(n), size, n % 2, np.array([0]), scores) for n in range(8)]
    rows = slice_results(run_of(tuple(labels), "classify", ("a", "b")), [Slicing("class")], replicates=9)
    assert [(row.slice, row.value, row.images, row.objects) for row in rows] == [
        ("a", 1.0, 4, None),
        ("b", 0.0, 4, None),
    ]
    tables = [np.array([[5, 1, 0], [2, 7, 0], [0, 0, 0]]), np.array([[3, 0, 0], [0, 0, 0], [0, 0, 0]])]
    masks = tuple(SegmentationRecord(str(n), size, table) for n, table in enumerate(tables))
    rows = slice_results(run_of(masks, "segment"), [Slicing("class")], replicates=9)
    assert {row.slice: (row.metric, row.images) for row in rows} == {"a": ("IoU", 2), "b": ("IoU", 1)}
    assert [row.value for row in rows] == pytest.approx([8 / 11, 7 / 10])


@pytest.fixture
def scenes(tmp_path):
    folder = making.blob_coco(tmp_path / "blobs", 12)
    dataset = open_dataset(folder)
    return load_model(str(making.detector(tmp_path))), dataset


def column_file(dataset, tmp_path, name="extra.csv"):
    rows = [f"{entry.name},{'rain' if n % 3 == 0 else 'sun'},{n}" for n, entry in enumerate(dataset.entries)]
    path = tmp_path / name
    path.write_text("image,weather,number\n" + "\n".join(rows))
    return path


def test_a_column_of_a_csv_file_beside_the_data_slices_an_evaluation_and_a_suite(scenes, tmp_path):
    model, dataset = scenes
    path = column_file(dataset, tmp_path)
    slicings = open_slicings(("weather", "size", "brightness"), path, dataset, "detect")
    plan = EvaluationPlan(model, dataset, runs=tmp_path / "runs", slices=slicings)
    done = evaluate(plan)
    counts = {row["slice"]: row["images"] for row in done.result["slices"] if row["by"] == "weather"}
    assert counts == {"rain": 4, "sun": 8}
    assert orjson.loads((done.folder / "run.json").read_bytes())["result"]["slices"] == done.result["slices"]
    assert "Slices of the data" in done._page()
    noise = measure(prepare(NoisePlan(plan, NoiseSelection(("resize=opencv-nearest", "colour=nv12")))))
    tables = noise_slice_tables(noise)
    assert tables[0].columns[1].name == "weather"
    assert {row[1] for row in tables[0].rows} <= {"rain", "sun"}


def test_a_csv_file_in_the_folder_of_the_data_is_found(tmp_path):
    folder = making.image_folder(tmp_path / "data", 6)
    dataset = open_dataset(folder)
    column_file(dataset, folder)
    (slicing,) = open_slicings(("weather",), None, dataset, "classify")
    assert sorted(slicing.values.values()) == ["rain", "rain", "sun", "sun", "sun", "sun"]


@pytest.mark.parametrize(
    ("name", "task", "text", "error"),
    [
        ("size", "classify", "image,weather\n", "expected a detector"),
        ("weather", "detect", "image,time\na,b\n", "searched:"),
        ("weather", "detect", "place,weather\na,b\n", "names the images"),
        ("weather", "detect", "image,weather\nother.jpg,rain\n", "names none of the 12 images"),
        ("weather", "detect", "image,weather\na,b,c\n", ":2: expected 2 fields, got 3"),
    ],
)
def test_bad_slices_are_one_line(scenes, tmp_path, name, task, text, error):
    path = tmp_path / "own.csv"
    path.write_text(text)
    with pytest.raises((InputError, DataError), match=error):
        open_slicings((name,), path, scenes[1], task)


def test_a_column_of_too_many_values_is_refused(scenes, tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("image,n\n" + "\n".join(f"{n}.jpg,{n}" for n in range(40)))
    with pytest.raises(InputError, match="has 40 values; expected at most 30"):
        open_slicings(("n",), path, scenes[1], "detect")
    assert read_columns(path)["n"][:2] == ["0", "1"]


def test_the_brightness_of_a_jpeg_is_that_of_its_pixels():
    pixels = np.random.default_rng(0).integers(0, 255, (200, 300, 3)).astype(np.uint8)
    luma = np.asarray(Image.fromarray(pixels).convert("L")).mean()
    assert mean_luma(making.jpeg(pixels)) == pytest.approx(luma, abs=2)
