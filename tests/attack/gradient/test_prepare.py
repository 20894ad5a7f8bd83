"""The differentiable preparation against the pipeline's own tensor."""

import dataclasses

import numpy as np
import pytest
import torch

from holdfast.attack.gradient.prepare import preparation_of, resize_weights
from holdfast.attack.judge import Judge
from holdfast.attack.types import Rule
from holdfast.core.model import Card, Head, Input, Model
from holdfast.core.pipeline import Pipeline, open_machine
from holdfast.core.registry import lookup
from holdfast.core.types import Size

PLAIN = Input(Size(48, 32), scale=1 / 255)


def machine_of(tmp_path, wanted, **stages):
    card = Card("detect", wanted, Head("yolox"), ("a",))
    model = Model("m", tmp_path / "m.onnx", card, "0")
    return open_machine(Pipeline(infer=lambda _model, _threads: dict, **stages), model)


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
