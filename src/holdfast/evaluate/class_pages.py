"""The sections of classifiers, single-object detectors and segmenters, and the class table of all pages."""

from collections.abc import Sequence
from operator import methodcaller
from typing import Any

import numpy as np

from holdfast.core.types import Ints
from holdfast.engine.records import ClassificationRecord, DetectionRecord, SegmentationRecord
from holdfast.evaluate.result import Evaluation
from holdfast.evaluate.score import single_outputs, true_class_ranks
from holdfast.metrics.boxes import iou
from holdfast.metrics.classification import segmentation_result
from holdfast.report.charts.bars import Bar, bar_chart
from holdfast.report.charts.histogram import Kind, histogram
from holdfast.report.charts.matrix import matrix_chart
from holdfast.report.gallery import MOST, GalleryImage, Mark, WorstImages
from holdfast.report.parts import Figure, Section, scroll
from holdfast.report.tables import Column, Table, to_html

# Heading and description of each known column; others appear under their own key.
_COLUMNS = {
    "AP": ("AP", "average precision by the rule of this page"),
    "AP50": ("AP50", "average precision at IoU 0.5"),
    "AP75": ("AP75", "average precision at IoU 0.75"),
    "truth": ("objects", "true objects of this class"),
    "found": ("detections", "detections of this class at any score"),
    "tp": ("TP", "true positives at the score threshold"),
    "fp": ("FP", "false positives at the score threshold"),
    "fn": ("FN", "true objects missed at the score threshold"),
    "precision": ("precision", "TP / (TP + FP)"),
    "recall": ("recall", "TP / (TP + FN)"),
    "f1": ("F1", "2 TP / (2 TP + FP + FN)"),
    "IoU": ("IoU", "TP / (TP + FP + FN) over all pixels"),
    "pixels": ("pixels", "true pixels of this class"),
    "top1": ("top-1", "share of images whose top-1 class is correct"),
    "iou_equal": ("IoU × class", "mean IoU with the true box, 0 if the class is wrong"),
    "above_half": ("above 0.5", "share of images with IoU × class above 0.5"),
    "top5": ("top-5", "share of images with the true class among the top five"),
}
_FIRST = ("class", "AP", "AP50", "AP75", "truth", "found", "tp", "fp", "fn", "precision", "recall", "f1")
MOST_CLASSES = 100  # a larger matrix is cut to the classes with the most errors
_MOST_PAIRS = 12


def class_section(result: dict[str, Any], lead: str = "") -> Section:
    """The table of all classes, the main columns first."""
    rows = result.get("per_class", [])
    keys: list[str] = list(dict.fromkeys(key for row in rows for key in row))
    keys.sort(key=lambda key: _FIRST.index(key) if key in _FIRST else len(_FIRST))  # the sort is stable
    columns = []
    for key in keys:
        name, note = _COLUMNS.get(key, (key, ""))
        columns.append(Column(name, get=methodcaller("get", key), note=note))
    body = scroll(to_html(Table.of(rows, columns)), "Numbers per class")
    note = "Click a heading to sort. n/a: the class has no ground truth."
    return Section("classes", "Classes", (Figure("", body, note, wide=True),), lead)


def confusion_section(
    counts: Ints,
    classes: Sequence[str],
    *,
    lead: str,
    unit: str,
    extra: tuple[str, str] = ("", ""),
    shares: bool = False,
) -> Section:
    """Matrix and list of a table of true class (row) against prediction (column).

    `extra` names a last row and a last column that are not classes, where the table has them.
    """
    drawn, note = _drawn_classes(counts, len(classes))
    places = [drawn + ([len(classes)] if name else []) for name in extra]
    rows, columns = ([classes[i] for i in drawn] + ([name] if name else []) for name in extra)
    title = "Confusion matrix"
    table, known = counts[np.ix_(*places)], len(drawn)
    desc = f"{len(rows)} rows (ground truth) by {len(columns)} columns (prediction), in {unit}."
    chart = matrix_chart(table, rows, columns, title=title, desc=desc, classes=known, shares=shares)
    numbers = "percent of the row" if shares else unit
    reading = f"Rows: ground truth. Columns: prediction. Numbers: {numbers}. Colour: share of the row."
    wide = len(columns) > 7  # a small one leaves room for the list next to it
    matrix = Figure(title, scroll(chart, title), f"{reading} {note}".strip(), wide)
    pairs = _frequent_confusions(counts, classes, unit, wide)
    return Section("confusion", "Confusions", (matrix, *pairs), lead)


def _drawn_classes(counts: Ints, classes: int) -> tuple[list[int], str]:
    """The classes that are drawn: those that occur, and of many those with the most errors."""
    total = counts[:classes].sum(axis=1) + counts[:, :classes].sum(axis=0)
    wrong = total - 2 * np.diagonal(counts)[:classes]
    present = np.flatnonzero(total > 0)
    chosen = np.sort(present[np.argsort(-wrong[present], kind="stable")[:MOST_CLASSES]])
    notes = []
    if len(chosen) < len(present):
        notes.append(f"Only the {MOST_CLASSES} classes with the most errors are drawn.")
    if len(present) < classes:
        absent = classes - len(present)
        notes.append(f"{absent} classes without ground truth and predictions are not drawn.")
    return chosen.tolist(), " ".join(notes)


def _frequent_confusions(counts: Ints, classes: Sequence[str], unit: str, wide: bool) -> tuple[Figure, ...]:
    n = len(classes)
    wrong = counts[:n, :n].copy()
    np.fill_diagonal(wrong, 0)
    total = counts[:n].sum(axis=1)
    most = [divmod(int(k), n) for k in np.argsort(-wrong, axis=None, kind="stable")[:_MOST_PAIRS]]
    rows = [[classes[i], classes[j], wrong[i, j], wrong[i, j] / total[i]] for i, j in most if wrong[i, j]]
    if not rows:
        return ()
    title = "Most frequent confusions"
    share = Column("share", note=f"share of the {unit} of the true class")
    body = to_html(Table(["true class", "predicted class", unit, share], rows))
    return (Figure(title, scroll(body, title), wide=wide),)


def classify_sections(evaluation: Evaluation) -> tuple[list[Section], WorstImages]:
    """The sections of a classifier's page, and its worst images."""
    classes = evaluation.about.classes
    records = [r for r in evaluation.records if isinstance(r, ClassificationRecord)]
    certainty = Section(
        "certainty", "Scores", (_scores(records), class_bars(evaluation, "top1", "Top-1 by class"))
    )
    counts = _confusion([r.label for r in records], [r.best for r in records], len(classes))
    other = "other class" if counts[:, -1].any() else ""
    wrong = sorted((r for r in records if r.best != r.label), key=lambda r: (-(r.score or 0.0), r.name))
    shots = tuple(GalleryImage(r.name, r.size, (), _prediction_text(r, classes)) for r in wrong[:MOST])
    worst = WorstImages("The wrong predictions with the highest scores.", shots)
    lead = "The top-1 class of each image."
    confusion = confusion_section(counts, classes, lead=lead, unit="images", extra=("", other))
    return [certainty, class_section(evaluation.result), confusion], worst


def class_bars(evaluation: Evaluation, key: str, title: str) -> Figure:
    """One number of every class as bars, the best class first."""
    rows = [(str(row["class"]), row.get(key)) for row in evaluation.result.get("per_class", [])]
    order = sorted(rows, key=lambda row: (row[1] is None, -(row[1] or 0.0)))
    values = [value for _, value in rows if value is not None]
    mean = float(np.mean(values)) if values else None
    chart = bar_chart([Bar(*row) for row in order], title=title, desc="Best class first.", mean=mean)
    note = f"Best class first. The line is the mean over classes{f', {mean:.3f}' if values else ''}."
    return Figure(title, scroll(chart, title), note)


def _confusion(true: Sequence[int] | Ints, predicted: Sequence[int] | Ints, classes: int) -> Ints:
    """(classes, classes + 1): true class against predicted class; the last column is any other one, −1."""
    table = np.zeros((classes, classes + 1), np.int64)
    np.add.at(table, (np.asarray(true, np.int64), np.asarray(predicted, np.int64)), 1)
    return table


def _scores(records: list[ClassificationRecord]) -> Figure:
    right = true_class_ranks(records)[0] == 0
    scores = np.array([r.score or 0.0 for r in records], np.float64)
    inside = not len(scores) or (scores.min() >= 0 and scores.max() <= 1)
    x_range = (0.0, 1.0) if inside else (float(scores.min()), float(scores.max()) + 1e-9)
    title, desc = "Top-1 score", f"{int(right.sum())} correct, {int((~right).sum())} wrong."
    kinds = Kind("correct", "right", scores[right]), Kind("wrong", "wrong", scores[~right])
    chart = histogram(*kinds, title=title, desc=desc, x_label="score", x_range=x_range, height=360.0)
    return Figure(title, chart, "Scores of correct and of wrong predictions.")


def _prediction_text(record: ClassificationRecord, classes: tuple[str, ...]) -> str:
    place = int(true_class_ranks([record])[0][0])
    name = classes[record.best] if record.best >= 0 else "a class the dataset does not have"
    rank = f"rank {place + 1}" if place < len(record.top) else f"not in the top {len(record.top)}"
    return f"true: {classes[record.label]} ({rank}); predicted: {name} ({record.score or 0.0:.2f})"


def single_sections(evaluation: Evaluation) -> tuple[list[Section], WorstImages]:
    """The sections of a single-object detector's page, and its worst images."""
    classes = evaluation.about.classes
    records = [r for r in evaluation.records if isinstance(r, DetectionRecord)]
    values, labels = single_outputs(records)
    predicted = np.array([_predicted_class(r) for r in records], np.int64)
    # IoU of the one detection with the true box, whatever its class.
    boxes = [(r.detections.boxes[:1], r.truth.xyxy) for r in records]
    overlap = np.array([iou(*pair)[0, 0] if len(pair[0]) else 0.0 for pair in boxes], np.float64)
    bars = class_bars(evaluation, "iou_equal", "IoU × class by class")
    equal = predicted == labels
    title = "IoU of the box with the true box"
    kinds = Kind("correct class", "right", overlap[equal]), Kind("wrong class", "wrong", overlap[~equal])
    chart = histogram(*kinds, title=title, x_label="IoU", height=360.0)
    note = "One box per image, by whether its class is correct. A wrong class counts as 0 in the metric."
    overview = Section("overlap", "Overlap", (Figure(title, chart, note), bars))
    counts = _confusion(labels, predicted, len(classes))
    extra = ("", "missed" if counts[:, -1].any() else "")
    lead = "The object of each image."
    confusion = confusion_section(counts, classes, lead=lead, unit="images", extra=extra)
    order = [i for i in np.lexsort((overlap, values))[:MOST].tolist() if values[i] < 1.0]
    shots = tuple(_shot(records[i], float(values[i]), float(overlap[i]), classes) for i in order)
    worst = WorstImages("Ranked by IoU × [class equal], lowest first; ties by IoU.", shots)
    return [overview, class_section(evaluation.result), confusion], worst


def _predicted_class(record: DetectionRecord) -> int:
    """The class of the one detection, or −1 (the last column) without one."""
    return int(record.detections.classes[0]) if len(record.detections) else -1


def _shot(record: DetectionRecord, value: float, overlap: float, classes: tuple[str, ...]) -> GalleryImage:
    true, predicted = int(record.truth.classes[0]), _predicted_class(record)
    marks = [Mark.of(record.truth.xyxy[0], "truth" if predicted >= 0 else "missed", classes[true])]
    text = "no detection"
    if predicted >= 0:
        name = f"{classes[predicted]} {record.detections.scores[0]:.2f}"
        marks.append(Mark.of(record.detections.boxes[0], "right" if predicted == true else "wrong", name))
        text = f"IoU {overlap:.3f}, {'correct' if predicted == true else 'wrong'} class"
    return GalleryImage(record.name, record.size, tuple(marks), f"IoU × class {value:.3f}: {text}")


def segment_sections(evaluation: Evaluation) -> tuple[list[Section], WorstImages]:
    """The sections of a segmenter's page, and its worst images."""
    classes = evaluation.about.classes
    records = [r for r in evaluation.records if isinstance(r, SegmentationRecord)]
    means = np.array([segmentation_result(r.confusion).mean_iou for r in records], np.float64)
    total = sum((r.confusion for r in records), np.zeros((len(classes),) * 2, np.int64))
    title = "Mean IoU of each image"
    known = Kind("images", "right", means[np.isfinite(means)])
    chart = histogram(known, None, title=title, x_label="mean IoU of the image")
    note = "The mean over the classes in the ground truth or the prediction of the image."
    bars = class_bars(evaluation, "IoU", "IoU by class")
    overview = Section("overlap", "Overlap", (bars, Figure(title, chart, note)))
    lead = "All pixels of all images, without those that the ground truth marks as ignored."
    confusion = confusion_section(total, classes, lead=lead, unit="pixels", shares=True)
    lowest = [(records[i], float(means[i])) for i in np.argsort(means, kind="stable")[:MOST] if means[i] < 1]
    shots = tuple(GalleryImage(r.name, r.size, (), _mask_text(r, mean, classes)) for r, mean in lowest)
    definition = "Ranked by mean IoU of the image, lowest first. "
    definition += "A run stores pixel counts, not masks, so none are drawn."
    return [overview, class_section(evaluation.result), confusion], WorstImages(definition, shots)


def _mask_text(record: SegmentationRecord, mean: float, classes: tuple[str, ...]) -> str:
    values = segmentation_result(record.confusion).iou
    known = [i for i in np.argsort(values, kind="stable").tolist() if np.isfinite(values[i])]
    weakest = ", ".join(f"{classes[i]} {values[i]:.2f}" for i in known[:3])
    return f"mean IoU {mean:.3f}; lowest: {weakest}"
