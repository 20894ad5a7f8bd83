"""The first thing a reader sees: the numbers that matter, and one sentence that says them in words."""

from __future__ import annotations

from typing import Any

from holdfast.evaluate.result import Evaluation
from holdfast.report.parts import Card
from holdfast.report.tables import grouped

# name on the page and meaning of each metric that is known; others appear under their own key
_METRICS: dict[str, tuple[str, str]] = {
    "AP50": ("mAP@.5", "mean over classes of AP at IoU 0.5"),
    "AP": ("mAP@.5:.95", "mean of AP over ten IoU thresholds"),
    "mAP": ("mAP", "mean over classes of AP"),
    "AP75": ("mAP@.75", "mean over classes of AP at IoU 0.75"),
    "top1": ("top-1", "the best answer is the true class"),
    "top5": ("top-5", "the true class is among the best five"),
    "mIoU": ("mean IoU", "mean over classes of TP / (TP + FP + FN)"),
    "pixel_accuracy": ("pixel accuracy", "share of pixels with the right class"),
    "iou_equal": ("IoU × equal", "mean of IoU with the true box, 0 if the class is wrong"),
    "above_half": ("above ½", "share of images with IoU × equal above 0.5"),
    "APs": ("AP small", "true area below 32² pixels"),
    "APm": ("AP medium", "true area 32² to 96² pixels"),
    "APl": ("AP large", "true area above 96² pixels"),
    "AR1": ("AR@1", "recall with one detection per image and class"),
    "AR10": ("AR@10", "recall with ten detections per image and class"),
    "AR100": ("AR@100", "recall with a hundred detections per image and class"),
    "ARs": ("AR small", "recall, true area below 32² pixels"),
    "ARm": ("AR medium", "recall, true area 32² to 96² pixels"),
    "ARl": ("AR large", "recall, true area above 96² pixels"),
}
_ORDER = ("AP50", "AP", "AP75")
_RATES = {
    "precision": ("Precision", "of what it reports is right"),
    "recall": ("Recall", "of what is there is found"),
    "f1": ("F1", "harmonic mean of the two"),
}
_LARGE = 3  # metrics on large cards; precision, recall and F1 follow them


def cards(result: dict[str, Any]) -> tuple[tuple[Card, ...], tuple[Card, ...]]:
    """The large cards and the small ones, from whatever metrics the result has."""
    metrics = {k: v for k, v in result.get("metrics", {}).items() if _plain(v)}
    ordered = [k for k in _ORDER if k in metrics] + [k for k in metrics if k not in _ORDER]
    large = [_card(key, metrics[key], result) for key in ordered[:_LARGE]]
    counted = result.get("at_score", {})
    rates = [
        Card(name, counted[key], f"{note}, at score threshold {counted.get('score', 0):g}")
        for key, (name, note) in _RATES.items()
        if key in counted
    ]
    small = [_card(key, metrics[key], result) for key in ordered[_LARGE:]]
    return (*large, *rates), tuple(small)


def verdict(evaluation: Evaluation) -> str:
    """The result in one sentence."""
    metrics, counted = evaluation.result.get("metrics", {}), evaluation.result.get("at_score", {})
    images, task = len(evaluation.records), evaluation.about.task
    if {"tp", "fp", "fn"} <= counted.keys():
        return _found(counted)
    if task == "classify" and metrics.get("top1") is not None:
        return f"It names the right class of {_of(round(metrics['top1'] * images), images, 'images')}."
    if task == "segment" and metrics.get("pixel_accuracy") is not None:
        return f"It gives {metrics['pixel_accuracy']:.1%} of all pixels the right class."
    if task == "single" and metrics.get("above_half") is not None:
        good = _of(round(metrics["above_half"] * images), images, "images")
        return f"It names the object and covers it by more than half on {good}."
    return f"Evaluated on {grouped(images)} images."


def _found(counted: dict[str, Any]) -> str:
    tp, fp, fn = (int(counted[k]) for k in ("tp", "fp", "fn"))
    found = f"it finds {_of(tp, tp + fn, 'objects')}" if tp + fn else "there is no object to find"
    right = f"{_percent(tp, tp + fp)} of what it reports is right" if tp + fp else "it reports nothing"
    return f"At a score threshold of {counted.get('score', 0):g}, {found}, and {right}."


def _card(key: str, value: float | None, result: dict[str, Any]) -> Card:
    name, note = _METRICS.get(key, (key, ""))
    iou = result.get("at_score", {}).get("iou")
    if key == "mAP" and iou is not None:
        name, note = f"mAP@{iou:g}".replace("@0.", "@."), f"{note} at IoU {iou:g}"
    return Card(name, value, note)


def _plain(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _of(part: int, whole: int, things: str) -> str:
    return f"{grouped(part)} of {grouped(whole)} {things} ({_percent(part, whole)})"


def _percent(part: int, whole: int) -> str:
    """The share in percent; never 100 % unless it is all, never 0 % unless it is none."""
    if not whole:
        return "n/a"
    share = 100 * part / whole
    near = "> 99.9" if part < whole and share > 99.9 else "< 0.1" if part and share < 0.1 else f"{share:.1f}"
    return f"{near.removesuffix('.0')} %"
