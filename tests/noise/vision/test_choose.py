"""Calibration images: never those that are tested on, whatever they are called and said to show."""

import dataclasses
import shutil

import pytest

from helpers import models as making
from holdfast.core.pipeline import Pipeline
from holdfast.data.open import open_dataset
from holdfast.evaluate.run import EvaluationPlan
from holdfast.graph.load import load_model
from holdfast.noise.suite import NoiseSelection, spread
from holdfast.noise.vision import choose as calibration
from holdfast.noise.vision.choose import images_not_in, reserve
from holdfast.noise.vision.run import NoisePlan, measure, prepare

PIPELINE = Pipeline()


@pytest.fixture
def data(tmp_path):
    return open_dataset(making.image_folder(tmp_path / "data", 20))


def relabelled(data, folder, count):
    """The first images of both classes again, byte for byte, with other names and the other class."""
    half = len(data) // 2
    for number, entry in enumerate((*data.entries[: count // 2], *data.entries[half : half + count // 2])):
        other = "dark" if entry.name.startswith("bright") else "bright"
        (folder / other).mkdir(parents=True, exist_ok=True)
        shutil.copy(entry.path, folder / other / f"copy{number}.jpg")
    return open_dataset(folder)


def images_of(reserved):
    return [entry.load().data for entry in reserved.items]


def test_the_same_bytes_under_another_label_and_name_are_tested_on(data, tmp_path):
    copies = relabelled(data, tmp_path / "copies", 8)
    tested = {entry.load().data for entry in copies.entries}
    kept = reserve(copies, data, 8)
    assert not tested & set(images_of(kept))
    assert kept.words == "8 images of data that are not tested on"
    whole = reserve(data, copies, 100)
    assert "5 of the 20 images (copies has no others); calibrated variants skip" in whole.words
    assert whole.without == {entry.name for entry in whole.items}


def test_free_images_are_taken_evenly(data):
    tested = dataclasses.replace(data, entries=data.entries[:8])
    kept = reserve(tested, data, 4)
    assert kept.items == tuple(data.entries[i] for i in (9, 12, 15, 18))
    assert reserve(tested, data, 100).items == data.entries[8:]


def test_those_held_back_of_the_tested_are_the_ones_published_figures_come_from(data):
    kept = reserve(data, None, 100)
    assert kept.items == tuple(data.entries[i] for i in (2, 6, 10, 14, 18))
    assert reserve(data, None, 2).items == tuple(data.entries[i] for i in (5, 15))
    assert spread(tuple(range(500)), 100) == tuple(range(2, 500, 5))


def test_only_files_of_one_size_are_read(data, monkeypatch):
    read = []
    real = calibration.read_image_file
    monkeypatch.setattr(calibration, "read_image_file", lambda path: (read.append(path), real(path))[1])
    sizes = [len(entry.load().data) for entry in data.entries]
    tested = data.entries[:5]
    alike = [e.path for e, size in zip(data.entries, sizes, strict=True) if size in sizes[:5]]
    assert images_not_in(data.entries, tested) == data.entries[5:]
    assert set(read) <= set(alike)
    assert len(read) == len(set(read))
    read.clear()
    assert images_not_in(data.entries, data.entries) == ()
    assert read == [], "the same file is known to be tested on"


def test_scenes_are_compared_without_being_drawn(monkeypatch):
    drawn = open_dataset("signs:3:5", task="detect").entries
    monkeypatch.setattr(type(drawn[0]), "load", lambda self: pytest.fail("drawn"))
    assert images_not_in(open_dataset("signs:4:2", task="detect").entries, drawn)[1].seed == 4
    assert [e.index for e in images_not_in(open_dataset("signs:3:7", task="detect").entries, drawn)] == [5, 6]


def test_scenes_written_to_files_are_known(tmp_path):
    drawn = open_dataset("far:3:3").entries
    (tmp_path / "files" / "a").mkdir(parents=True)
    (tmp_path / "files" / "b").mkdir()
    for entry in drawn[:2]:
        (tmp_path / "files" / "a" / entry.name).write_bytes(entry.load().data)
    (tmp_path / "files" / "b" / "other.jpg").write_bytes(drawn[2].load().data)
    files = open_dataset(tmp_path / "files").entries
    assert [e.name for e in images_not_in(files, drawn[:2])] == ["b/other.jpg"]
    assert [e.index for e in images_not_in(drawn, files[:2])] == [2]


def test_images_that_cannot_be_read_are_no_obstacle(data, tmp_path):
    making.classifier(tmp_path)
    for number in (1, 9):
        (tmp_path / "data" / data.entries[number].name).unlink()
    (tmp_path / "data" / data.entries[10].name).write_bytes(b"no image")
    tested = dataclasses.replace(data, entries=data.entries[:8])
    kept = reserve(tested, data, 100)
    assert data.entries[9] not in kept.items
    assert len(kept.items) == 11
    model = load_model(tmp_path / "tiny.onnx")
    plan = EvaluationPlan(model, tested, runs=tmp_path / "runs", jobs=1)
    for spare in (data, None):  # of the latter one that is missing is held back
        (row,) = measure(prepare(NoisePlan(plan, NoiseSelection(only=("precision=int8",)), spare, 4))).rows
        assert row.outcome == "measured"


def test_of_one_image_none_is_left_to_test_on_and_that_is_said(data, tmp_path):
    making.classifier(tmp_path)
    model = load_model(tmp_path / "tiny.onnx")
    one = dataclasses.replace(data, entries=data.entries[:1])
    plan = EvaluationPlan(model, one, runs=tmp_path / "runs", jobs=1)
    wanted = NoiseSelection(only=("precision=int8-mixed", "precision=int8-minmax", "resize=opencv-nearest"))
    made = measure(prepare(NoisePlan(plan, wanted)))
    said = {row.label: (row.outcome, row.note) for row in made.rows}
    reason = "1 image: no image would be left to test on; add --calibration DATA"
    assert said["precision=int8-mixed"] == said["precision=int8-minmax"] == ("impossible", reason)
    assert said["resize=opencv-nearest"][0] != "impossible"
    assert made.calibration == ""
    kept = reserve(one, one, 100)
    assert kept.lack.startswith("1 image (data has no others): no image would be left")


def test_copies_of_images_held_back_are_not_tested_on_either(data, tmp_path):
    folder = tmp_path / "copies"
    for name in ("bright", "dark"):
        (folder / name).mkdir(parents=True)
    for number in range(12):
        entry = data.entries[number % 3]
        shutil.copy(entry.path, folder / ("bright" if number % 2 else "dark") / f"{number:02}.jpg")
    tested = open_dataset(folder)
    kept = reserve(tested, None, 1)
    (seen,) = images_of(kept)
    copies = {entry.name for entry in tested.entries if entry.load().data == seen}
    assert len(copies) == 4
    assert kept.without == copies


def test_where_all_are_copies_none_is_left_to_test_on(data, tmp_path):
    for name in ("bright", "dark"):
        (tmp_path / "same" / name).mkdir(parents=True)
        for number in range(4):
            shutil.copy(data.entries[0].path, tmp_path / "same" / name / f"{number}.jpg")
    kept = reserve(open_dataset(tmp_path / "same"), None, 100)
    assert kept.lack == "8 images: no image would be left to test on; add --calibration DATA"
    assert kept.items == ()
