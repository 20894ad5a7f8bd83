"""Normalise, infer and post against their equations and libraries."""

import numpy as np
import pytest
from PIL import Image

from helpers import models as making
from holdfast.core.errors import CardError, ImageError, ModelError
from holdfast.core.model import Card, Head, Input, Model
from holdfast.core.pipeline import frame_of
from holdfast.core.types import Detections, LabelMap, Size
from holdfast.stages.infer import onnxruntime
from holdfast.stages.normalise import card as normalise
from holdfast.stages.post import BoxPostProcessing, by_card


def picture(height=40, width=60, seed=0):
    rng = np.random.default_rng(seed)
    rough = rng.integers(0, 256, (height // 4 + 1, width // 4 + 1, 3)).astype(np.uint8)
    return np.asarray(Image.fromarray(rough).resize((width, height), Image.Resampling.BICUBIC))


def test_normalise_is_the_cards_equation():
    image = picture(4, 5)
    wanted = Input(Size(5, 4), scale=1 / 255, mean=(0.5, 0.4, 0.3), std=(0.2, 0.25, 0.5), colour="bgr")
    tensor = normalise(image, wanted)
    assert tensor.shape == (3, 4, 5)
    assert tensor.dtype == np.float32
    want = (image[..., ::-1] / 255 - [0.5, 0.4, 0.3]) / [0.2, 0.25, 0.5]
    np.testing.assert_allclose(tensor.transpose(1, 2, 0), want, atol=1e-6)
    assert normalise(image, Input(Size(5, 4), layout="nhwc", dtype="uint8")).dtype == np.uint8


def model_of(path, card):
    return Model(path.stem, path, card, "")


def test_onnx_runtime_runs_and_names_its_outputs(tmp_path):
    path = making.classifier(tmp_path)
    card = Card("classify", Input(Size(16, 16)), Head("classifier"), ("dark", "bright"))
    run = onnxruntime(model_of(path, card), 1)
    outputs = run(np.ones((1, 3, 16, 16), np.float32))
    np.testing.assert_allclose(outputs["y"], [[-1.5, 1.5]], atol=1e-6)
    with pytest.raises(ImageError, match="cannot run"):
        run(np.ones((1, 3, 8, 8), np.float32))


def test_a_card_that_contradicts_the_model_is_told(tmp_path):
    path = making.classifier(tmp_path)
    card = Card("classify", Input(Size(32, 16)), Head("classifier"), ("dark", "bright"))
    with pytest.raises(CardError, match="Correct size or layout"):
        onnxruntime(model_of(path, card), 1)
    path.write_bytes(b"no onnx")
    with pytest.raises(ModelError, match=r"tiny.onnx: ONNX Runtime cannot load it"):
        onnxruntime(model_of(path, card), 1)


def yolo_card(**more):
    options = {"anchors": [[[16, 16]]], "strides": [8]}
    return Card("detect", Input(Size(64, 64)), Head("yolov3", options), ("blob",), **more)


def raw_map(cells):
    y = np.full((1, 6, 8, 8), -20.0, np.float32)
    y[:, :4] = 0
    y[:, 5] = 20
    for row, column, logit in cells:
        y[0, 4, row, column] = logit
    return {"y": y}


def test_post_maps_boxes_back_and_suppresses():
    frame = frame_of(Size(128, 64), Input(Size(64, 64)))
    found = by_card(raw_map([(3, 3, 5), (3, 4, 4), (6, 6, 3)]), frame, yolo_card(score=0.5, nms_iou=0.3))
    assert isinstance(found, Detections)
    # the neighbour at (3, 4) overlaps the first by a third and goes; x is stretched by 2
    np.testing.assert_allclose(found.boxes, [[40, 20, 72, 36], [88, 44, 120, 60]], atol=1e-4)


def test_what_systems_do_differently_are_parameters():
    frame = frame_of(Size(64, 64), Input(Size(64, 64)))
    raw = raw_map([(3, 3, 5), (3, 4, 4)])  # IoU of the two boxes is exactly 1/3
    card = yolo_card(score=0.5, nms_iou=1 / 3)
    assert len(by_card(raw, frame, card)) == 2
    assert len(BoxPostProcessing(nms_inclusive=True)(raw, frame, card)) == 1
    assert len(BoxPostProcessing(nms_plus_one=True)(raw, frame, card)) == 1  # (9·17)/(2·17·17 − 9·17) > 1/3
    raw["y"][0, 0, 3, 3] = 1.0
    rounded = BoxPostProcessing(rounding="floor")(raw, frame, card).boxes
    assert (rounded == np.floor(rounded)).all()


def test_label_maps_come_back_in_the_images_size():
    scores = np.zeros((1, 2, 8, 8), np.float32)
    scores[0, 0, :, :4] = scores[0, 1, :, 4:] = 1.0
    card = Card("segment", Input(Size(16, 16)), Head("segmentation"), ("left", "right"))
    found = by_card({"y": scores}, frame_of(Size(40, 20), card.input), card)
    assert isinstance(found, LabelMap)
    assert found.classes.shape == (20, 40)
    assert (found.classes[:, :19] == 0).all()
    assert (found.classes[:, 21:] == 1).all()
    crop = Input(Size(16, 16), policy="crop", short_side=20)
    with pytest.raises(CardError, match="does not see the whole image"):
        by_card({"y": scores}, frame_of(Size(40, 20), crop), card)


@pytest.mark.parametrize("policy", ["stretch", "letterbox"])
def test_a_label_map_mirrored_is_the_mirrored_label_map(policy):
    card = Card("segment", Input(Size(12, 12), policy=policy), Head("segmentation"), ("a", "b", "c"))
    seen = np.random.default_rng(0).integers(0, 3, (1, 3, 3))
    frame = frame_of(Size(32, 32), card.input)
    found, mirrored = (by_card({"y": y}, frame, card).classes for y in (seen, seen[:, ::-1, ::-1]))
    assert (found == mirrored[::-1, ::-1]).all()


def test_scores_of_many_classes_give_the_highest_and_the_first_of_equals():
    card = Card("segment", Input(Size(4, 4)), Head("segmentation"), tuple("abcde"))
    scores = np.random.default_rng(0).integers(0, 4, (1, 5, 4, 4)).astype(np.float32)
    found = by_card({"y": scores}, frame_of(Size(4, 4), card.input), card).classes
    np.testing.assert_array_equal(found, scores[0].argmax(axis=0))
