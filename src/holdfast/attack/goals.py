"""How far an attack is from its goal, by what a model says alone: its boxes, scores and classes."""

from __future__ import annotations

import numpy as np

from holdfast.attack.types import Goal, Rule, Target
from holdfast.core.types import Detections, Floats
from holdfast.metrics.boxes import iou

NEARLY = (
    0.9  # of the rule's overlap: from here on a detection is taken to still find its target, as in `loss`
)
ALIVE = 0.5  # what a target that stands adds at least: killing one outweighs a little of another
FAR = 6.0  # what a detection that is wanted lacks where none is in sight


def shortfall(goal: Goal, target: Target, after: Detections, rule: Rule) -> float:
    """What the goal still lacks: 0 exactly when it is reached, above that a measure of how much.

    Detections below the rule's score never count, but if the model tells of them they say where to go.
    """
    if goal == "fabricate":
        return _nothing_new(target, after, rule)
    own, other = _standing(target, after, rule), 0.0
    if goal == "mislabel":
        other = _no_other(target, after, rule)
    return own + other


def _odds(scores: Floats, rule: Rule) -> Floats:
    """Log-odds of the scores above the rule's; 0 exactly at it, so that the rule alone says who counts."""

    def logit(p: Floats | float) -> Floats:
        held = np.clip(p, 1e-6, 1 - 1e-6)
        return np.asarray(np.log(held) - np.log1p(-held))

    above = logit(scores) - logit(rule.score)
    return np.where(scores >= rule.score, np.maximum(above, 0.0), np.minimum(above, -1e-9))


def _standing(target: Target, after: Detections, rule: Rule) -> float:
    """Over the targets: odds and overlap of the best detection that still finds each."""
    overlap = iou(target.boxes.xyxy, after.boxes)
    same = target.boxes.classes[:, None] == after.classes[None, :]
    odds = _odds(after.scores, rule)
    near = NEARLY * rule.iou
    live = same & (overlap >= near) & (odds >= 0)
    worth = np.where(live, ALIVE + odds + 2.0 * (overlap - near), 0.0)
    return float(worth.max(axis=1, initial=0.0).sum())


def _no_other(target: Target, after: Detections, rule: Rule) -> float:
    """Over the targets: what the nearest detection of another class lacks in overlap and odds."""
    overlap = iou(target.boxes.xyxy, after.boxes)
    same = target.boxes.classes[:, None] == after.classes[None, :]
    lacks = 4.0 * np.maximum(rule.iou - overlap, 0.0) + np.maximum(-_odds(after.scores, rule), 0.0)
    return float(np.where(same, FAR, np.minimum(lacks, FAR)).min(axis=1, initial=FAR).sum())


def _nothing_new(target: Target, after: Detections, rule: Rule) -> float:
    """What the detection that is nearest to being a new one lacks: of odds, and of distance to an old one."""
    boxes = np.concatenate([target.before.boxes, target.boxes.xyxy])
    classes = np.concatenate([target.before.classes, target.boxes.classes])
    same = after.classes[:, None] == classes[None, :]
    overlap = np.where(same, iou(after.boxes, boxes), 0.0).max(axis=1, initial=0.0)
    old = np.where(overlap >= rule.iou, 0.05 + 8.0 * (overlap - rule.iou), 0.0)
    lacks = old + np.maximum(-_odds(after.scores, rule), 0.0)
    return float(np.minimum(lacks, FAR).min(initial=FAR))
