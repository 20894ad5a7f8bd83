"""A victim: candidates as its head finds them, the right gradient, and a model that stays as it was."""

import dataclasses
import hashlib

import numpy as np
import pytest
import torch

from holdfast.attack.gradient.loss import vanish
from holdfast.attack.gradient.transforms import moved
from holdfast.attack.gradient.victim import open_oracle, open_victim, target_of
from holdfast.attack.judge import found_boxes
from holdfast.attack.types import Method, Rule
from holdfast.core.errors import HoldfastError
from holdfast.core.pipeline import pipeline_of
from holdfast.core.types import Boxes
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
    target = target_of(exact, image, boxes)
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
    target = target_of(victim, image, boxes)
    assert target is not None
    assert found_boxes(target.before, target.boxes, victim.rule).all()
    nothing = Boxes(np.array([[0.0, 0.0, 5.0, 5.0]]), np.array([0]))
    assert target_of(victim, image, nothing) is None


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
