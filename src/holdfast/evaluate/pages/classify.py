"""The page of a classifier: classes, certainty of right and wrong answers, confusions, worst images."""

from __future__ import annotations

import numpy as np

from holdfast.core.types import Ints
from holdfast.engine.records import Ranked
from holdfast.evaluate.pages.confusion import confusion_section
from holdfast.evaluate.pages.per_class import class_section
from holdfast.evaluate.result import Evaluation
from holdfast.evaluate.score import places
from holdfast.report.charts.bars import Bar, bar_chart
from holdfast.report.charts.histogram import Kind, histogram
from holdfast.report.gallery import MOST, Shot, Worst
from holdfast.report.parts import Figure, Section, scroll


def sections(evaluation: Evaluation) -> tuple[list[Section], Worst]:
    """The sections of a classifier's page, and its worst images."""
    classes = evaluation.about.classes
    records = [r for r in evaluation.records if isinstance(r, Ranked)]
    certainty = Section(
        "certainty", "Right and wrong", (_scores(records), class_bars(evaluation, "top1", "Top-1 by class"))
    )
    counts = _confusion(records, len(classes))
    other = "other class" if counts[:, -1].any() else ""
    lead = "The best answer of each image."
    confusion = confusion_section(counts, classes, lead=lead, unit="images", extra=("", other))
    return [certainty, class_section(evaluation.result), confusion], _worst(records, classes)


def class_bars(evaluation: Evaluation, key: str, title: str) -> Figure:
    """One number of every class as bars, best first."""
    rows = [(str(row["class"]), row.get(key)) for row in evaluation.result.get("per_class", [])]
    order = sorted(rows, key=lambda row: (row[1] is None, -(row[1] or 0.0)))
    values = [value for _, value in rows if value is not None]
    mean = float(np.mean(values)) if values else None
    chart = bar_chart([Bar(*row) for row in order], title=title, desc="Best class first.", mean=mean)
    note = f"Best class first; the line is the mean of the classes{f', {mean:.3f}' if values else ''}."
    return Figure(title, scroll(chart, title), note)


def _first(record: Ranked) -> int:
    return int(record.top[0]) if len(record.top) else -1


def _score(record: Ranked) -> float:
    return float(record.scores[0]) if len(record.scores) else 0.0


def _confusion(records: list[Ranked], classes: int) -> Ints:
    """(classes, classes + 1): true class against best answer; the last column is any other class."""
    table = np.zeros((classes, classes + 1), np.int64)
    for record in records:
        table[record.label, _first(record)] += 1
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


def _worst(records: list[Ranked], classes: tuple[str, ...]) -> Worst:
    wrong = sorted((r for r in records if _first(r) != r.label), key=lambda r: (-_score(r), r.name))
    shots = [Shot(r.name, r.size, (), _said(r, classes)) for r in wrong[:MOST]]
    return Worst("The wrong answers it was most certain of, by the score of the best answer.", tuple(shots))


def _said(record: Ranked, classes: tuple[str, ...]) -> str:
    first, place = _first(record), int(places([record])[0][0])
    name = classes[first] if first >= 0 else "a class the data does not have"
    known = place < len(record.top)
    rank = f"number {place + 1}" if known else f"not among the best {len(record.top)}"
    return f"true: {classes[record.label]}; said: {name} ({_score(record):.2f}); the true class is {rank}"
