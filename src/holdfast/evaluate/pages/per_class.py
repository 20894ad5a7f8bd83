"""The table of all classes, from whatever columns the result has."""

from __future__ import annotations

from operator import methodcaller
from typing import Any

from holdfast.report.parts import Figure, Section, scroll
from holdfast.report.tables import Column, Table, to_html

_NOTES = {
    "AP": "average precision by the rule above",
    "AP50": "average precision at IoU 0.5",
    "AP75": "average precision at IoU 0.75",
    "truth": "true objects of this class",
    "found": "detections of this class at any score",
    "tp": "right detections at the score threshold",
    "fp": "wrong detections at the score threshold",
    "fn": "true objects missed at the score threshold",
    "precision": "tp / (tp + fp)",
    "recall": "tp / (tp + fn)",
    "f1": "2 tp / (2 tp + fp + fn)",
    "IoU": "TP / (TP + FP + FN) over all pixels",
    "pixels": "true pixels of this class",
    "top1": "share whose best answer is right",
    "iou_equal": "mean of IoU with the true box, 0 if the class is wrong",
    "above_half": "share of images with IoU × equal above 0.5",
    "top5": "share with the true class among the best five",
}
_NAMES = {
    "tp": "TP",
    "fp": "FP",
    "fn": "FN",
    "f1": "F1",
    "top1": "top-1",
    "top5": "top-5",
    "iou_equal": "IoU × equal",
    "above_half": "above ½",
}
_FIRST = ("class", "AP", "AP50", "AP75", "truth", "found", "tp", "fp", "fn", "precision", "recall", "f1")


def class_table(result: dict[str, Any]) -> Table:
    """One row a class; the columns people read first come first, the others as the result has them."""
    rows = result.get("per_class", [])
    keys: list[str] = list(dict.fromkeys(key for row in rows for key in row))
    ordered: list[str] = [k for k in _FIRST if k in keys] + [k for k in keys if k not in _FIRST]
    columns = [
        Column(_NAMES.get(key, key), get=methodcaller("get", key), note=_NOTES.get(key, ""))
        for key in ordered
    ]
    return Table.of(rows, columns)


def class_section(result: dict[str, Any], lead: str = "") -> Section:
    """The section with the table of all classes; a click on a heading sorts by it."""
    table = class_table(result)
    body = scroll(to_html(table), "Numbers per class")
    note = "Click a heading to sort; n/a: there is nothing to measure."
    return Section("classes", "Class by class", (Figure("", body, note, wide=True),), lead)
