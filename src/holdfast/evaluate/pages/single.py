"""The page of a single-object detector: overlap, classes, confusions, worst images."""

from __future__ import annotations

import numpy as np

from holdfast.core.types import Bools, Floats
from holdfast.engine.records import Found
from holdfast.evaluate.pages.classify import class_bars
from holdfast.evaluate.pages.confusion import confusion_section
from holdfast.evaluate.pages.per_class import class_section
from holdfast.evaluate.result import Evaluation
from holdfast.evaluate.score import single_outputs
from holdfast.metrics.boxes import iou
from holdfast.report.charts.histogram import Kind, histogram
from holdfast.report.gallery import MOST, Mark, Shot, Worst
from holdfast.report.parts import Figure, Section


def sections(evaluation: Evaluation) -> tuple[list[Section], Worst]:
    """The sections of a single-object detector's page, and its worst images."""
    classes = evaluation.about.classes
    records = [r for r in evaluation.records if isinstance(r, Found)]
    values, labels = single_outputs(records)
    said = np.array([_said(r) for r in records], np.int64)
    overlap = np.array([_overlap(r) for r in records], np.float64)
    bars = class_bars(evaluation, "iou_equal", "IoU × equal by class")
    overview = Section("overlap", "Overlap", (_overlaps(overlap, said == labels), bars))
    counts = np.zeros((len(classes), len(classes) + 1), np.int64)
    np.add.at(counts, (labels, said), 1)
    nothing = "nothing" if counts[:, -1].any() else ""
    lead = "The one object of each image."
    confusion = confusion_section(counts, classes, lead=lead, unit="images", extra=("", nothing))
    worst = _worst(records, values, overlap, classes)
    return [overview, class_section(evaluation.result), confusion], worst


def _said(record: Found) -> int:
    """The class of the one detection, or −1 (the last column) without one."""
    return int(record.detections.classes[0]) if len(record.detections) else -1


def _overlap(record: Found) -> float:
    """IoU of the one detection with the true box, whatever its class."""
    return float(iou(record.detections.boxes[:1], record.truth.xyxy)[0, 0]) if len(record.detections) else 0.0


def _overlaps(overlap: Floats, equal: Bools) -> Figure:
    title = "IoU of the box with the true box"
    right, wrong = Kind("right class", "right", overlap[equal]), Kind("wrong class", "wrong", overlap[~equal])
    chart = histogram(right, wrong, title=title, x_label="IoU", height=360.0)
    return Figure(title, chart, "One box an image, by whether its class is right; a wrong class counts as 0.")


def _worst(records: list[Found], values: Floats, overlap: Floats, classes: tuple[str, ...]) -> Worst:
    order = [i for i in np.lexsort((overlap, values))[:MOST].tolist() if values[i] < 1.0]
    shots = [_shot(records[i], float(values[i]), float(overlap[i]), classes) for i in order]
    return Worst("Ranked by IoU × [class equal], lowest first; equal ones by IoU.", tuple(shots))


def _shot(record: Found, value: float, overlap: float, classes: tuple[str, ...]) -> Shot:
    true, found = int(record.truth.classes[0]), _said(record)
    marks = [Mark.of(record.truth.xyxy[0], "truth" if found >= 0 else "missed", classes[true])]
    said = "nothing found"
    if found >= 0:
        name = f"{classes[found]} {record.detections.scores[0]:.2f}"
        marks.append(Mark.of(record.detections.boxes[0], "right" if found == true else "wrong", name))
        said = f"IoU {overlap:.3f}, {'right' if found == true else 'wrong'} class"
    return Shot(record.name, record.size, tuple(marks), f"IoU × equal {value:.3f}: {said}")
