"""What a model says of an image by its own pipeline, and how far an attack is from its goal. No torch."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from holdfast.attack.types import Goal, Rule, Target
from holdfast.core.errors import ModelError
from holdfast.core.frame import place
from holdfast.core.model import Model
from holdfast.core.pipeline import LoadedPipeline, Pipeline, PreparedImage, load_pipeline, pipeline_of
from holdfast.core.types import Bools, Boxes, Detections, Floats, Image, Ints
from holdfast.metrics.boxes import iou

# Some AP rules count a box's last pixel too: a box that misses by so little would be a hit for them.
NEARLY = 0.9  # of the rule's overlap: from here on a detection is taken to still find its target
ALIVE = 0.5  # what a target that stands adds at least: killing one outweighs a little of another
FAR = 6.0  # what a detection that is wanted lacks where none is in sight


@dataclass(frozen=True)
class Judge:
    """A model opened with its pipeline, at the thresholds of a rule."""

    machine: LoadedPipeline
    rule: Rule

    def __call__(self, image: Image) -> Detections:
        """The detections in decoded pixels; every stage after the decoder is that of the pipeline."""
        found = self.machine.predict(self.prepared(image))
        if not isinstance(found, Detections):
            raise ModelError(f"{self.machine.model.name}: expected a detector, got {type(found).__name__}")
        return found

    def prepared(self, image: Image) -> PreparedImage:
        """The tensor and the frame of decoded pixels."""
        machine = self.machine
        wanted = machine.fit(machine.model.card.input)
        small, frame = place(machine.colour(image), wanted, machine.resize)
        return PreparedImage(machine.normalise(small, wanted)[np.newaxis], frame)


def open_judge(
    model: Model, pipeline: Pipeline | None = None, rule: Rule | None = None, threads: int = 1
) -> Judge:
    """The judge of a detector; its card's thresholds give way to the rule's."""
    rule = rule or Rule()
    ruled = replace(model, card=replace(model.card, score=rule.score, nms_iou=rule.nms_iou))
    return Judge(load_pipeline(pipeline or pipeline_of(model.card), ruled, threads), rule)


def found_boxes(found: Detections, boxes: Boxes, rule: Rule) -> Bools:
    """Per true box (n,) whether a detection of its class overlaps it as the rule asks."""
    if not len(found) or not len(boxes):
        return np.zeros(len(boxes), bool)
    overlap = iou(boxes.xyxy, found.boxes)
    same = boxes.classes[:, None] == found.classes[None, :]
    good = same & (overlap >= rule.iou) & (found.scores[None, :] >= rule.score)
    return np.asarray(good.any(axis=1))


def known_boxes(truth: Boxes, to_model: Ints) -> Boxes:
    """The true boxes of classes the model knows, by its own numbers (per class of the data, or -1)."""
    classes = to_model[truth.classes] if len(to_model) else truth.classes
    keep = classes >= 0
    return Boxes(truth.xyxy[keep], classes[keep], truth.crowd[keep], truth.difficult[keep], truth.areas[keep])


def target_in(
    judge: Callable[[Image], Detections], image: Image, boxes: Boxes, rule: Rule, goal: Goal = "vanish"
) -> Target | None:
    """What is to be attacked in the image; None if no true box is found in it and the goal needs one."""
    before = judge(image)
    ours = found_boxes(before, boxes, rule) & ~boxes.crowd
    if not ours.any() and goal != "fabricate":
        return None
    if goal == "vanish":  # all: one that is missed now may be found once its neighbour is not
        ours = ~boxes.crowd
    return Target(image, Boxes(boxes.xyxy[ours], boxes.classes[ours]), before)


def shortfall(goal: Goal, target: Target, after: Detections, rule: Rule) -> float:
    """What the goal still lacks: 0 exactly when it is reached, above that a measure of how much.

    Detections below the rule's score never count, but if the model tells of them they say where to go.
    """
    odds = _odds(after.scores, rule)
    if goal == "fabricate":  # what the detection nearest to a new one lacks: odds, and distance to an old one
        boxes = np.concatenate([target.before.boxes, target.boxes.xyxy])
        classes = np.concatenate([target.before.classes, target.boxes.classes])
        same = after.classes[:, None] == classes[None, :]
        overlap = np.where(same, iou(after.boxes, boxes), -1.0).max(axis=1, initial=-1.0)
        old = np.where(overlap >= rule.iou, 0.05 + 8.0 * (overlap - rule.iou), 0.0)
        return float(np.minimum(old + np.maximum(-odds, 0.0), FAR).min(initial=FAR))
    overlap = iou(target.boxes.xyxy, after.boxes)
    same = target.boxes.classes[:, None] == after.classes[None, :]
    # Over the targets: odds and overlap of the best detection that still finds each.
    near = NEARLY * rule.iou
    live = same & (overlap >= near) & (odds >= 0)
    worth = np.where(live, ALIVE + odds + 2.0 * (overlap - near), 0.0)
    lacks = float(worth.max(axis=1, initial=0.0).sum())
    if goal == "vanish":
        return lacks
    # And what the nearest detection of another class lacks in overlap and odds.
    other = 4.0 * np.maximum(rule.iou - overlap, 0.0) + np.maximum(-odds, 0.0)
    return lacks + float(np.where(same, FAR, np.minimum(other, FAR)).min(axis=1, initial=FAR).sum())


def _odds(scores: Floats, rule: Rule) -> Floats:
    """Log-odds of the scores above the rule's; 0 exactly at it, so that the rule alone says who counts."""

    def logit(p: Floats | float) -> Floats:
        held = np.clip(p, 1e-6, 1 - 1e-6)
        return np.asarray(np.log(held) - np.log1p(-held))

    above = logit(scores) - logit(rule.score)
    return np.where(scores >= rule.score, np.maximum(above, 0.0), np.minimum(above, -1e-9))
