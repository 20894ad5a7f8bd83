"""Held-out figures of an exported model: the deployed pipeline on scenes of seed 0, never trained on."""

from collections.abc import Callable
from typing import Final

import numpy as np

from holdfast.core.errors import DataError
from holdfast.core.model import Model
from holdfast.core.pipeline import LoadedPipeline, load_pipeline, pipeline_of
from holdfast.core.types import Detections, LabelMap, Prediction, Scores
from holdfast.data.signs import scene as signs
from holdfast.metrics.boxes import detection_table, truth_table
from holdfast.metrics.detection import evaluate
from holdfast.metrics.rules import rule_named

HELD_OUT_SEED: Final = 0


def held_out(model: Model, count: int) -> tuple[str, float]:
    """The name of the figure and its value on the first `count` held-out pictures."""
    machine = load_pipeline(pipeline_of(model.card), model)
    name, score = FIGURES[model.card.task]
    return name, score(machine, count)


def mean_ap(machine: LoadedPipeline, count: int) -> float:
    """Mean average precision at IoU 0.5 (COCO rule) on whole scenes."""
    images, classes, boxes, found = [], [], [], []
    for index in range(count):
        scene = signs.scene(HELD_OUT_SEED, index)
        images += [index] * len(scene.boxes)
        boxes.append(scene.boxes)
        classes.append(scene.classes)
        found.append(_detections(_predict(machine, scene.image)))
    truth = truth_table(images, np.concatenate(classes), xyxy=np.concatenate(boxes))
    detections = detection_table(
        np.repeat(np.arange(count), [len(d) for d in found]),
        np.concatenate([d.classes for d in found]),
        np.concatenate([d.scores for d in found]),
        xyxy=np.concatenate([d.boxes for d in found]),
    )
    names = len(machine.model.card.classes)
    return evaluate(truth, detections, rule_named("coco"), images=count, classes=names).mean_ap


def overlap(machine: LoadedPipeline, count: int) -> float:
    """Mean over pictures of one sign of IoU × (group equal)."""
    total = 0.0
    for index in range(count):
        image, box, group = signs.crop_single(HELD_OUT_SEED, index)
        found = _detections(_predict(machine, image))
        if int(found.classes[0]) == group:
            height, width = image.shape[:2]
            total += _iou(found.boxes[0], box * np.array([width, height, width, height]))
    return total / count


def accuracy(machine: LoadedPipeline, count: int) -> float:
    """The share of signs whose best class is right."""
    right = 0
    for index in range(count):
        image, label = signs.crop_classify(HELD_OUT_SEED, index)
        said = _predict(machine, image)
        if not isinstance(said, Scores):
            raise DataError(f"expected a classifier, got {type(said).__name__}")
        right += int(said.values.argmax()) == label
    return right / count


def mean_iou(machine: LoadedPipeline, count: int) -> float:
    """Mean over segments of the IoU of all pixels of the scenes, at their full size."""
    k = len(machine.model.card.classes)
    table = np.zeros((k, k), np.int64)
    for index in range(count):
        scene = signs.scene(HELD_OUT_SEED, index)
        said = _predict(machine, scene.image)
        if not isinstance(said, LabelMap):
            raise DataError(f"expected a segmenter, got {type(said).__name__}")
        pairs = scene.mask.astype(np.int64) * k + said.classes
        table += np.bincount(pairs.reshape(-1), minlength=k * k).reshape(k, k)
    common = np.diag(table)
    return float(np.mean(common / (table.sum(0) + table.sum(1) - common)))


FIGURES: Final[dict[str, tuple[str, Callable[[LoadedPipeline, int], float]]]] = {
    "detect": ("mAP@.5", mean_ap),
    "single": ("mean IoU x group right", overlap),
    "classify": ("top-1", accuracy),
    "segment": ("mIoU", mean_iou),
}


def _predict(machine: LoadedPipeline, image: np.ndarray) -> Prediction:
    """What the model says of a picture that goes through JPEG as deployed."""
    return machine.predict(machine.prepare(signs.encode(image)))


def _detections(said: Prediction) -> Detections:
    if not isinstance(said, Detections):
        raise DataError(f"expected a detector, got {type(said).__name__}")
    return said


def _iou(first: np.ndarray, second: np.ndarray) -> float:
    """Intersection over union of two boxes (4,) xyxy."""
    sides = np.minimum(first[2:], second[2:]) - np.maximum(first[:2], second[:2])
    common = float(np.clip(sides, 0, None).prod())
    areas = sum(float(np.clip(box[2:] - box[:2], 0, None).prod()) for box in (first, second))
    return common / (areas - common)
