"""Heads that answer for the whole image or for every pixel: classifier, landmark, segmentation."""

import numpy as np
import pytest

from holdfast.core.errors import CardError
from holdfast.core.model import Card, Head, Input
from holdfast.core.registry import names, part
from holdfast.core.types import Size
from holdfast.graph.card import numbered

TASKS = {"classifier": "classify", "landmark": "single", "segmentation": "segment"}


def card(head, classes=3, **options):
    return Card(TASKS[head], Input(Size(96, 64)), Head(head, options), numbered(classes))


def run(raw, wanted):
    return part("head", wanted.head.name).function({k: np.asarray(v) for k, v in raw.items()}, wanted)


def test_every_head_has_its_facts():
    heads = {name: part("head", name).facts for name in names("head")}
    assert set(heads) == {
        *("anchors", "boxes", "classifier", "fastestdet", "landmark", "nanodet", "segmentation"),
        *("rtdetr", "selected", "yolov3", "yolov5", "yolov8", "yolox"),
        *("boxes-scores", "centernet", "detr", "dets-labels", "yolov5-maps"),
    }
    assert all({"task", "nms", "options"} <= set(facts) for facts in heads.values())
    assert {n for n, f in heads.items() if f["nms"]} == {
        *("anchors", "fastestdet", "nanodet", "yolov3", "yolov5", "yolov8", "yolox"),
        *("boxes-scores", "yolov5-maps"),
    }


def test_classifier():
    assert run({"o": [[1.0, 2, 3]]}, card("classifier")).values.tolist() == [1, 2, 3]
    assert run({"o": np.ones((1, 3, 1, 1))}, card("classifier")).values.tolist() == [1, 1, 1]
    assert run({"o": [[9.0, 1, 2, 3]]}, card("classifier", skip=1)).values.tolist() == [1, 2, 3]
    soft = run({"o": [[0.0, np.log(2), 1000]]}, card("classifier", activation="softmax")).values
    assert soft.tolist() == [0, 0, 1]
    with pytest.raises(
        CardError, match=r"one score for each of the card's 4 classes, got 3; correct `classes`"
    ):
        run({"o": [[1.0, 2, 3]]}, card("classifier", classes=4))
    with pytest.raises(CardError, match=r"head.activation: expected 'none' or 'softmax', got 'sofmax'"):
        run({"o": [[1.0, 2, 3]]}, card("classifier", activation="sofmax"))


def test_landmark():
    raw = {"scores": [[0.0, 2.0, 1.0]], "box": [[0.25, 0.5, 0.75, 1.0]]}
    found = run(raw, card("landmark"))
    assert found.boxes.tolist() == [[24, 32, 72, 64]]
    assert found.classes.tolist() == [1]
    assert found.scores[0] == pytest.approx(np.exp(2) / (1 + np.exp(2) + np.exp(1)))
    assert run(raw, card("landmark", normalised=False)).boxes[0, 0] == 0.25
    four = {"a": [[0.25, 0.5, 0.75, 1.0]], "b": [[0.0, 2.0, 1.0, 0.0]]}  # as many classes as corners
    assert run(four, card("landmark", classes=4)).classes.tolist() == [1]
    assert run(four, card("landmark", classes=4, outputs=["b", "a"])).classes.tolist() == [3]
    with pytest.raises(
        CardError, match=r"expected a box of 4 numbers and scores of the card's 5 classes, got 'scores'"
    ):
        run(raw, card("landmark", classes=5))
    with pytest.raises(CardError, match="no output is named 'boxes'"):
        run(raw, card("landmark", outputs=["boxes", "scores"]))


def test_segmentation():
    scores = np.random.default_rng(0).normal(size=(1, 3, 4, 6))
    assert np.array_equal(run({"o": scores}, card("segmentation")), scores[0])
    assert np.array_equal(run({"o": scores.transpose(0, 2, 3, 1)}, card("segmentation")), scores[0])
    ids = np.array([[[0, 2], [1, 0]]])
    assert np.array_equal(run({"o": ids}, card("segmentation")), ids[0])
    assert np.array_equal(run({"o": ids[:, None]}, card("segmentation")), ids[0])
    assert np.array_equal(
        run({"out": scores, "aux": scores}, card("segmentation", outputs=["out"])), scores[0]
    )


def test_segmentation_with_one_channel_for_two_classes():
    plane = np.array([[[[-1.0, 2.0]]]])
    assert run({"o": plane}, card("segmentation", classes=2)).argmax(0).tolist() == [[0, 1]]
    plane = np.array([[[[0.4, 0.6]]]])
    assert run({"o": plane}, card("segmentation", classes=2, single="probability")).argmax(0).tolist() == [
        [0, 1]
    ]


def test_segmentation_wrong_cards():
    with pytest.raises(
        CardError, match=r"\(1, 5, 4, 6\): expected one channel for each of the card's 3 classes"
    ):
        run({"o": np.zeros((1, 5, 4, 6))}, card("segmentation"))
    with pytest.raises(CardError, match=r"expected \(1, classes, height, width\), got \(1, 5\)"):
        run({"o": np.zeros((1, 5))}, card("segmentation"))
    with pytest.raises(CardError, match=r"expected class ids 0 to 2 .* got 0 to 3; correct `classes`"):
        run({"o": np.array([[[0, 3]]])}, card("segmentation"))
