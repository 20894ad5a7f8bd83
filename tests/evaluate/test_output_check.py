"""Known layouts give the right AP, and a wrong reading is not silent."""

import json

import numpy as np
import pytest

from helpers.models import blob_coco
from helpers.nms_graphs import blobs_as, yolox_as
from holdfast.core.dataset import Dataset
from holdfast.core.model import Card, Head, Input, Model
from holdfast.core.pipeline import Pipeline
from holdfast.core.types import Boxes, Detections, Size
from holdfast.data.open import open_dataset
from holdfast.engine.records import DetectionRecord
from holdfast.evaluate.classes import align, output_warnings
from holdfast.evaluate.readings import settled
from holdfast.evaluate.run import EvaluationPlan, evaluate
from holdfast.graph.card import BUILT_IN, numbered
from holdfast.graph.load import load_model, write_guess


@pytest.fixture(scope="module")
def signs(tmp_path_factory):
    """Images with one stop sign each: class 11 of COCO's 80, id 13 of its 91."""
    return blob_coco(tmp_path_factory.mktemp("signs"), 12, name="stop sign")


def evaluated(path, data, runs, **changes):
    """The evaluation of a model by its guessed card with some lines exchanged."""
    card, _ = write_guess(path, force=True)
    text = card.read_text()
    for key, value in changes.items():
        lines = [f"{key} = {value}" if line.startswith(f"{key} =") else line for line in text.splitlines()]
        assert lines != text.splitlines()
        text = "\n".join(lines)
    card.write_text(text)
    return evaluate(EvaluationPlan(load_model(path), open_dataset(data), runs=runs))


@pytest.mark.parametrize("layout", ["tensorflow", "torchvision"])
def test_detections_of_known_exporters_are_read_as_they_are_meant(layout, signs, tmp_path):
    found = evaluated(blobs_as(layout, tmp_path / "net.onnx"), signs, tmp_path)
    assert found.result["metrics"]["AP"] == 1.0
    assert "warnings" not in found.result


@pytest.mark.parametrize(
    ("changes", "advice"),
    [
        ({"form": '"xyxy"', "normalised": "false"}, 'form = "yxyx", normalised = true under [head]'),
        ({"form": '"cxcywh"'}, 'form = "yxyx" under [head]'),
        ({"label_offset": "1"}, "label_offset = 0 under [head] in the card gives 100%"),
        ({"label_offset": "-1"}, "label_offset = 0 under [head] in the card gives 100%"),
    ],
)
def test_a_wrong_reading_is_told_with_the_one_that_fits(changes, advice, signs, tmp_path):
    found = evaluated(blobs_as("tensorflow", tmp_path / "net.onnx"), signs, tmp_path, **changes)
    assert found.result["metrics"]["AP50"] < 0.1
    (line,) = found.result["warnings"]
    assert advice in line
    assert "12 images" in line
    assert found.notes[0] == line


def test_the_warning_is_on_the_command_line_in_json_and_on_the_page(signs, holdfast, tmp_path):
    path = blobs_as("tensorflow", tmp_path / "net.onnx")
    card, _ = write_guess(path)
    card.write_text(card.read_text().replace('form = "yxyx"', 'form = "cxcywh"'))
    done = holdfast("evaluate", path, signs, "--json", "out.json", "--runs", "runs")
    assert done.err.count("warning  the boxes hardly overlap the ground truth (mean best IoU") == 1
    assert 'form = "yxyx"' in json.loads((tmp_path / "out.json").read_text())["warnings"][0]
    run = next(tmp_path.glob("runs/net-on-*"))
    assert holdfast("report", run, "-o", "page.html").code == 0
    assert (tmp_path / "page.html").read_text().count(
        "the card may decode the outputs wrongly"
    ) >= 2  # above, and in the notes


def test_noise_says_it_too(signs, holdfast, tmp_path):
    path = blobs_as("tensorflow", tmp_path / "net.onnx")
    card, _ = write_guess(path)
    card.write_text(card.read_text().replace("normalised = true", "normalised = false"))
    done = holdfast(
        "noise", path, signs, "--only", "boxes=round-floor", "--json", "out.json", "-o", "page.html"
    )
    assert "warning  net: the boxes hardly overlap" in done.err
    (model,) = json.loads((tmp_path / "out.json").read_text())["models"]
    assert "normalised = true" in model["warnings"][0]
    assert "the card may decode the outputs wrongly" in (tmp_path / "page.html").read_text()


def test_an_audit_says_it_too(signs, holdfast, tmp_path):
    path = blobs_as("tensorflow", tmp_path / "net.onnx")
    card, _ = write_guess(path)
    card.write_text(card.read_text().replace('form = "yxyx"', 'form = "cxcywh"'))
    done = holdfast("audit", path, signs, "--only", "evaluate", "--json", "out.json")
    assert "warning  the boxes hardly overlap" in done.err
    assert 'form = "yxyx"' in json.loads((tmp_path / "out.json").read_text())["notes"][0]


def some(boxes, classes, names, detected, offset=None):
    """Doubts about records of ten images, each with these objects and detections."""
    boxes, detected = np.array(boxes, float), np.array(detected, float)
    crowd = np.zeros(len(boxes), bool)
    truth = Boxes(boxes, np.array(classes), crowd, crowd, np.full(len(boxes), 100.0))
    given = Detections(detected, np.ones(len(detected)), np.array(offset if offset is not None else classes))
    records = [DetectionRecord(f"{i}.jpg", Size(100, 100), truth, given) for i in range(10)]
    card = Card("detect", Input(Size(100, 100)), Head("yolox"), names)
    model = Model("m", None, card, "0" * 64)
    data = Dataset("d", "coco", "detect", names, ())
    return output_warnings(model, data, Pipeline(), records, align(names, names))


BOXES = [[10, 10, 40, 40], [50, 50, 90, 80]]


def test_a_model_that_confuses_classes_is_not_accused_of_wrong_boxes():
    assert some(BOXES, [0, 1], numbered(4), BOXES, offset=[0, 3]) == ()  # half of the classes right
    (line,) = some(BOXES, [0, 1], numbered(4), BOXES, offset=[3, 3])
    assert line == (
        "the boxes match the ground truth but the classes do not (0% of 20 boxes that match an object have "
        "its class, 10 images); check the order of `classes` in the card"
    )


def test_boxes_elsewhere_are_told_even_if_no_other_reading_is_known():
    (line,) = some(BOXES, [0, 1], numbered(4), [[80, 0, 99, 9], [0, 80, 9, 99]])
    assert "hardly overlap the ground truth (mean best IoU 0.00 over 20 objects in 10 images)" in line
    assert line.endswith("check the head, its box order and units, and the input policy in the card")


def test_ids_of_coco_read_as_eighty_classes_are_recognised():
    dog, stop = (BUILT_IN["coco91"].index(name) for name in ("dog", "stop sign"))
    names = BUILT_IN["coco80"]
    wanted = [names.index("dog"), names.index("stop sign")]
    (line,) = some(BOXES, wanted, names, BOXES, offset=[dog, stop])
    assert line.endswith('classes = "coco91" in the card gives 100%')


def test_nothing_is_said_without_objects_or_detections():
    assert some(np.zeros((0, 4)), [], numbered(4), BOXES, offset=[0, 1]) == ()
    assert some(BOXES, [0, 1], numbered(4), np.zeros((0, 4)), offset=[]) == ()


@pytest.mark.slow
@pytest.mark.shared
def test_a_real_detector_in_other_layouts_keeps_its_ap(shared_data, tmp_path):
    source = shared_data / "models" / "yolox_nano.onnx"
    data = open_dataset(shared_data / "coco128")
    pair = load_model(yolox_as("pair", source, tmp_path / "pair.onnx"))
    assert (pair.card.head.name, pair.card.input.colour, pair.card.input.scale) == (
        "boxes-scores",
        "rgb",
        1 / 255,
    )
    pair = settled(pair, data)  # values of 0..1 give no box at all
    assert pair.card.input.scale == 1.0
    assert evaluate(EvaluationPlan(pair, data, runs=tmp_path)).result["metrics"]["AP50"] > 0.45
    for layout in ("tensorflow", "torchvision"):
        path = yolox_as(layout, source, tmp_path / f"{layout}.onnx")
        model, data = load_model(path), open_dataset(shared_data / "coco128")
        found = evaluate(EvaluationPlan(model, data, runs=tmp_path))
        assert found.result["metrics"]["AP50"] > 0.45
        assert "warnings" not in found.result
