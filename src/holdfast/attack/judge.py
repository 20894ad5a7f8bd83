"""What a model says of an image by its own pipeline, and which true boxes it thereby finds. No torch here."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from holdfast.attack.types import Goal, Rule, Target
from holdfast.core.errors import ModelError
from holdfast.core.frame import place
from holdfast.core.model import Model
from holdfast.core.pipeline import Machine, Pipeline, Prepared, open_machine, pipeline_of
from holdfast.core.types import Bools, Boxes, Detections, Image
from holdfast.metrics.boxes import iou


@dataclass(frozen=True)
class Judge:
    """A model opened with its pipeline, at the thresholds of a rule."""

    machine: Machine
    rule: Rule

    def __call__(self, image: Image) -> Detections:
        """What the model says of decoded pixels: every stage behind the decoder is the pipeline's own."""
        found = self.machine.predict(self.prepared(image))
        if not isinstance(found, Detections):
            raise ModelError(f"{self.machine.model.name}: expected a detector, got {type(found).__name__}")
        return found

    def prepared(self, image: Image) -> Prepared:
        """The tensor and the frame of decoded pixels."""
        machine = self.machine
        wanted = machine.fit(machine.model.card.input)
        small, frame = place(machine.colour(image), wanted, machine.resize)
        return Prepared(machine.normalise(small, wanted)[np.newaxis], frame)


def open_judge(
    model: Model, pipeline: Pipeline | None = None, rule: Rule | None = None, threads: int = 1
) -> Judge:
    """The judge of a detector; its card's thresholds give way to the rule's."""
    if model.card.task not in ("detect", "single"):
        raise ModelError(f"{model.name}: expected a detector, got a model to {model.card.task}")
    rule = rule or Rule()
    ruled = dataclasses.replace(model, card=replace(model.card, score=rule.score, nms_iou=rule.nms_iou))
    return Judge(open_machine(pipeline or pipeline_of(model.card), ruled, threads), rule)


def found_boxes(found: Detections, boxes: Boxes, rule: Rule) -> Bools:
    """Per true box (n,) whether a detection of its class overlaps it as the rule asks."""
    if not len(found) or not len(boxes):
        return np.zeros(len(boxes), bool)
    overlap = iou(boxes.xyxy, found.boxes)
    same = boxes.classes[:, None] == found.classes[None, :]
    good = same & (overlap >= rule.iou) & (found.scores[None, :] >= rule.score)
    result: Bools = good.any(axis=1)
    return result


def target_in(
    judge: Callable[[Image], Detections], image: Image, boxes: Boxes, rule: Rule, goal: Goal = "vanish"
) -> Target | None:
    """What is to be attacked in the image; None if no true box is found in it and the goal needs one.

    To vanish, all true boxes: one that is missed now may be found once its neighbour is not. For other goals
    those that are found; something new can be made to appear where there is none.
    """
    before = judge(image)
    ours = found_boxes(before, boxes, rule) & ~boxes.crowd
    if not ours.any() and goal != "fabricate":
        return None
    if goal == "vanish":
        ours = ~boxes.crowd
    return Target(image, Boxes(boxes.xyxy[ours], boxes.classes[ours]), before)
