"""The sections of a detector's page: curves, outcome of every box, confusions, worst images."""

from dataclasses import dataclass

import numpy as np

from holdfast.core.types import Bools, Floats, Ints
from holdfast.engine.records import DetectionRecord
from holdfast.evaluate.class_pages import class_section, confusion_section
from holdfast.evaluate.result import Evaluation
from holdfast.evaluate.score import tables
from holdfast.metrics.coco import AREAS
from holdfast.metrics.curves import Curve, hundred_one_points
from holdfast.metrics.detection import DetectionResult, evaluate, passes
from holdfast.metrics.matching import FALSE_POSITIVE, TRUE_POSITIVE
from holdfast.metrics.rules import rule_named
from holdfast.report.charts.bars import Bar, Stack, bar_chart, stacked_chart
from holdfast.report.charts.histogram import Kind, histogram
from holdfast.report.charts.lines import ChartLine, line_chart, thinned
from holdfast.report.gallery import MOST, GalleryImage, Mark, MarkKind, WorstImages
from holdfast.report.parts import Figure, Section, scroll
from holdfast.report.tables import grouped

_MOST_LINES = 100
_NAMED = 6  # up to this many classes each line has its own colour
_WEAKEST = 3  # with more classes, this many of the weakest are named


@dataclass(frozen=True)
class MatchedDetections:
    """The records of a detector, and their matches and curves by the rule."""

    records: tuple[DetectionRecord, ...]
    classes: tuple[str, ...]
    result: DetectionResult

    @property
    def at(self) -> str:
        """The score threshold in words."""
        return f"score {'>' if self.result.rule.score_strict else '≥'} {self.result.score:g}"

    @property
    def overlap(self) -> str:
        """The IoU threshold in words."""
        return f"IoU {'>' if self.result.rule.iou_strict else '≥'} {self.result.iou:g}"


def matched_detections(evaluation: Evaluation) -> MatchedDetections:
    """The matches and curves behind the numbers, recomputed from the records by the same rule."""
    about = evaluation.about
    records = tuple(r for r in evaluation.records if isinstance(r, DetectionRecord))
    settings = about.settings
    result = evaluate(
        *tables(records),
        rule_named(settings.get("rule", "coco")),
        images=len(records),
        classes=len(about.classes),
        iou=settings.get("iou", 0.5),
        score=settings.get("score", 0.5),
    )
    return MatchedDetections(records, about.classes, result)


def sections(evaluation: Evaluation) -> tuple[list[Section], WorstImages]:
    """The sections of a detector's page, and its worst images."""
    d = matched_detections(evaluation)
    total = d.result.counts.total()
    right, false, missed = (grouped(int(column[0])) for column in (total.tp, total.fp, total.fn))
    counted = f"{right} true positives, {false} false positives and {missed} missed objects at {d.overlap}."
    lead = (
        f"At {d.at} and {d.overlap}. A detection of the wrong class on a true box is a confusion. One "
        "that matches no free true box is background, a duplicate, or badly placed."
    )
    return [
        curve_section(d),
        class_section(
            evaluation.result, f"TP, FP, FN, precision, recall and F1 are at {d.at} and {d.overlap}."
        ),
        Section(
            "threshold",
            f"At {d.at}",
            (_score_figure(d), _iou_figure(d), _outcome_figure(d), _size_figure(d)),
            counted,
        ),
        confusion_section(
            d.result.confusion, d.classes, lead=lead, unit="boxes", extra=("background", "missed")
        ),
    ], worst(d)


def curve_section(d: MatchedDetections) -> Section:
    """Precision over recall, and AP by class."""
    return Section("curves", "Precision and recall", (_curve_figure(d), _ap_figure(d)))


def _curve_figure(d: MatchedDetections) -> Figure:
    present = [i for i, c in enumerate(d.result.curves) if c.positives]
    weakest = sorted(present, key=lambda i: (d.result.ap[i], -d.result.curves[i].positives, i))
    named = weakest if len(present) <= _NAMED else weakest[:_WEAKEST]
    shown = weakest[:_MOST_LINES]
    bins = 150 if len(shown) <= 30 else 75
    lines = []
    for i in shown:
        colour, note = named.index(i) + 1 if i in named else 0, f"AP {d.result.ap[i]:.3f}"
        points = _drawn_points(d.result.curves[i], bins)
        lines.append(ChartLine(d.classes[i], *points, colour=colour, note=note))
    if len(present) > 1:
        mean = np.mean([hundred_one_points(d.result.curves[i]) for i in present], axis=0)
        note = f"mAP {d.result.mean_ap:.3f}"
        lines.append(ChartLine("mean of all classes", np.linspace(0, 1, 101), mean, bold=True, note=note))
    title = f"Precision over recall at {d.overlap}"
    desc = f"One line for each of {len(shown)} classes; mean average precision {d.result.mean_ap:.3f}."
    chart = line_chart(lines, title=title, desc=desc, x_label="recall", y_label="precision")
    note = f"Rule {d.result.rule.name}, n = {d.result.images}. The bold line is the mean over classes of the "
    note += "largest precision at or beyond each recall."
    if len(present) > _NAMED:
        note += f" The {_WEAKEST} weakest classes are named; hover over a line to see its class."
    return Figure(title, chart, note)


def _drawn_points(curve: Curve, bins: int) -> tuple[Floats, Floats]:
    """Recall and precision as drawn; without end points, the curve begins on the axis."""
    recall, precision = curve.points()
    if len(recall) and not curve.end_points:
        recall, precision = np.r_[0.0, recall], np.r_[precision[0], precision]
    return thinned(recall, precision, bins)


def _ap_figure(d: MatchedDetections) -> Figure:
    ap, boxes = d.result.ap, d.result.matches.positives
    order = sorted(range(len(d.classes)), key=lambda i: (np.isnan(ap[i]), -ap[i], i))
    bars = [Bar(d.classes[i], float(ap[i]), f"{int(boxes[i]):,} true boxes") for i in order]
    title = f"AP by class at {d.overlap}"
    chart = bar_chart(bars, title=title, desc="Best class first.", mean=d.result.mean_ap)
    kind, mean = d.result.rule.interpolation, d.result.mean_ap
    note = f"{kind} AP, rule {d.result.rule.name}, best class first. The line is the mean, {mean:.3f}."
    return Figure(title, scroll(chart, title), note)


def _outcomes(table: Ints) -> tuple[int, int, int, int]:
    """The numbers of boxes of a confusion table: correct, wrong class, missed, false positive."""
    right = int(np.trace(table[:-1, :-1]))
    return right, int(table[:-1, :-1].sum()) - right, int(table[:-1, -1].sum()), int(table[-1, :-1].sum())


def _outcome_figure(d: MatchedDetections) -> Figure:
    right, mixed, missed, false = _outcomes(d.result.confusion)
    stacks = [Stack("true boxes", (right, mixed, missed)), Stack("detections", (right, mixed, false))]
    kinds = [("right", "correct"), ("mixed", "wrong class"), ("wrong", "missed, or background")]
    title = "Outcome of every box"
    chart = stacked_chart(stacks, kinds, title=title, desc=f"{right} correct, {mixed} of the wrong class.")
    return Figure(title, chart, f"All true boxes, and all detections at {d.at}.")


def _score_figure(d: MatchedDetections) -> Figure:
    m = d.result.matches
    right = Kind("true positives", "right", m.score[m.outcome == TRUE_POSITIVE])
    false = Kind("false positives", "wrong", m.score[m.outcome == FALSE_POSITIVE])
    title = "Scores of true and false positives"
    desc = f"{len(right.values)} true positives, {len(false.values)} false positives at any score."
    line = d.result.score
    chart = histogram(right, false, title=title, desc=desc, x_label="score", line=line, logarithmic=True)
    return Figure(title, chart, "All detections at any score. The line is the score threshold.")


def _size_figure(d: MatchedDetections) -> Figure:
    counted, area = d.result.matches.counted, d.result.truth.area
    missed = _missed(d)
    stacks = []
    for name in ("small", "medium", "large"):
        low, high = AREAS[name]
        inside = counted & (area >= low) & ((area < high) | (name == "large"))
        stacks.append(Stack(name, (int((inside & ~missed).sum()), int((inside & missed).sum()))))
    title = "Detected and missed objects by size"
    chart = stacked_chart(stacks, [("right", "detected"), ("wrong", "missed")], title=title)
    return Figure(title, chart, "Area of the true box: small below 32², large from 96² pixels.")


def _iou_figure(d: MatchedDetections) -> Figure:
    overlap = Kind("true positives", "right", d.result.matches.overlap[_passing(d, TRUE_POSITIVE)])
    mean = f"; mean {float(overlap.values.mean()):.3f}" if len(overlap.values) else ""
    title = "IoU of true positives"
    low = min(d.result.iou, 0.95)
    chart = histogram(overlap, None, title=title, x_label="IoU with the true box", x_range=(low, 1.0))
    return Figure(title, chart, f"IoU of each true positive with its true box{mean}.")


def _passing(d: MatchedDetections, outcome: int) -> Bools:
    """Which detections of that outcome pass the score threshold."""
    m = d.result.matches
    return np.asarray(passes(m.score, d.result.score, d.result.rule) & (m.outcome == outcome))


def _missed(d: MatchedDetections) -> Bools:
    """Which true boxes count and are not found at the score threshold."""
    missed = d.result.matches.counted.copy()
    missed[d.result.matches.truth[_passing(d, TRUE_POSITIVE)]] = False
    return missed


def worst(d: MatchedDetections) -> WorstImages:
    """The images with the most missed objects and the highest-scored false positives."""
    images, missed, detections = len(d.records), _missed(d), d.result.detections
    false = d.result.matches.detection[_passing(d, FALSE_POSITIVE)]
    error = np.bincount(d.result.truth.image[missed], minlength=images).astype(np.float64)
    error += np.bincount(detections.image[false], detections.score[false], minlength=images)
    order = [i for i in np.argsort(-error, kind="stable")[:MOST].tolist() if error[i] > 0]
    definition = (
        f"Ranked by the number of missed objects plus the scores of false positives at {d.at}; "
        "an object detected with the wrong class counts as both."
    )
    return WorstImages(definition, tuple(_shot(d, i, float(error[i]), missed) for i in order))


def _shot(d: MatchedDetections, image: int, error: float, missed: Bools) -> GalleryImage:
    record, m, truth, detections = d.records[image], d.result.matches, d.result.truth, d.result.detections
    kind: MarkKind
    marks = []
    for row in np.flatnonzero(truth.image == image).tolist():
        kind = "missed" if missed[row] else "truth" if m.counted[row] else "ignored"
        text = d.classes[truth.category[row]] if missed[row] else ""
        marks.append(Mark.of(truth.xyxy[row], kind, text))
    here = (m.image == image) & passes(m.score, d.result.score, d.result.rule)
    for row, outcome in zip(m.detection[here].tolist(), m.outcome[here].tolist(), strict=True):
        kind = "right" if outcome == TRUE_POSITIVE else "wrong" if outcome == FALSE_POSITIVE else "ignored"
        text = f"{d.classes[detections.category[row]]} {detections.score[row]:.2f}"
        marks.append(Mark.of(detections.xyxy[row], kind, text))
    text = f"error {error:.2f}: {_error_text(d, record)}"
    return GalleryImage(record.name, record.size, tuple(marks), text)


def _error_text(d: MatchedDetections, record: DetectionRecord) -> str:
    """The errors on one image, in words."""
    truth, found = tables([record])
    r, n = d.result, len(d.classes)
    here = evaluate(truth, found, r.rule, images=1, classes=n, iou=r.iou, score=r.score)
    right, mixed, missed, false = _outcomes(here.confusion)
    counts = {"missed": missed, "of the wrong class": mixed, "false positive": false, "correct": right}
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "no detection"
