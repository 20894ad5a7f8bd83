"""The numbers of an evaluation, from its records, as plain values for tables, JSON and the page."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.core.errors import InputError
from holdfast.core.model import Task
from holdfast.core.types import Boxes, Detections, Floats, Ints, no_detections
from holdfast.engine.records import ClassificationRecord, DetectionRecord, Record, SegmentationRecord
from holdfast.metrics.boxes import (
    DetectionTable,
    TruthTable,
    detection_table,
    single_result,
    single_values,
    truth_table,
)
from holdfast.metrics.classification import classification_result, segmentation_result
from holdfast.metrics.coco import KEYS, coco_numbers
from holdfast.metrics.cocofile import read_predictions, read_truth
from holdfast.metrics.curves import average_precision
from holdfast.metrics.detection import Counts, class_curves, counts_at, mean_of_present
from holdfast.metrics.matching import match, prepare
from holdfast.metrics.rules import APRule, rule_named
from holdfast.report.tables import Column, Table, many, table_of

NO_BOXES = Boxes(np.zeros((0, 4)), np.zeros(0, np.int64))


@dataclass(frozen=True)
class Settings:
    """The rule and the thresholds the numbers are computed with."""

    rule: APRule
    iou: float = 0.5
    score: float = 0.5

    @staticmethod
    def from_plain(plain: Mapping[str, Any]) -> Settings:
        """The settings that a manifest states."""
        return Settings(rule_named(plain["rule"]), plain["iou"], plain["score"])


def tables(records: Sequence[DetectionRecord]) -> tuple[TruthTable, DetectionTable]:
    """All true boxes and all detections of the records as columns; image i is record i."""
    images = np.arange(-1, len(records))  # −1: an empty image, for the types of columns without records
    truths: list[Boxes] = [NO_BOXES, *(r.truth for r in records)]
    xyxy, classes, crowd, difficult, areas = (
        np.concatenate([getattr(boxes, column.name) for boxes in truths]) for column in fields(Boxes)
    )
    image = np.repeat(images, [len(boxes) for boxes in truths])
    truth = truth_table(image, classes, xyxy=xyxy, area=areas, crowd=crowd, difficult=difficult)
    outputs = [no_detections(), *(r.detections for r in records)]
    xyxy, scores, classes = (
        np.concatenate([getattr(boxes, column.name) for boxes in outputs]) for column in fields(Detections)
    )
    image = np.repeat(images, [len(boxes) for boxes in outputs])
    return truth, detection_table(image, classes, scores, xyxy=xyxy)


def score_records(
    records: Sequence[Record], task: Task, classes: tuple[str, ...], settings: Settings
) -> dict[str, Any]:
    """The result of an evaluation: `task`, `rule`, `metrics`, `per_class` and, for detectors, `at_score`."""
    scorers: dict[str, tuple[type, Callable[..., dict[str, Any]]]] = {
        "detect": (DetectionRecord, lambda records, *how: score_tables(*tables(records), len(records), *how)),
        "single": (DetectionRecord, _single),
        "classify": (ClassificationRecord, _classify),
        "segment": (SegmentationRecord, _segment),
    }
    kind, scorer = scorers[task]
    if not all(isinstance(r, kind) for r in records):
        raise InputError(
            f"expected records of the task {task}, got {sorted({type(r).__name__ for r in records})}"
        )
    return {"task": task, "images": len(records), **scorer(records, classes, settings)}


def score_tables(
    truth: TruthTable, detections: DetectionTable, images: int, classes: tuple[str, ...], settings: Settings
) -> dict[str, Any]:
    """Average precision by the rule, and counts per class at the score and IoU thresholds."""
    prepared = prepare(truth, detections, settings.rule, images)
    known: dict[str, Any] = {"images": images, "classes": len(classes), "prepared": prepared}
    matches = match(truth, detections, settings.rule, settings.iou, **known)
    counts = counts_at(matches, settings.score, settings.rule)
    if settings.rule.name == "coco":
        coco = coco_numbers(truth, detections, **known)
        metrics = {key: _number(coco.numbers[key]) for key in KEYS}
        per_class = [dict(zip(KEYS, map(_number, row), strict=True)) for row in coco.per_class]
    else:
        curves = class_curves(matches, settings.rule)
        ap = np.array([average_precision(c, settings.rule.interpolation) for c in curves], dtype=np.float64)
        metrics = {"mAP": _number(mean_of_present(ap))}
        per_class = [{"AP": _number(value)} for value in ap.tolist()]
    boxes = np.bincount(detections.category, minlength=len(classes))
    columns = (classes, per_class, matches.positives.tolist(), boxes.tolist(), _count_columns(counts))
    rows = [
        {"class": name, **numbers, "truth": truths, "found": found, **row}
        for name, numbers, truths, found, row in zip(*columns, strict=True)
    ]
    at_score = {"score": settings.score, "iou": settings.iou, **_count_columns(counts.total())[0]}
    return {"rule": str(settings.rule), "metrics": metrics, "per_class": rows, "at_score": at_score}


def _count_columns(counts: Counts) -> list[dict[str, Any]]:
    columns: dict[str, list[Any]] = {name: getattr(counts, name).tolist() for name in ("tp", "fp", "fn")}
    for name in ("precision", "recall", "f1"):
        columns[name] = [_number(share) for share in getattr(counts, name)]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _single(
    records: Sequence[DetectionRecord], classes: tuple[str, ...], settings: Settings
) -> dict[str, Any]:
    values, labels = single_outputs(records)

    def numbers(part: Floats) -> dict[str, float | None]:
        return {key: _number(value) for key, value in single_result(part).items()}

    parts = [(name, values[labels == i]) for i, name in enumerate(classes)]
    return {
        "rule": "single: mean over images of IoU(box, truth) × [class equal]; one object per image",
        "metrics": numbers(values),
        "per_class": [{"class": name, "truth": len(part), **numbers(part)} for name, part in parts],
    }


def single_outputs(records: Sequence[DetectionRecord]) -> tuple[Floats, Ints]:
    """Per image IoU × [class equal] of the one box with the one true box (0 without a box), and its class."""
    for record in records:
        if len(record.truth) != 1:
            raise InputError(
                f"{record.name}: expected one true box for a single-object detector, got {len(record.truth)}"
            )
    boxes = [r.detections.boxes[0] if len(r.detections) else np.zeros(4) for r in records]
    classes = [r.detections.classes[0] if len(r.detections) else -1 for r in records]
    labels = np.array([r.truth.classes[0] for r in records], np.int64)
    return single_values(boxes, classes, [r.truth.xyxy[0] for r in records], labels), labels


def true_class_ranks(records: Sequence[ClassificationRecord]) -> tuple[Ints, Ints]:
    """Per image the place of the true class among the best (their number if not there), and the class."""
    labels = np.array([r.label for r in records], np.int64)
    ranks = [[*r.top.tolist(), r.label].index(r.label) for r in records]
    return np.array(ranks, np.int64), labels


def _classify(
    records: Sequence[ClassificationRecord], classes: tuple[str, ...], settings: Settings
) -> dict[str, Any]:
    place, labels = true_class_ranks(records)
    ks = (1, 5) if len(classes) > 5 else (1,)
    totals = classification_result(place, labels, len(classes), ks)
    per_class = [
        {"class": name, "truth": int(totals.images[i]), "top1": _number(totals.per_class[i])}
        for i, name in enumerate(classes)
        if totals.images[i]
    ]
    metrics = {f"top{k}": _number(value) for k, value in totals.top.items()}
    rule = "top-k: the true class is among the k highest scores; ties in the order of classes"
    return {"rule": rule, "metrics": metrics, "per_class": per_class}


def _segment(
    records: Sequence[SegmentationRecord], classes: tuple[str, ...], settings: Settings
) -> dict[str, Any]:
    total = np.sum([r.confusion for r in records], axis=0)
    totals = segmentation_result(total)
    pixels = total.sum(axis=1)
    columns = zip(classes, totals.iou, pixels, strict=True)
    per_class = [{"class": name, "IoU": _number(iou), "pixels": int(count)} for name, iou, count in columns]
    metrics = {"mIoU": _number(totals.mean_iou), "pixel_accuracy": _number(totals.pixel_accuracy)}
    over = "mean over classes; classes absent in ground truth and prediction are skipped"
    rule = f"mIoU: TP / (TP + FP + FN) over all pixels, {over}"
    return {"rule": rule, "metrics": metrics, "per_class": per_class}


def _number(value: float) -> float | None:
    """The number, or None where there is nothing to measure (−1 in COCO's numbers, NaN elsewhere)."""
    value = float(value)
    return None if math.isnan(value) or value < 0 else value


def score_files(truth: Path, predictions: Path, settings: Settings) -> dict[str, Any]:
    """The result of the predictions against the truth, of the form `score_records` gives."""
    true = read_truth(truth)
    boxes = read_predictions(predictions, true)
    result = score_tables(true.table, boxes, true.images, true.class_names, settings)
    return {"task": "detect", "images": true.images, **result}


MAIN_COLUMNS = (
    "class", "AP", "AP50", "IoU", "iou_equal", "top1", "top5", "truth", "tp", "fp", "fn", "pixels",
    "precision", "recall", "f1",
)  # fmt: skip
HEADINGS = {"truth": "objects", "tp": "TP", "fp": "FP", "fn": "FN", "f1": "F1"}  # where they are not the key
RANKED_BY = ("AP", "top1", "IoU", "iou_equal")  # the number that ranks classes; a result has one of them
WORST = 10  # classes that are printed by default


def headline(result: Mapping[str, Any]) -> Table:
    """The metrics of the whole dataset, one row each."""
    at = result.get("at_score")
    names = {"mAP": f"mAP at IoU {at['iou']:g}"} if at else {}
    rows = [[names.get(name, name), value] for name, value in result["metrics"].items()]
    caption = f"{many(result['images'], 'image')}. Rule {result['rule']}"
    return Table([Column("metric"), Column("value", 4)], rows, caption)


def counts_table(result: Mapping[str, Any]) -> Table | None:
    """Precision, recall and counts at the score and IoU thresholds, of detectors."""
    at = result.get("at_score")
    if not at:
        return None
    heads = [*(Column(name, 4) for name in ("precision", "recall", "F1"))]
    row = [at[key] for key in ("precision", "recall", "f1", "tp", "fp", "fn")]
    caption = f"At score threshold {at['score']:g} and IoU threshold {at['iou']:g}"
    return Table([*heads, "true positives", "false positives", "missed objects"], [row], caption)


def class_table(result: Mapping[str, Any], *, top: int | None = WORST, all_columns: bool = False) -> Table:
    """The worst `top` classes that have ground truth, the lowest first; None: all classes, in their order.

    `all_columns` adds the columns that are not among the main ones.
    """
    rows = list(result["per_class"])
    key = next((k for k in RANKED_BY if any(k in row for row in rows)), "")
    caption = "By class"
    if top is not None and key:
        worst = sorted((r for r in rows if r.get(key) is not None), key=lambda r: r[key])[:top]
        more = "" if len(worst) == len(rows) else "; --all-classes prints all"
        caption = f"Worst {many(len(worst), 'class', 'classes')} of {len(rows)} by {key}{more}"
        rows = worst
    if not all_columns:
        keys = [k for k in MAIN_COLUMNS if any(k in row for row in rows)]
        rows = [{HEADINGS.get(k, k): row.get(k) for k in keys} for row in rows]
    return table_of(rows, caption, digits=3)


def csv_table(result: Mapping[str, Any]) -> Table:
    """Every number of every class, after a row of all classes together."""
    at = {k: v for k, v in result.get("at_score", {}).items() if k not in ("score", "iou")}
    return table_of([{"class": "all classes", **result["metrics"], **at}, *result["per_class"]], digits=3)


def as_json(result: Mapping[str, Any]) -> dict[str, Any]:
    """The result with the metrics at the top and `per_class` by name, as `--json` writes it."""
    per_class = {row["class"]: {k: v for k, v in row.items() if k != "class"} for row in result["per_class"]}
    rest = {k: v for k, v in result.items() if k not in ("metrics", "per_class")}
    return {**result["metrics"], "per_class": per_class, **rest}
