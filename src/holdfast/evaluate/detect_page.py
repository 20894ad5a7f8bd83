"""The page of a detector: curves, what became of every box, confusions, worst images."""

from dataclasses import dataclass

import numpy as np

from holdfast.core.types import Bools, Floats, Ints
from holdfast.engine.records import Found
from holdfast.evaluate.class_pages import class_section, confusion_section
from holdfast.evaluate.result import Evaluation
from holdfast.evaluate.score import tables
from holdfast.metrics.coco import AREAS
from holdfast.metrics.curves import Curve, hundred_one_points
from holdfast.metrics.detection import DetectionResult, confusion, evaluate, passes
from holdfast.metrics.matching import FALSE_POSITIVE, TRUE_POSITIVE, match
from holdfast.metrics.rules import rule_named
from holdfast.report.charts.bars import Bar, Stack, bar_chart, stacked_chart
from holdfast.report.charts.histogram import Kind, histogram
from holdfast.report.charts.lines import ChartLine, line_chart, thinned
from holdfast.report.gallery import MOST, GalleryImage, Mark, MarkKind, WorstImages
from holdfast.report.parts import Figure, Section, scroll
from holdfast.report.tables import grouped

_MOST_LINES = 100
_NAMED = 6  # so many classes or fewer: each line has its colour
_WEAKEST = 3  # else these many of the weakest are named


@dataclass(frozen=True)
class MatchedDetections:
    """The records of a detector, and all that its rule makes of them."""

    records: tuple[Found, ...]
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


def detected(evaluation: Evaluation) -> MatchedDetections:
    """The matches and curves behind the numbers, computed again from the records by the same rule."""
    about = evaluation.about
    records = tuple(r for r in evaluation.records if isinstance(r, Found))
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
    d = detected(evaluation)
    total = d.result.counts.total()
    right, false, missed = (grouped(int(column[0])) for column in (total.tp, total.fp, total.fn))
    counted = f"{right} right, {false} false and {missed} missed, by {d.overlap}."
    lead = (
        f"At {d.at} and {d.overlap}. A detection of the wrong class on a true box is a confusion; one that "
        "lies on no free true box is background, a second box on the same object, or badly placed."
    )
    return [
        Section("curves", "Precision and recall", (_curves(d), _bars(d))),
        class_section(
            evaluation.result, f"TP, FP, FN, precision, recall and F1 are at {d.at} and {d.overlap}."
        ),
        Section("threshold", f"At {d.at}", (_scores(d), _fit(d), _fate(d), _sizes(d)), counted),
        confusion_section(
            d.result.confusion, d.classes, lead=lead, unit="boxes", extra=("no object", "missed")
        ),
    ], worst(d)


def _curves(d: MatchedDetections) -> Figure:
    present = [i for i, c in enumerate(d.result.curves) if c.positives]
    weakest = sorted(present, key=lambda i: (d.result.ap[i], -d.result.curves[i].positives, i))
    named = weakest if len(present) <= _NAMED else weakest[:_WEAKEST]
    shown = weakest[:_MOST_LINES]
    bins = 150 if len(shown) <= 30 else 75
    lines = [
        ChartLine(
            d.classes[i],
            *_drawn(d.result.curves[i], bins),
            colour=named.index(i) + 1 if i in named else 0,
            note=f"AP {d.result.ap[i]:.3f}",
        )
        for i in shown
    ]
    if len(present) > 1:
        mean = np.mean([hundred_one_points(d.result.curves[i]) for i in present], axis=0)
        note = f"mAP {d.result.mean_ap:.3f}"
        lines.append(ChartLine("mean of all classes", np.linspace(0, 1, 101), mean, bold=True, note=note))
    title = f"Precision over recall at {d.overlap}"
    desc = f"One line for each of {len(shown)} classes; mean average precision {d.result.mean_ap:.3f}."
    chart = line_chart(lines, title=title, desc=desc, x_label="recall", y_label="precision")
    note = "The mean is over classes, of the largest precision at or beyond each recall."
    if len(present) > _NAMED:
        note += f" The {_WEAKEST} weakest classes are named; rest the pointer on a line to see which it is."
    return Figure(title, chart, note)


def _drawn(curve: Curve, bins: int) -> tuple[Floats, Floats]:
    """Recall and precision as drawn; without end points, the curve begins on the axis."""
    recall, precision = curve.points()
    if len(recall) and not curve.end_points:
        recall, precision = np.r_[0.0, recall], np.r_[precision[0], precision]
    return thinned(recall, precision, bins)


def _bars(d: MatchedDetections) -> Figure:
    order = sorted(range(len(d.classes)), key=lambda i: (np.isnan(d.result.ap[i]), -d.result.ap[i], i))
    bars = [
        Bar(d.classes[i], float(d.result.ap[i]), f"{int(d.result.matches.positives[i]):,} true boxes")
        for i in order
    ]
    title = f"AP by class at {d.overlap}"
    chart = bar_chart(bars, title=title, desc="Best class first.", mean=d.result.mean_ap)
    kind, mean = d.result.rule.interpolation, d.result.mean_ap
    note = f"{kind} average precision, best class first; the line is the mean, {mean:.3f}."
    return Figure(title, scroll(chart, title), note)


def _fates(table: Ints) -> tuple[int, int, int, int]:
    """How many boxes of a confusion table are right, of another class, missed and false."""
    right = int(np.trace(table[:-1, :-1]))
    return right, int(table[:-1, :-1].sum()) - right, int(table[:-1, -1].sum()), int(table[-1, :-1].sum())


def _fate(d: MatchedDetections) -> Figure:
    right, mixed, missed, false = _fates(d.result.confusion)
    stacks = [Stack("true boxes", (right, mixed, missed)), Stack("detections", (right, mixed, false))]
    kinds = [("right", "right"), ("mixed", "of another class"), ("wrong", "missed, or nothing there")]
    title = "What became of every box"
    chart = stacked_chart(stacks, kinds, title=title, desc=f"{right} right, {mixed} confused.")
    return Figure(title, chart, "Every true box, and every detection at or above the threshold.")


def _scores(d: MatchedDetections) -> Figure:
    m = d.result.matches
    right = Kind("right", "right", m.score[m.outcome == TRUE_POSITIVE])
    false = Kind("false", "wrong", m.score[m.outcome == FALSE_POSITIVE])
    title = "Scores of right and false detections"
    chart = histogram(
        right,
        false,
        title=title,
        x_label="score",
        line=d.result.score,
        logarithmic=True,
        desc=f"{len(right.values)} right, {len(false.values)} false detections at any score.",
    )
    return Figure(
        title, chart, "All detections at any score; the line is the threshold. The farther apart, the better."
    )


def _sizes(d: MatchedDetections) -> Figure:
    counted, area = d.result.matches.counted, d.result.truth.area
    missed = _missed(d)
    stacks = []
    for name in ("small", "medium", "large"):
        low, high = AREAS[name]
        inside = counted & (area >= low) & ((area < high) | (name == "large"))
        stacks.append(Stack(name, (int((inside & ~missed).sum()), int((inside & missed).sum()))))
    title = "Found and missed by size"
    chart = stacked_chart(stacks, [("right", "found"), ("wrong", "missed")], title=title)
    return Figure(title, chart, "Area of the true box: small below 32², large from 96² pixels.")


def _fit(d: MatchedDetections) -> Figure:
    overlap = Kind("right", "right", d.result.matches.overlap[_passing(d, TRUE_POSITIVE)])
    mean = f"; mean {float(overlap.values.mean()):.3f}" if len(overlap.values) else ""
    title = "How tightly the boxes fit"
    low = min(d.result.iou, 0.95)
    chart = histogram(overlap, None, title=title, x_label="IoU with the true box", x_range=(low, 1.0))
    return Figure(title, chart, f"IoU of each right detection with its true box{mean}.")


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
    """The images with the most missed boxes and confident false detections."""
    images, missed, found = len(d.records), _missed(d), d.result.detections
    false = d.result.matches.detection[_passing(d, FALSE_POSITIVE)]
    error = np.bincount(d.result.truth.image[missed], minlength=images).astype(np.float64)
    error += np.bincount(found.image[false], found.score[false], minlength=images)
    order = [i for i in np.argsort(-error, kind="stable")[:MOST].tolist() if error[i] > 0]
    definition = (
        f"Ranked by the number of true boxes missed plus the scores of the false detections at {d.at}; "
        "a box found with the wrong class counts as both."
    )
    return WorstImages(definition, tuple(_shot(d, i, float(error[i]), missed) for i in order))


def _shot(d: MatchedDetections, image: int, error: float, missed: Bools) -> GalleryImage:
    record, m, truth, found = d.records[image], d.result.matches, d.result.truth, d.result.detections
    kind: MarkKind
    marks = []
    for row in np.flatnonzero(truth.image == image).tolist():
        kind = "missed" if missed[row] else "truth" if m.counted[row] else "ignored"
        text = d.classes[truth.category[row]] if missed[row] else ""
        marks.append(Mark.of(truth.xyxy[row], kind, text))
    here = (m.image == image) & passes(m.score, d.result.score, d.result.rule)
    for row, outcome in zip(m.detection[here].tolist(), m.outcome[here].tolist(), strict=True):
        kind = "right" if outcome == TRUE_POSITIVE else "wrong" if outcome == FALSE_POSITIVE else "ignored"
        text = f"{d.classes[found.category[row]]} {found.score[row]:.2f}"
        marks.append(Mark.of(found.xyxy[row], kind, text))
    return GalleryImage(record.name, record.size, tuple(marks), f"error {error:.2f}: {_said(d, record)}")


def _said(d: MatchedDetections, record: Found) -> str:
    """What is wrong on one image, in words."""
    truth, found = tables([record])
    r, n = d.result, len(d.classes)
    matches = match(truth, found, r.rule, r.iou, images=1, classes=n)
    table = confusion(truth, found, matches, r.rule, r.iou, r.score, images=1)
    right, mixed, missed, false = _fates(table)
    counts = {"missed": missed, "of the wrong class": mixed, "false": false, "right": right}
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "nothing found"
