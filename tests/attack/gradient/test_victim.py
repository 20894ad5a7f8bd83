"""A victim: candidates as its head finds them, the right gradient, and a model that stays as it was."""

import dataclasses
import hashlib

import numpy as np
import pytest
import torch

from helpers import models as making
from holdfast.attack.gradient.transforms import moved
from holdfast.attack.gradient.victim import (
    open_oracle,
    open_victim,
    preparation_of,
    resize_weights,
    vanish,
)
from holdfast.attack.judge import Judge, found_boxes, target_in
from holdfast.attack.types import Method, Rule
from holdfast.core.errors import HoldfastError, NoGradients
from holdfast.core.model import Card, Head, Input, Model
from holdfast.core.pipeline import Pipeline, load_pipeline, pipeline_of
from holdfast.core.registry import lookup
from holdfast.core.types import Boxes, Size
from holdfast.graph.load import load_model
from holdfast.graph.nms import nms
from holdfast.stages.deployed import with_rewrite


def test_candidates_above_the_threshold_are_the_judges(victim, scene):
    image, _ = scene
    said = victim.judge(image)
    found = victim.candidates(torch.tensor(image[None], dtype=torch.float32))
    rows, classes = (found.scores[0] >= victim.rule.score).nonzero(as_tuple=True)
    mine, scores = found.boxes[0, rows].detach().double().numpy(), found.scores[0, rows, classes]
    kept = nms(mine, scores.detach().double().numpy(), classes.numpy(), victim.rule.nms_iou)
    assert len(said) == len(kept) > 0
    assert np.abs(mine[kept] - said.boxes).max() < 0.05
    assert np.abs(scores.detach().numpy()[kept] - said.scores).max() < 1e-3
    assert np.array_equal(classes.numpy()[kept], said.classes)


def test_the_gradient_is_the_slope_of_the_loss(scene):
    image, boxes = scene
    victim = open_victim(load_model("signs-yolo"))
    exact = dataclasses.replace(victim, net=type(victim.net)(victim.net.net, torch.float64), _prepared={})
    target = target_in(exact.judge, image, boxes, rule=exact.rule)
    aim = open_oracle([exact], target, Method()).parties[0].aim
    pixels = torch.tensor(image[None], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(vanish(exact.candidates(pixels), aim).sum(), pixels)
    x1, y1, x2, y2 = target.boxes.xyxy[0].astype(int)
    rng = np.random.default_rng(0)
    for _ in range(3):
        way = torch.zeros_like(pixels)
        way[0, y1:y2, x1:x2] = torch.tensor(rng.normal(size=(y2 - y1, x2 - x1, 3)))
        with torch.no_grad():
            up, down = (float(vanish(exact.candidates(pixels + s * 1e-4 * way), aim)) for s in (1, -1))
        assert (up - down) / 2e-4 == pytest.approx(float((slope * way).sum()), rel=1e-3, abs=1e-6)


def test_the_model_stays_as_it_was(victim, target):
    before = hashlib.sha256(victim.model.path.read_bytes()).hexdigest()
    weights = [t.clone() for row in victim.net.constants for t in row]
    said = victim.judge(target.image)
    open_oracle([victim], target, Method()).slope(target.image, np.random.default_rng(0))
    again = victim.judge(target.image)
    assert before == hashlib.sha256(victim.model.path.read_bytes()).hexdigest() == victim.model.sha256
    assert np.array_equal(said.scores, again.scores)
    now = [t for row in victim.net.constants for t in row]
    assert all(torch.equal(a, b) for a, b in zip(weights, now, strict=True))


def test_targets_are_the_true_boxes_it_finds(victim, scene):
    image, boxes = scene
    target = target_in(victim.judge, image, boxes, rule=victim.rule)
    assert target is not None
    assert found_boxes(target.before, target.boxes, victim.rule).all()
    nothing = Boxes(np.array([[0.0, 0.0, 5.0, 5.0]]), np.array([0]))
    assert target_in(victim.judge, image, nothing, rule=victim.rule) is None


def test_a_deployment_is_another_victim(victim, scene):
    image, _ = scene
    plain = pipeline_of(victim.model.card)
    other = open_victim(victim.model, plain.replace(resize="opencv-nearest"))
    half = open_victim(victim.model, plain.replace(infer=with_rewrite(plain.infer, "fp16")))
    small = np.ascontiguousarray(image[:300, :310])
    pixels = torch.tensor(small[None], dtype=torch.float32)
    for one in (other, half):
        best = one.candidates(pixels).scores.max().item()
        assert best == pytest.approx(one.judge(small).scores.max(), abs=0.02)


def test_boxes_move_with_a_transform():
    turn = np.array([[0.0, -1.0, 50.0], [1.0, 0.0, 0.0]])  # a quarter turn
    assert moved(np.array([[10.0, 20.0, 30.0, 25.0]]), turn).tolist() == [[25.0, 10.0, 30.0, 30.0]]


def test_a_classifier_is_refused():
    with pytest.raises(HoldfastError, match="detector"):
        open_victim(load_model("signs-class"), rule=Rule())


PLAIN = Input(Size(48, 32), scale=1 / 255)


def machine_of(tmp_path, wanted, **stages):
    card = Card("detect", wanted, Head("yolox"), ("a",))
    model = Model("m", tmp_path / "m.onnx", card, "0")
    return load_pipeline(Pipeline(infer=lambda _model, _threads: dict, **stages), model)


INPUTS = {
    "stretch": PLAIN,
    "letterbox": dataclasses.replace(PLAIN, policy="letterbox", pad=100),
    "corner": dataclasses.replace(PLAIN, policy="letterbox", place="corner"),
    "crop": dataclasses.replace(PLAIN, policy="crop", short_side=40),
    "square": dataclasses.replace(PLAIN, policy="square", short_side=50),
    "bgr": dataclasses.replace(PLAIN, colour="bgr", mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7)),
    "nhwc": dataclasses.replace(PLAIN, layout="nhwc"),
}


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("size", [Size(48, 32), Size(90, 70), Size(20, 30)])
def test_the_stand_in_is_the_pipelines_tensor_to_a_level(tmp_path, name, size):
    machine = machine_of(tmp_path, INPUTS[name])
    image = np.random.default_rng(1).integers(0, 256, (size.height, size.width, 3)).astype(np.uint8)
    real = Judge(machine, Rule()).prepared(image).tensor.reshape(1, -1)
    ready = preparation_of(machine, size)
    ours = ready(torch.tensor(image[None], dtype=torch.float32)).numpy()
    level = 1 / 255 / min(INPUTS[name].std)
    assert ours.shape == real.shape
    assert np.abs(ours - real).max() < 3 * level
    assert np.abs(ours - real).mean() < 0.5 * level


@pytest.mark.parametrize(
    "resize", ["pillow-nearest", "pillow-bilinear", "pillow-bicubic", "opencv-bilinear", "opencv-nearest"]
)
def test_any_resize_is_measured(resize):
    image = np.random.default_rng(2).integers(60, 200, (50, 8, 3)).astype(np.uint8)
    function = lookup("resize", resize)
    weights = resize_weights(function, 50, 31)
    ours = np.einsum("rh,hwc->rwc", weights, image.astype(np.float64))
    assert np.abs(ours - function(image, Size(8, 31)).astype(np.float64)).max() < 2.5


def test_an_equal_size_needs_no_weights():
    assert resize_weights(lookup("resize", "pillow-bilinear"), 40, 40) is None


def test_colours_of_the_deployment_are_seen_and_the_gradient_passes(tmp_path):
    machine = machine_of(tmp_path, PLAIN, colour="nv12")
    image = np.random.default_rng(3).integers(0, 256, (32, 48, 3)).astype(np.uint8)
    pixels = torch.tensor(image[None], dtype=torch.float32, requires_grad=True)
    ours = preparation_of(machine, Size(48, 32))(pixels)
    real = Judge(machine, Rule()).prepared(image).tensor.reshape(1, -1)
    assert np.abs(ours.detach().numpy() - real).max() < 1e-6
    ours.sum().backward()
    assert torch.allclose(pixels.grad, torch.full_like(pixels, 1 / 255))


def test_boxes_go_back_as_the_frame_says(tmp_path):
    ready = preparation_of(machine_of(tmp_path, INPUTS["letterbox"]), Size(90, 70))
    boxes = np.array([[3.0, 4.0, 30.0, 20.0], [-5.0, 0.0, 60.0, 40.0]])
    ours = ready.boxes_to_image(torch.tensor(boxes)).numpy()
    assert np.allclose(ours, ready.frame.to_original(boxes))


def test_a_quantised_model_has_no_gradients_which_is_said_in_one_line(tmp_path):
    path = making.quantised_detector(tmp_path)
    with pytest.raises(NoGradients) as caught:
        open_victim(load_model(path))
    assert str(caught.value) == (
        f"{path}: the model is already quantised (2 QuantizeLinear nodes; 1 of 1 layers), so it has no "
        "gradients; use --black-box, or attack the float model with --unseen eight.onnx"
    )
