"""A guess that meets no object is replaced by the reading that does, or is an error; never a silent zero."""

import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from helpers.layouts import Layout, save
from helpers.models import blob_coco, classifier
from helpers.nms_graphs import Graph, add_nms, blobs_as, finish_torchvision
from helpers.nms_graphs import save as save_nms
from holdfast.core.errors import CardError, InputError
from holdfast.core.types import Size
from holdfast.data.open import open_dataset
from holdfast.evaluate import readings
from holdfast.evaluate.readings import card_lines, check_readings, settled
from holdfast.graph.card import BUILT_IN
from holdfast.graph.load import load_model, write_guess

RENAMED = {"detection_boxes": "boxes", "detection_classes": "labels", "detection_scores": "scores"}


@pytest.fixture(scope="module")
def signs(tmp_path_factory):
    """Images with one stop sign each: class 11 of COCO's 80, id 13 of its 91."""
    return blob_coco(tmp_path_factory.mktemp("signs"), 12, name="stop sign")


def unnamed_tensorflow(path, ids=(13,)):
    """Boxes y1 x1 y2 x2 in 0..1 and COCO's ids, under names that tell neither."""
    blobs_as("tensorflow", path, ids)
    model = onnx.load(path)
    for node in model.graph.node:
        for names in (node.input, node.output):
            names[:] = [RENAMED.get(name, name) for name in names]
    for output in model.graph.output:
        output.name = RENAMED.get(output.name, output.name)
    onnx.save(model, path)
    return path


def hidden_bytes(path):
    """A detector of blobs that takes RGB values of 0..255, which the first operators do not tell."""
    graph = Graph()
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [3, 64, 64])
    pixels = graph.add("Div", graph.add("Relu", "image"), np.float32(255))
    light = graph.add(
        "AveragePool", graph.add("Unsqueeze", pixels, np.array([0])), kernel_shape=[8, 8], strides=[8, 8]
    )
    logits = graph.add("Conv", light, np.full((1, 3, 1, 1), 8, np.float32), np.float32([-14]))
    scores = graph.add("Reshape", graph.add("Sigmoid", logits), np.array([1, 1, 64]))
    y, x = np.divmod(np.arange(64), 8)
    centre = np.stack([x, y], axis=1) * 8.0 + 4
    boxes = np.concatenate([centre - 8, centre + 8], axis=1).astype(np.float32)[None]
    found = add_nms(graph, graph.constant(boxes), scores, 0.1, 0.1)
    return save_nms(path, graph, image, finish_torchvision(graph, *found, np.array([13])))


def test_a_wrong_guess_is_replaced_by_the_reading_that_meets_the_objects(signs, holdfast, tmp_path):
    path = unnamed_tensorflow(tmp_path / "net.onnx")
    done = holdfast("evaluate", path, signs, "--json", "out.json", "--runs", "runs")
    assert json.loads((tmp_path / "out.json").read_text())["AP"] == 1.0
    (line,) = [text for text in done.err.splitlines() if "reading:" in text]
    assert (
        "read as xyxy pixels classes coco80 AP50 is 0.00; as yxyx normalised classes coco91 it is 1.00"
        in line
    )
    assert (
        "(8 images, an indication): using that; write a card to fix it (`holdfast model card net.onnx`)"
        in line
    )
    assert 'form = "yxyx", normalised = true under [head]' in line


def test_the_noise_of_a_wrong_guess_is_measured_with_the_right_reading(signs, holdfast, tmp_path):
    path = unnamed_tensorflow(tmp_path / "net.onnx")
    done = holdfast("noise", path, signs, "--only", "boxes=round-floor", "--json", "out.json")
    assert "using that; write a card" in done.err
    (model,) = json.loads((tmp_path / "out.json").read_text())["models"]
    assert model["clean"] == 1.0


def test_a_card_of_the_user_is_never_replaced(signs, tmp_path):
    path = unnamed_tensorflow(tmp_path / "net.onnx")
    write_guess(path)
    model = load_model(path)
    assert settled(model, open_dataset(signs)) is model


@pytest.mark.parametrize(("ids", "offset"), [((11,), 0), ((12,), 1), ((10,), -1)])
def test_numbers_off_by_one(ids, offset, signs, tmp_path):
    model = load_model(unnamed_tensorflow(tmp_path / "net.onnx", ids))
    card = settled(model, open_dataset(signs)).card
    assert (card.classes, card.head.options.get("label_offset", 0)) == (BUILT_IN["coco80"], offset)


def test_another_range_of_values(signs, tmp_path):
    model = load_model(hidden_bytes(tmp_path / "net.onnx"))
    assert model.card.input.scale == 1 / 255
    fixed = settled(model, open_dataset(signs))
    assert fixed.card.input.scale == 1.0
    assert card_lines(model.card, fixed.card) == "scale = 1.0 under [input]"
    assert "read as values 0..1 AP50 is 0.00; as values 0..255 it is 1.00" in fixed.guessed[-1]


def test_classes_off_by_one_are_told_in_words(signs, tmp_path):
    """A head that gives scores by position: the list of classes is shifted, and said shortly."""
    scores = np.zeros((1, 84, 80), np.float32)
    scores[0, :, 12] = 0.9  # stop sign is 11
    boxes = np.zeros((1, 84, 4), np.float32)
    y, x = np.divmod(np.arange(64), 8)
    boxes[0, :64] = np.stack([x * 8 - 4, y * 8 - 4, x * 8 + 12, y * 8 + 12], axis=1)
    boxes[0, 64:] = [0, 0, 64, 64]
    path = save(Layout({"boxes": boxes, "scores": scores}, head="boxes-scores"), tmp_path / "net.onnx")
    check = check_readings(load_model(path), open_dataset(signs))
    shifted = [r for r in check.readings if r.card.classes[0] == "unused"]
    assert check.given.ap == 0 < shifted[0].ap == check.best.ap
    lines = card_lines(check.given.card, check.best.card)
    assert lines == "classes = [\"unused\", then the present ones without 'toothbrush']"


def test_a_right_guess_is_looked_at_on_few_images(signs, tmp_path, monkeypatch):
    model = load_model(blobs_as("tensorflow", tmp_path / "net.onnx"))
    runs, plain = [], readings._Trial.run
    monkeypatch.setattr(readings._Trial, "run", lambda *a: runs.append(a[2]) or plain(*a))
    assert settled(model, open_dataset(signs)) is model
    assert [len(samples) for samples in runs] == [1] * readings.FEW


ELSEWHERE = Layout(
    {
        "boxes": np.array([[1, 1, 3, 3]], np.float32),
        "labels": np.array([11]),
        "scores": np.array([0.9], np.float32),
    },
    head="boxes",
    input=(3, 64, 64),
)


def test_boxes_that_no_reading_brings_near_the_objects_are_an_error(signs, tmp_path):
    path = save(ELSEWHERE, tmp_path / "net.onnx")
    with pytest.raises(CardError) as caught:
        settled(load_model(path), open_dataset(signs))
    text = str(caught.value)
    assert text.startswith(
        f"{path}: outputs boxes float32 (1, 4), labels int64 (1), scores float32 (1): guessed"
    )
    assert "the boxes meet none of 8 objects in 8 images" in text
    assert "write a card (`holdfast model card net.onnx`)" in text
    write_guess(path)  # with a card it is a bad model, not a bad guess
    assert settled(load_model(path), open_dataset(signs)).card.input.size == Size(64, 64)


def test_model_check_lists_readings_and_ends_with_1_if_another_fits(signs, holdfast, tmp_path):
    path = unnamed_tensorflow(tmp_path / "net.onnx")
    done = holdfast("model", "check", path, signs, "--json", "out.json")
    assert done.code == 1
    assert "as yxyx normalised classes coco91 it is 1.00" in done.out
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["readings"][0]["ap50"] == 0.0
    assert found["best"]["change"].startswith(
        'classes = "coco91"; form = "yxyx", normalised = true under [head]'
    )
    card, _ = write_guess(path)
    text = card.read_text().replace("coco80", "coco91")
    card.write_text(text.replace("[head]", '[head]\nform = "yxyx"\nnormalised = true'))
    done = holdfast("model", "check", path, signs)
    assert done.code == 0
    assert "no other reading is better" in done.out


def test_a_reading_is_checked_for_detectors_only(signs, tmp_path):
    with pytest.raises(InputError, match="expected a detector, got a model for task 'classify'"):
        check_readings(load_model(classifier(tmp_path)), open_dataset(signs))
