"""Predictions of a target with one deliberate mistake, and what is said of them."""

import json
from dataclasses import replace

import numpy as np
import pytest

from helpers import models as making
from holdfast.core.pipeline import frame_of, load_pipeline, pipeline_of
from holdfast.core.types import Size
from holdfast.data.open import open_dataset
from holdfast.diagnose import predictions
from holdfast.diagnose.predicted import UNITS, FileDetections, as_xyxy, in_image
from holdfast.diagnose.predictions import diagnose_predictions
from holdfast.graph.load import load_model

CLASSES = 20


@pytest.fixture(scope="module")
def model():
    return load_model("signs-yolo")


@pytest.fixture(scope="module")
def scenes():
    return [(entry.name, entry.load().data) for entry in open_dataset("signs:0:3").entries]


@pytest.fixture(scope="module")
def outputs(model, scenes):
    """The input tensor, raw output and frame of every scene."""
    machine = load_pipeline(pipeline_of(model.card), model)
    prepared = [machine.prepare(data) for _, data in scenes]
    return machine, [(one.tensor, machine.run(one.tensor), one.frame) for one in prepared]


def written(detections, change=lambda numbers: numbers, shift=1):
    """Detections as a target writes them: x, y, width, height and ids from 1."""
    x1, y1, x2, y2 = detections.boxes.T
    numbers = change(np.stack([x1, y1, x2 - x1, y2 - y1], axis=1))
    return FileDetections(numbers, detections.scores, detections.classes + shift)


def diagnosis(model, scenes, found):
    files = {name: one for (name, _), one in zip(scenes, found, strict=True)}
    return diagnose_predictions(model, scenes, files)


def test_equal_predictions_have_no_cause(model, scenes, outputs):
    machine, rows = outputs
    result = diagnosis(
        model, scenes, [written(machine.post(raw, frame, model.card)) for _, raw, frame in rows]
    )
    assert (result.causes, result.explained, result.after) == ((), True, pytest.approx(1.0))
    assert result.verdict.startswith("The predictions agree with the model's")


def test_swapped_channels_are_ranked_first(model, scenes, outputs):
    machine, rows = outputs
    swapped = [machine.post(machine.run(x[:, ::-1].copy()), frame, model.card) for x, _, frame in rows]
    result = diagnosis(model, scenes, [written(one) for one in swapped])
    assert [cause.kind for cause in result.causes] == ["channels"]
    assert result.ranking[0].cause.kind == "channels"
    assert result.explained
    assert result.before < 0.9 < result.after
    assert result.verdict.startswith("The target feeds BGR; the model wants RGB.")


def test_a_dropped_channel_and_a_limited_range_are_found(model, scenes, outputs):
    machine, rows = outputs
    drop = np.array([1, 0, 1], np.float32)[None, :, None, None]
    for change, kind in ((lambda x: x * drop, "channels"), (lambda x: (x * 219 + 16) / 255, "range")):
        runs = [
            machine.post(machine.run(change(x).astype(np.float32)), frame, model.card) for x, _, frame in rows
        ]
        assert [cause.kind for cause in diagnosis(model, scenes, [written(one) for one in runs]).causes] == [
            kind
        ]


def test_a_target_without_detections_gets_the_mistakes_that_leave_none(model, scenes):
    nothing = FileDetections(np.zeros((0, 4)), np.zeros(0), np.zeros(0, np.int64))
    result = diagnosis(model, scenes[:1], [nothing])
    assert not result.explained
    assert result.causes == ()
    found = result.nothing
    assert (found.images, found.tried > len(found.left) > 1) == (1, True)
    scores = [round(one.score, 2) for one in found.left]
    assert scores == sorted(scores)
    assert f"The target detects nothing on 1 image; the model's best scores are {found.lowest:.2f}" in (
        result.verdict
    )
    assert "values divided by 255 twice" in result.verdict
    assert f"Predictions cannot tell these {len(found.left)} apart" in result.verdict


def test_images_without_objects_do_not_show_why_a_target_detects_nothing(model):
    blank = [("grey.jpg", making.jpeg(np.full((64, 64, 3), 114, np.uint8)))]
    nothing = FileDetections(np.zeros((0, 4)), np.zeros(0), np.zeros(0, np.int64))
    result = diagnosis(model, blank, [nothing])
    assert (result.causes, result.explained) == ((), False)
    assert "the model itself has no score of 0.25 on these images" in result.verdict


def test_scores_near_zero_are_compared_in_their_own_scale(model, scenes, outputs):
    """Values divided by 255 twice leave scores below any usual threshold, but boxes to compare."""
    machine, rows = outputs
    card = replace(model.card, score=1e-9)
    weak = [machine.post(machine.run((x / 255).astype(np.float32)), frame, card) for x, _, frame in rows]
    assert 0.0 < max(one.scores.max() for one in weak) < 0.1
    result = diagnosis(model, scenes, [written(one) for one in weak])
    assert [cause.kind for cause in result.causes] == ["range"]
    assert "values divided by 255 twice" in result.causes[0].sentence
    assert result.explained


def test_classes_in_reversed_order_are_named_as_such(model, scenes, outputs):
    machine, rows = outputs
    found = [machine.post(raw, frame, model.card) for _, raw, frame in rows]
    backwards = [written(replace(one, classes=CLASSES - 1 - one.classes)) for one in found]
    result = diagnosis(model, scenes, backwards)
    assert [cause.sentence for cause in result.causes] == [
        "The target numbers the classes in reversed order."
    ]
    assert result.explained


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        (lambda n: as_xyxy(n, "xywh"), "box format", "The boxes are xyxy"),
        (lambda n: np.concatenate([n[:, :2] + n[:, 2:] / 2, n[:, 2:]], 1), "box format", "cxcywh"),
    ],
)
def test_another_format_of_boxes_is_named(model, scenes, outputs, change, kind, words):
    machine, rows = outputs
    found = [written(machine.post(raw, frame, model.card), change) for _, raw, frame in rows]
    (cause,) = diagnosis(model, scenes, found).causes
    assert cause.kind == kind
    assert words in cause.sentence


def test_boxes_of_the_network_input_are_named(model, scenes, outputs):
    machine, rows = outputs
    small = replace(model, card=replace(model.card, input=replace(model.card.input, policy="letterbox")))
    found = []
    for x, raw, frame in rows:
        own = frame_of(Size(*frame.original), small.card.input)
        boxes = machine.post(raw, own, model.card)
        found.append(written(replace(boxes, boxes=own.to_network(boxes.boxes))))
        assert x.shape[2:] == (416, 416)
    result = diagnosis(small, scenes, found)
    assert result.causes[0].kind == "letterbox"


def test_an_offset_of_the_class_ids_is_named(model, scenes, outputs):
    machine, rows = outputs
    found = [written(machine.post(raw, frame, model.card), shift=0) for _, raw, frame in rows]
    (cause,) = diagnosis(model, scenes, found).causes
    assert cause.kind == "class offset"


def test_another_order_of_the_classes_is_named(model, scenes, outputs):
    machine, rows = outputs
    order = np.random.default_rng(4).permutation(CLASSES)
    found = [machine.post(raw, frame, model.card) for _, raw, frame in rows]
    found = [written(replace(one, classes=order[one.classes])) for one in found]
    (cause,) = diagnosis(model, scenes, found).causes
    assert cause.kind == "class order"


def test_ids_with_the_gaps_of_coco_are_named(model, scenes, outputs, monkeypatch):
    assert len(predictions.COCO_CLASSES) == 80
    assert [predictions.COCO_CLASSES[k] for k in (0, 10, 11, 79)] == [1, 11, 13, 90]
    ids = np.array([1, 2, 3, *range(6, 16), *range(20, 27)])  # gaps for a model of twenty classes
    monkeypatch.setattr(predictions, "COCO_CLASSES", ids.tolist())
    machine, rows = outputs
    found = [machine.post(raw, frame, model.card) for _, raw, frame in rows]
    result = diagnosis(
        model, scenes, [written(replace(one, classes=ids[one.classes]), shift=0) for one in found]
    )
    assert [cause.kind for cause in result.causes] == ["class order"]
    assert "COCO's, from 1 to 90 with gaps" in result.causes[0].sentence
    assert result.explained


def test_a_score_threshold_and_a_missing_nms_are_named(model, scenes, outputs):
    machine, rows = outputs
    found = [machine.post(raw, frame, replace(model.card, nms_iou=1.0)) for _, raw, frame in rows]
    causes = diagnosis(model, scenes, [written(one) for one in found]).causes
    assert [cause.kind for cause in causes] == ["NMS threshold"]
    assert "no NMS" in causes[0].sentence
    found = [machine.post(raw, frame, model.card) for _, raw, frame in rows]
    found = [one.take(one.scores >= 0.9) for one in found]
    result = diagnosis(model, scenes, [written(one) for one in found])
    assert {cause.kind for cause in result.causes} <= {"score threshold"}
    assert result.explained


def test_units_are_read_back():
    frame = frame_of(Size(200, 100), load_model("signs-yolo").card.input)
    boxes = np.array([[10.0, 20.0, 50.0, 80.0]])
    network = frame.to_network(boxes)
    forms = (boxes, boxes / [200, 100, 200, 100], network, network / [416, 416, 416, 416])
    for unit, numbers in zip(UNITS, forms, strict=True):
        np.testing.assert_allclose(in_image(numbers, unit, frame), boxes)


def test_the_command_reads_predictions_and_refuses_those_of_other_images(holdfast, tmp_path):
    done = holdfast("evaluate", "signs-yolo", "signs:0:2", "--predictions-out", "dt.json")
    assert done.code == 0
    done = holdfast("diagnose", "signs-yolo", "signs:0:2", "--predictions", "dt.json", "--json", "d.json")
    assert done.code == 0
    assert "The predictions agree with the model's" in done.out
    assert json.loads((tmp_path / "d.json").read_text())["predictions"]["explained"] is True
    rows = json.loads((tmp_path / "dt.json").read_text())
    (tmp_path / "dt.json").write_text("[]")
    done = holdfast("diagnose", "signs-yolo", "signs:0:2", "--predictions", "dt.json", "-o", "d.html")
    assert done.code == 0
    assert "The target detects nothing on 2 images" in done.out
    assert "highest score left" in (tmp_path / "d.html").read_text()
    (tmp_path / "dt.json").write_text(json.dumps([{**row, "file_name": "other.jpg"} for row in rows]))
    done = holdfast("diagnose", "signs-yolo", "signs:0:2", "--predictions", "dt.json")
    assert done.code == 2
    assert "expected detections of the images of" in done.err
