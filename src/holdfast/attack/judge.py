"""Detections of a model through its own pipeline, and the distance of an attack from its goal. No torch."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from holdfast.attack.types import Goal, Rule, Target
from holdfast.core.errors import ModelError
from holdfast.core.model import Model
from holdfast.core.pipeline import LoadedPipeline, Pipeline, PreparedImage, load_pipeline, pipeline_of
from holdfast.core.types import Bools, Boxes, Detections, Floats, Image, Ints
from holdfast.metrics.boxes import iou

# Factor on the IoU threshold from which a detection still counts as a match: some AP rules include a box's
# last pixel, and match a detection slightly below the threshold.
NEARLY = 0.9
ALIVE = 0.5  # minimum loss of a detected target: hiding one outweighs small progress on another
FAR = 6.0  # loss of a missing detection if there is none nearby


@dataclass(frozen=True)
class Judge:
    """A model opened with its pipeline, at the thresholds of a rule."""

    machine: LoadedPipeline
    rule: Rule

    def __call__(self, image: Image) -> Detections:
        """The detections of an image of decoded pixels, through every stage after the decoder."""
        detections = self.machine.predict(self.prepared(image))
        if not isinstance(detections, Detections):
            name = self.machine.model.name
            raise ModelError(f"{name}: expected a detector, got {type(detections).__name__}")
        return detections

    def prepared(self, image: Image) -> PreparedImage:
        """The tensor and the frame of decoded pixels."""
        return self.machine.prepare_pixels(image)


def open_judge(
    model: Model, pipeline: Pipeline | None = None, rule: Rule | None = None, threads: int = 1
) -> Judge:
    """The judge of a detector, with the rule's thresholds instead of the card's."""
    rule = rule or Rule()
    ruled = replace(model, card=replace(model.card, score=rule.score, nms_iou=rule.nms_iou))
    return Judge(load_pipeline(pipeline or pipeline_of(model.card), ruled, threads), rule)


def found_boxes(detections: Detections, boxes: Boxes, rule: Rule) -> Bools:
    """Per true box (n,): whether a detection of its class matches it by the rule."""
    if not len(detections) or not len(boxes):
        return np.zeros(len(boxes), bool)
    overlap = iou(boxes.xyxy, detections.boxes)
    same = boxes.classes[:, None] == detections.classes[None, :]
    good = same & (overlap >= rule.iou) & (detections.scores[None, :] >= rule.score)
    return np.asarray(good.any(axis=1))


def known_boxes(truth: Boxes, to_model: Ints) -> Boxes:
    """The true boxes of the model's classes, by its class numbers; `to_model` maps other classes to -1."""
    classes = to_model[truth.classes] if len(to_model) else truth.classes
    keep = classes >= 0
    return Boxes(truth.xyxy[keep], classes[keep], truth.crowd[keep], truth.difficult[keep], truth.areas[keep])


def target_in(
    judge: Callable[[Image], Detections], image: Image, boxes: Boxes, rule: Rule, goal: Goal = "vanish"
) -> Target | None:
    """The target of the attack; None if no true box is detected and the goal needs one."""
    before = judge(image)
    targets = found_boxes(before, boxes, rule) & ~boxes.crowd
    if not targets.any() and goal != "fabricate":
        return None
    if goal == "vanish":  # all: a missed box may be detected once its neighbour is hidden
        targets = ~boxes.crowd
    return Target(image, Boxes(boxes.xyxy[targets], boxes.classes[targets]), before)


def shortfall(goal: Goal, target: Target, after: Detections, rule: Rule) -> float:
    """Distance from the goal: 0 exactly when it is reached, larger the further away.

    Detections below the rule's score never count as detected, but they guide the search.
    """
    odds = _odds(after.scores, rule)
    if goal == "fabricate":  # of the detection nearest to a new one: missing odds, overlap with a known one
        boxes = np.concatenate([target.before.boxes, target.boxes.xyxy])
        classes = np.concatenate([target.before.classes, target.boxes.classes])
        same = after.classes[:, None] == classes[None, :]
        overlap = np.where(same, iou(after.boxes, boxes), -1.0).max(axis=1, initial=-1.0)
        near_known = np.where(overlap >= rule.iou, 0.05 + 8.0 * (overlap - rule.iou), 0.0)
        return float(np.minimum(near_known + np.maximum(-odds, 0.0), FAR).min(initial=FAR))
    overlap = iou(target.boxes.xyxy, after.boxes)
    same = target.boxes.classes[:, None] == after.classes[None, :]
    # Per target: odds and overlap of the best detection that still matches it.
    near = NEARLY * rule.iou
    live = same & (overlap >= near) & (odds >= 0)
    losses = np.where(live, ALIVE + odds + 2.0 * (overlap - near), 0.0)
    total = float(losses.max(axis=1, initial=0.0).sum())
    if goal == "vanish":
        return total
    # Plus the missing overlap and odds of the nearest detection of another class.
    other = 4.0 * np.maximum(rule.iou - overlap, 0.0) + np.maximum(-odds, 0.0)
    return total + float(np.where(same, FAR, np.minimum(other, FAR)).min(axis=1, initial=FAR).sum())


def _odds(scores: Floats, rule: Rule) -> Floats:
    """Log-odds of the scores relative to the rule's score; exactly 0 at the threshold."""

    def logit(p: Floats | float) -> Floats:
        clipped = np.clip(p, 1e-6, 1 - 1e-6)
        return np.asarray(np.log(clipped) - np.log1p(-clipped))

    above = logit(scores) - logit(rule.score)
    return np.where(scores >= rule.score, np.maximum(above, 0.0), np.minimum(above, -1e-9))
