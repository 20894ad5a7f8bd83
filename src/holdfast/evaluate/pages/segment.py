"""The page of a segmenter: IoU of classes and of images, confusions, worst images."""

from __future__ import annotations

import numpy as np

from holdfast.core.types import Floats
from holdfast.engine.records import Counted
from holdfast.evaluate.pages.classify import class_bars
from holdfast.evaluate.pages.confusion import confusion_section
from holdfast.evaluate.pages.per_class import class_section
from holdfast.evaluate.result import Evaluation
from holdfast.metrics.classification import segmentation_result
from holdfast.report.charts.histogram import Kind, histogram
from holdfast.report.gallery import MOST, Shot, Worst
from holdfast.report.parts import Figure, Section


def sections(evaluation: Evaluation) -> tuple[list[Section], Worst]:
    """The sections of a segmenter's page, and its worst images."""
    classes = evaluation.about.classes
    records = [r for r in evaluation.records if isinstance(r, Counted)]
    means = np.array([segmentation_result(r.confusion).mean_iou for r in records], np.float64)
    total = (
        np.sum([r.confusion for r in records], axis=0) if records else np.zeros((len(classes),) * 2, np.int64)
    )
    overview = Section("overlap", "Overlap", (class_bars(evaluation, "IoU", "IoU by class"), _images(means)))
    lead = "All pixels of all images; pixels the truth marks as to be ignored are left out."
    confusion = confusion_section(total, classes, lead=lead, unit="pixels", shares=True)
    return [overview, class_section(evaluation.result), confusion], _worst(records, means, classes)


def _images(means: Floats) -> Figure:
    title = "Mean IoU of each image"
    known = means[np.isfinite(means)]
    chart = histogram(Kind("images", "right", known), None, title=title, x_label="mean IoU of the image")
    return Figure(title, chart, "The mean over the classes that occur in the image's truth or answer.")


def _worst(records: list[Counted], means: Floats, classes: tuple[str, ...]) -> Worst:
    order = [i for i in np.argsort(means, kind="stable")[:MOST].tolist() if means[i] < 1.0]
    shots = [
        Shot(records[i].name, records[i].size, (), _said(records[i], float(means[i]), classes)) for i in order
    ]
    definition = (
        "Ranked by mean IoU of the image, lowest first. "
        "A run keeps the counts of pixels, not the masks, so none is drawn."
    )
    return Worst(definition, tuple(shots))


def _said(record: Counted, mean: float, classes: tuple[str, ...]) -> str:
    values = segmentation_result(record.confusion).iou
    known = [i for i in np.argsort(values, kind="stable").tolist() if np.isfinite(values[i])]
    weakest = ", ".join(f"{classes[i]} {values[i]:.2f}" for i in known[:3])
    return f"mean IoU {mean:.3f}; lowest: {weakest}"
