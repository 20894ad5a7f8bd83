"""Images without labels: every mode of the diagnosis runs on a plain folder of them."""

import json

import numpy as np
import pytest

import holdfast as hf
from helpers import models as making
from holdfast.core.pipeline import load_pipeline, open_preparation, pipeline_of
from holdfast.core.types import Detections
from holdfast.data.open import open_dataset
from holdfast.diagnose.unlabelled import open_unlabelled, weighted_overlap
from holdfast.graph.load import load_model


@pytest.fixture
def folder(tmp_path):
    """Three scenes as files, and a file that is no image."""
    place = tmp_path / "photos"
    place.mkdir()
    for number, entry in enumerate(open_dataset("signs:0:3").entries):
        (place / f"{number}.jpg").write_bytes(entry.load().data)
    (place / "notes.txt").write_text("no labels")
    return place


def test_a_deployment_is_measured_by_agreement(holdfast, folder, tmp_path):
    words = ("diagnose", "signs-yolo", folder, "--jobs", 1, "--deploy")
    done = holdfast(*words, "resize=opencv-nearest,colour=nv12", "--json", "d.json", "-o", "d.html")
    assert done.code == 0, done.err
    assert "First stage that differs: colour, in 3 of 3 images" in done.out
    assert "The images have no labels: the predictions of deployment and training agree to 0." in done.out
    assert "an indication, because n < 20" in done.out
    found = json.loads((tmp_path / "d.json").read_text())
    assert found["loss"] is None
    measured = found["agreement"]
    assert (measured["images"], measured["task"]) == (3, "detect")
    assert 0.0 < measured["low"] <= measured["agreement"] <= measured["high"] < 1.0
    rows = {row["label"]: row for row in measured["differences"]}
    nearest, nv12 = rows["resize=opencv-nearest"], rows["colour=nv12"]
    assert nearest["alone"] == nv12["fixed"] < 1.0  # all but the one is the other
    assert nv12["alone"] == nearest["fixed"] < 1.0
    assert "Agreement with training" in (tmp_path / "d.html").read_text()


def test_equal_pipelines_agree_completely(folder):
    found = hf.diagnose("signs-yolo", folder, deploy="decode=pillow")
    assert found.agreement.agreement == found.agreement.low == 1.0
    assert found.agreement.moved == ()
    assert "All stages are bit-identical on 3 images." in found.verdict


@pytest.mark.parametrize("model", ["signs-class", "signs-seg", "signs-single"])
def test_other_tasks_are_measured_too(folder, model):
    found = hf.diagnose(model, folder, deploy="resize=opencv-nearest")
    assert found.agreement.images == 3
    assert 0.0 <= found.agreement.agreement <= 1.0


def test_dumps_and_predictions_need_no_labels(holdfast, folder, tmp_path):
    model = load_model("signs-yolo")
    prepare = open_preparation(pipeline_of(model.card), model)
    (tmp_path / "dumps").mkdir()
    for path in folder.glob("*.jpg"):
        np.save(tmp_path / "dumps" / f"{path.stem}.npy", prepare(path.read_bytes()).tensor[:, ::-1])
    done = holdfast("diagnose", "signs-yolo", folder, "--input", "dumps")
    assert done.code == 0, done.err
    assert done.out.startswith("The target feeds BGR; the model wants RGB.")
    machine = load_pipeline(pipeline_of(model.card), model)
    found = machine.predict(machine.prepare((folder / "0.jpg").read_bytes()))
    x1, y1, x2, y2 = found.boxes.T.tolist()
    rows = [
        {"file_name": "0.jpg", "category_id": int(k) + 1, "bbox": [a, b, c - a, d - b], "score": float(s)}
        for a, b, c, d, s, k in zip(x1, y1, x2, y2, found.scores, found.classes, strict=True)
    ]
    (tmp_path / "dt.json").write_text(json.dumps(rows))
    done = holdfast("diagnose", "signs-yolo", folder, "--predictions", "dt.json")
    assert done.code == 0, done.err
    assert "The predictions agree with the model's" in done.out


def test_images_in_subfolders_belong_to_the_folder(folder):
    (folder / "more").mkdir()
    (folder / "2.jpg").rename(folder / "more" / "2.jpg")
    found = open_unlabelled(folder, load_model("signs-yolo"))
    assert [entry.name for entry in found.entries] == ["0.jpg", "1.jpg", "more/2.jpg"]
    assert len(found.entries[2].load().truth) == 0


def test_a_labelled_dataset_and_a_folder_without_images_are_not_unlabelled(tmp_path):
    model = load_model(str(making.classifier(tmp_path / "models")))
    assert open_unlabelled(making.image_folder(tmp_path / "data", 4, size=37), model) is None
    (tmp_path / "empty").mkdir()
    assert open_unlabelled(tmp_path / "empty", model) is None
    assert open_unlabelled(tmp_path / "missing", model) is None


def test_weak_detections_count_little():
    boxes, classes = np.array([[0.0, 0, 10, 10], [20, 20, 30, 30]]), np.zeros(2, np.int64)
    strong = Detections(boxes, np.array([0.9, 0.01]), classes)
    none = Detections(np.zeros((0, 4)), np.zeros(0), np.zeros(0, np.int64))
    assert weighted_overlap(strong, strong) == 1.0
    assert weighted_overlap(none, none) == 1.0
    assert weighted_overlap(strong, none) == 0.0
    assert weighted_overlap(strong, strong.take(np.array([0]))) == pytest.approx(0.9 / 0.91)
    weaker = Detections(boxes[:1] * np.array([1, 1, 2, 1]), np.array([0.6]), classes[:1])
    assert weighted_overlap(strong, weaker) == pytest.approx(0.5 * 0.6 / (0.9 + 0.01))
