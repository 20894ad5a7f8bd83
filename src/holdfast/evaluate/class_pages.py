"""The pages of classifiers, single-object detectors and segmenters, and what all pages say of classes."""

from collections.abc import Sequence
from operator import methodcaller
from typing import Any

import numpy as np

from holdfast.core.types import Ints
from holdfast.engine.records import Counted, Found, Ranked
from holdfast.evaluate.result import Evaluation
from holdfast.evaluate.score import places, single_outputs
from holdfast.metrics.boxes import iou
from holdfast.metrics.classification import segmentation_result
from holdfast.report.charts.bars import Bar, bar_chart
from holdfast.report.charts.histogram import Kind, histogram
from holdfast.report.charts.matrix import matrix_chart
from holdfast.report.gallery import MOST, GalleryImage, Mark, WorstImages
from holdfast.report.parts import Figure, Section, scroll
from holdfast.report.tables import Column, Table, to_html

# The heading and the meaning of each column that is known; others appear under their own key.
_COLUMNS = {
    "AP": ("AP", "average precision by the rule above"),
    "AP50": ("AP50", "average precision at IoU 0.5"),
    "AP75": ("AP75", "average precision at IoU 0.75"),
    "truth": ("truth", "true objects of this class"),
    "found": ("found", "detections of this class at any score"),
    "tp": ("TP", "right detections at the score threshold"),
    "fp": ("FP", "wrong detections at the score threshold"),
    "fn": ("FN", "true objects missed at the score threshold"),
    "precision": ("precision", "tp / (tp + fp)"),
    "recall": ("recall", "tp / (tp + fn)"),
    "f1": ("F1", "2 tp / (2 tp + fp + fn)"),
    "IoU": ("IoU", "TP / (TP + FP + FN) over all pixels"),
    "pixels": ("pixels", "true pixels of this class"),
    "top1": ("top-1", "share whose best answer is right"),
    "iou_equal": ("IoU × equal", "mean of IoU with the true box, 0 if the class is wrong"),
    "above_half": ("above ½", "share of images with IoU × equal above 0.5"),
    "top5": ("top-5", "share with the true class among the best five"),
}
_FIRST = ("class", "AP", "AP50", "AP75", "truth", "found", "tp", "fp", "fn", "precision", "recall", "f1")
MOST_CLASSES = 100  # a larger matrix is cut to the classes with the most errors
_MOST_PAIRS = 12


def class_section(result: dict[str, Any], lead: str = "") -> Section:
    """The section with the table of all classes: the columns people read first, then those of the result."""
    rows = result.get("per_class", [])
    keys: list[str] = list(dict.fromkeys(key for row in rows for key in row))
    ordered: list[str] = [k for k in _FIRST if k in keys] + [k for k in keys if k not in _FIRST]
    columns = []
    for key in ordered:
        name, note = _COLUMNS.get(key, (key, ""))
        columns.append(Column(name, get=methodcaller("get", key), note=note))
    table = Table.of(rows, columns)
    body = scroll(to_html(table), "Numbers per class")
    note = "Click a heading to sort; n/a: there is nothing to measure."
    return Section("classes", "Class by class", (Figure("", body, note, wide=True),), lead)


def confusion_section(
    counts: Ints,
    classes: Sequence[str],
    *,
    lead: str,
    unit: str,
    extra: tuple[str, str] = ("", ""),
    shares: bool = False,
) -> Section:
    """Matrix and list of a table of true class (row) against answer (column).

    `extra` names a last row and a last column that are no class, where the table has them.
    """
    kept, note = _kept(counts, len(classes))
    places = [kept + ([len(classes)] if name else []) for name in extra]
    rows, columns = ([classes[i] for i in kept] + ([name] if name else []) for name in extra)
    title = "Confusion matrix"
    chart = matrix_chart(
        counts[np.ix_(*places)],
        rows,
        columns,
        title=title,
        desc=f"{len(rows)} rows (truth) by {len(columns)} columns (answer), in {unit}.",
        classes=len(kept),
        shares=shares,
    )
    numbers = "percent of the row" if shares else unit
    reading = f"Rows: what is true. Columns: what was said. Numbers: {numbers}. Colour: share of the row."
    wide = len(columns) > 7  # a small one leaves room for the list beside it
    matrix = Figure(title, scroll(chart, title), f"{reading} {note}".strip(), wide)
    pairs = _pairs(counts, classes, unit, wide)
    return Section("confusion", "What is taken for what", (matrix, *pairs), lead)


def _kept(counts: Ints, classes: int) -> tuple[list[int], str]:
    """The classes that are drawn: those that occur, and of many those with the most errors."""
    true, said = counts[:classes].sum(axis=1), counts[:, :classes].sum(axis=0)
    wrong = true + said - 2 * np.diagonal(counts)[:classes]
    seen = np.flatnonzero(true + said > 0)
    chosen = np.sort(seen[np.argsort(-wrong[seen], kind="stable")[:MOST_CLASSES]])
    notes = []
    if len(chosen) < len(seen):
        notes.append(f"Only the {MOST_CLASSES} classes with the most errors are drawn.")
    if len(seen) < classes:
        absent = classes - len(seen)
        notes.append(f"{absent} classes that occur neither in the truth nor in the answers are left out.")
    return chosen.tolist(), " ".join(notes)


def _pairs(counts: Ints, classes: Sequence[str], unit: str, wide: bool) -> tuple[Figure, ...]:
    """The most frequent mistakes between two classes, if there are any."""
    n = len(classes)
    inner = counts[:n, :n].copy()
    np.fill_diagonal(inner, 0)
    whole = counts[:n].sum(axis=1)
    best = [divmod(int(k), n) for k in np.argsort(-inner, axis=None, kind="stable")[:_MOST_PAIRS]]
    pairs = [(i, j) for i, j in best if inner[i, j]]
    if not pairs:
        return ()
    title = "Most frequent confusions"
    share = Column("share", note=f"of the {unit} of the true class")
    rows = [[classes[i], classes[j], inner[i, j], inner[i, j] / whole[i]] for i, j in pairs]
    body = to_html(Table(["true", "taken for", unit, share], rows))
    return (Figure(title, scroll(body, title), wide=wide),)


def classify_sections(evaluation: Evaluation) -> tuple[list[Section], WorstImages]:
    """The sections of a classifier's page, and its worst images."""
    classes = evaluation.about.classes
    records = [r for r in evaluation.records if isinstance(r, Ranked)]
    certainty = Section(
        "certainty", "Right and wrong", (_scores(records), class_bars(evaluation, "top1", "Top-1 by class"))
    )
    counts = _confusion([r.label for r in records], [r.best for r in records], len(classes))
    other = "other class" if counts[:, -1].any() else ""
    wrong = sorted((r for r in records if r.best != r.label), key=lambda r: (-_score(r), r.name))
    shots = tuple(GalleryImage(r.name, r.size, (), _answer_text(r, classes)) for r in wrong[:MOST])
    worst = WorstImages("The wrong answers it was most certain of, by the score of the best answer.", shots)
    lead = "The best answer of each image."
    confusion = confusion_section(counts, classes, lead=lead, unit="images", extra=("", other))
    return [certainty, class_section(evaluation.result), confusion], worst


def class_bars(evaluation: Evaluation, key: str, title: str) -> Figure:
    """One number of every class as bars, best first."""
    rows = [(str(row["class"]), row.get(key)) for row in evaluation.result.get("per_class", [])]
    order = sorted(rows, key=lambda row: (row[1] is None, -(row[1] or 0.0)))
    values = [value for _, value in rows if value is not None]
    mean = float(np.mean(values)) if values else None
    chart = bar_chart([Bar(*row) for row in order], title=title, desc="Best class first.", mean=mean)
    note = f"Best class first; the line is the mean of the classes{f', {mean:.3f}' if values else ''}."
    return Figure(title, scroll(chart, title), note)


def _score(record: Ranked) -> float:
    return float(record.scores[0]) if len(record.scores) else 0.0


def _confusion(true: Sequence[int] | Ints, said: Sequence[int] | Ints, classes: int) -> Ints:
    """(classes, classes + 1): true class against the answer; the last column is any other answer, −1."""
    table = np.zeros((classes, classes + 1), np.int64)
    np.add.at(table, (np.asarray(true, np.int64), np.asarray(said, np.int64)), 1)
    return table


def _scores(records: list[Ranked]) -> Figure:
    right = places(records)[0] == 0
    scores = np.array([_score(r) for r in records], np.float64)
    inside = not len(scores) or (scores.min() >= 0 and scores.max() <= 1)
    title, desc = "Score of the best answer", f"{int(right.sum())} right, {int((~right).sum())} wrong."
    chart = histogram(
        Kind("right", "right", scores[right]),
        Kind("wrong", "wrong", scores[~right]),
        title=title,
        desc=desc,
        x_label="score",
        x_range=(0.0, 1.0) if inside else (float(scores.min()), float(scores.max()) + 1e-9),
        height=360.0,
    )
    return Figure(title, chart, "How certain it is when it is right, and when it is wrong.")


def _answer_text(record: Ranked, classes: tuple[str, ...]) -> str:
    place = int(places([record])[0][0])
    name = classes[record.best] if record.best >= 0 else "a class the data does not have"
    known = place < len(record.top)
    rank = f"number {place + 1}" if known else f"not among the best {len(record.top)}"
    return f"true: {classes[record.label]}; said: {name} ({_score(record):.2f}); the true class is {rank}"


def single_sections(evaluation: Evaluation) -> tuple[list[Section], WorstImages]:
    """The sections of a single-object detector's page, and its worst images."""
    classes = evaluation.about.classes
    records = [r for r in evaluation.records if isinstance(r, Found)]
    values, labels = single_outputs(records)
    said = np.array([_said_class(r) for r in records], np.int64)
    # IoU of the one detection with the true box, whatever its class.
    boxes = [(r.detections.boxes[:1], r.truth.xyxy) for r in records]
    overlap = np.array([iou(*pair)[0, 0] if len(pair[0]) else 0.0 for pair in boxes], np.float64)
    bars = class_bars(evaluation, "iou_equal", "IoU × equal by class")
    equal = said == labels
    title = "IoU of the box with the true box"
    right, wrong = Kind("right class", "right", overlap[equal]), Kind("wrong class", "wrong", overlap[~equal])
    chart = histogram(right, wrong, title=title, x_label="IoU", height=360.0)
    note = "One box an image, by whether its class is right; a wrong class counts as 0."
    overview = Section("overlap", "Overlap", (Figure(title, chart, note), bars))
    counts = _confusion(labels, said, len(classes))
    nothing = "nothing" if counts[:, -1].any() else ""
    lead = "The one object of each image."
    confusion = confusion_section(counts, classes, lead=lead, unit="images", extra=("", nothing))
    order = [i for i in np.lexsort((overlap, values))[:MOST].tolist() if values[i] < 1.0]
    shots = tuple(_shot(records[i], float(values[i]), float(overlap[i]), classes) for i in order)
    worst = WorstImages("Ranked by IoU × [class equal], lowest first; equal ones by IoU.", shots)
    return [overview, class_section(evaluation.result), confusion], worst


def _said_class(record: Found) -> int:
    """The class of the one detection, or −1 (the last column) without one."""
    return int(record.detections.classes[0]) if len(record.detections) else -1


def _shot(record: Found, value: float, overlap: float, classes: tuple[str, ...]) -> GalleryImage:
    true, found = int(record.truth.classes[0]), _said_class(record)
    marks = [Mark.of(record.truth.xyxy[0], "truth" if found >= 0 else "missed", classes[true])]
    said = "nothing found"
    if found >= 0:
        name = f"{classes[found]} {record.detections.scores[0]:.2f}"
        marks.append(Mark.of(record.detections.boxes[0], "right" if found == true else "wrong", name))
        said = f"IoU {overlap:.3f}, {'right' if found == true else 'wrong'} class"
    return GalleryImage(record.name, record.size, tuple(marks), f"IoU × equal {value:.3f}: {said}")


def segment_sections(evaluation: Evaluation) -> tuple[list[Section], WorstImages]:
    """The sections of a segmenter's page, and its worst images."""
    classes = evaluation.about.classes
    records = [r for r in evaluation.records if isinstance(r, Counted)]
    means = np.array([segmentation_result(r.confusion).mean_iou for r in records], np.float64)
    total = (
        np.sum([r.confusion for r in records], axis=0) if records else np.zeros((len(classes),) * 2, np.int64)
    )
    title = "Mean IoU of each image"
    known = Kind("images", "right", means[np.isfinite(means)])
    chart = histogram(known, None, title=title, x_label="mean IoU of the image")
    note = "The mean over the classes that occur in the image's truth or answer."
    bars = class_bars(evaluation, "IoU", "IoU by class")
    overview = Section("overlap", "Overlap", (bars, Figure(title, chart, note)))
    lead = "All pixels of all images; pixels the truth marks as to be ignored are left out."
    confusion = confusion_section(total, classes, lead=lead, unit="pixels", shares=True)
    shots = tuple(
        GalleryImage(records[i].name, records[i].size, (), _mask_text(records[i], float(means[i]), classes))
        for i in np.argsort(means, kind="stable")[:MOST].tolist()
        if means[i] < 1.0
    )
    definition = (
        "Ranked by mean IoU of the image, lowest first. "
        "A run keeps the counts of pixels, not the masks, so none is drawn."
    )
    return [overview, class_section(evaluation.result), confusion], WorstImages(definition, shots)


def _mask_text(record: Counted, mean: float, classes: tuple[str, ...]) -> str:
    values = segmentation_result(record.confusion).iou
    known = [i for i in np.argsort(values, kind="stable").tolist() if np.isfinite(values[i])]
    weakest = ", ".join(f"{classes[i]} {values[i]:.2f}" for i in known[:3])
    return f"mean IoU {mean:.3f}; lowest: {weakest}"
