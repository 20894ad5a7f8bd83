"""The steps from detections to average precision for one class, as data and as plain text."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple, get_args

import numpy as np

from holdfast.core.errors import InputError
from holdfast.metrics.boxes import DetectionTable, TruthTable, detection_table, truth_table
from holdfast.metrics.curves import Curve, average_precision, eleven_points, trapezoid_area
from holdfast.metrics.detection import class_curves, passes
from holdfast.metrics.matching import FALSE_POSITIVE, IGNORED, TRUE_POSITIVE, Matches, match
from holdfast.metrics.rules import RULES, APRule, Interpolation


@dataclass(frozen=True)
class ExplainedDetection:
    """One detection, best score first: its true box, its outcome with the reason, and the running sums."""

    place: int
    detection: int
    image: int
    score: float
    truth: int
    iou: float
    outcome: str
    why: str
    tp: int
    fp: int
    precision: float
    recall: float


class ThresholdRow(NamedTuple):
    """The counts of all detections that pass one score threshold."""

    score: float
    tp: int
    fp: int
    fn: int
    precision: float
    recall: float


class RecallPoint(NamedTuple):
    """Precision read at recall k/10, and the number of hits that this recall needs."""

    tenth: int
    hits_needed: int
    precision: float


@dataclass(frozen=True)
class Explanation:
    """Everything behind the AP of one class."""

    class_name: str
    rule: APRule
    iou: float
    positives: int
    steps: tuple[ExplainedDetection, ...]
    points: tuple[RecallPoint, ...]
    ap: float
    by_interpolation: dict[str, float]  # the AP of the same curve with other interpolations

    def at(self, score: float) -> ThresholdRow:
        """The counts at any score threshold, by the rule's > or ≥."""
        passing = passes(np.array([step.score for step in self.steps], dtype=np.float64), score, self.rule)
        last = int(passing.sum())  # scores are in descending order, so the passing ones come first
        tp, fp = (self.steps[last - 1].tp, self.steps[last - 1].fp) if last else (0, 0)
        precision, recall = _quotient(tp, tp + fp), _quotient(tp, self.positives)
        return ThresholdRow(score, tp, fp, fn=self.positives - tp, precision=precision, recall=recall)

    @property
    def thresholds(self) -> list[ThresholdRow]:
        """The counts at the score thresholds 1.00, 0.99 … 0.00."""
        return [self.at(k / 100) for k in range(100, -1, -1)]


def explain(
    truth: TruthTable,
    detections: DetectionTable,
    rule: APRule,
    *,
    images: int,
    class_names: Sequence[str],
    iou: float,
    class_index: int = 0,
) -> Explanation:
    """The AP of one class under the rule, with every step that leads to it."""
    if not 0 <= class_index < len(class_names):
        raise InputError(f"class index: expected 0 to {len(class_names) - 1}, got {class_index}")
    matches = match(truth, detections, rule, iou, images=images, classes=len(class_names))
    curve = class_curves(matches, rule)[class_index]
    averages = {name: average_precision(curve, name) for name in get_args(Interpolation)}
    lines = trapezoid_area(curve) if curve.positives else float("nan")
    return Explanation(
        class_name=class_names[class_index],
        rule=rule,
        iou=iou,
        positives=curve.positives,
        steps=_steps(matches, rule, iou, class_index),
        points=_points(curve),
        ap=averages[rule.interpolation],
        by_interpolation={**averages, "straight lines": lines},
    )


def _steps(matches: Matches, rule: APRule, iou: float, class_index: int) -> tuple[ExplainedDetection, ...]:
    at = np.flatnonzero(matches.category == class_index)
    positives = int(matches.positives[class_index])
    tp = np.cumsum(matches.outcome[at] == TRUE_POSITIVE).tolist()
    fp = np.cumsum(matches.outcome[at] == FALSE_POSITIVE).tolist()
    words = {TRUE_POSITIVE: "TP", FALSE_POSITIVE: "FP", IGNORED: "ignored"}
    return tuple(
        ExplainedDetection(
            place=place,
            detection=int(matches.detection[i]),
            image=int(matches.image[i]),
            score=float(matches.score[i]),
            truth=int(matches.truth[i] if matches.truth[i] >= 0 else matches.best[i]),
            iou=float(matches.overlap[i]),
            outcome=words[int(matches.outcome[i])],
            why=_why(matches, i, rule, iou),
            tp=hits,
            fp=misses,
            precision=_quotient(hits, hits + misses),
            recall=_quotient(hits, positives),
        )
        for place, (i, hits, misses) in enumerate(zip(at.tolist(), tp, fp, strict=True), 1)
    )


def _why(matches: Matches, i: int, rule: APRule, iou: float) -> str:
    sign = ">" if rule.iou_strict else "≥"
    outcome, overlap = int(matches.outcome[i]), float(matches.overlap[i])
    if outcome == IGNORED:
        return f"matches an ignored box (IoU {overlap:.3f})"
    if outcome == TRUE_POSITIVE:
        second = matches.truth[i] != matches.best[i]
        more = " (its best box was already matched, so it matched the next)" if second else ""
        return f"IoU {overlap:.3f} {sign} {iou:g}, box not matched before{more}"
    if matches.best[i] < 0:
        return "overlaps no true box of its class in this image: IoU 0"
    if overlap > iou or (overlap == iou and not rule.iou_strict):
        reason = "but a detection with a higher score already matched the box"
        return f"IoU {overlap:.3f} {sign} {iou:g}, {reason}"
    return f"IoU {overlap:.3f} is not {sign} {iou:g}"


def _points(curve: Curve) -> tuple[RecallPoint, ...]:
    if not curve.positives:
        return ()
    values = eleven_points(curve).tolist()
    # k/10 of n true boxes, rounded up, in integers
    return tuple(RecallPoint(k, -(-k * curve.positives // 10), values[k]) for k in range(11))


def _quotient(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")


def explanation_text(
    e: Explanation,
    *,
    scores: Sequence[float] = (),
    truth_names: Sequence[str] = (),
    detection_names: Sequence[str] = (),
    image_names: Sequence[str] = (),
    limit: int = 40,
) -> str:
    """The explanation in words and tables; at most `limit` detections are listed."""
    size = f"{e.positives} true boxes, {len(e.steps)} detections"
    parts = [
        f"Class {e.class_name!r}: {size}, IoU threshold {e.iou:g}\nRule {e.rule}",
        _steps_text(e, truth_names, detection_names, image_names, limit),
    ]
    sign = ">" if e.rule.score_strict else "≥"
    for score in scores:
        _, tp, fp, fn, *_ = e.at(score)
        shares = f"precision {_fraction(tp, tp + fp)}, recall {_fraction(tp, e.positives)}"
        parts.append(f"At score {sign} {score:g}: TP {tp}, FP {fp}, FN {fn}; {shares}")
    parts.append(_thresholds_text(e, sign))
    if e.points:
        rows = [[f"{k / 10:.1f}", f"{hits} of {e.positives}", f"{value:.4f}"] for k, hits, value in e.points]
        title = "3. Eleven recalls: the largest precision at that recall or a higher one"
        if e.rule.end_points:
            title += "\n   The curve also contains (recall 0, precision 1) and (recall 1, precision 0)."
        parts.append(f"{title}\n" + table(["recall ≥", "hits needed", "precision"], rows))
    if not e.positives:
        return "\n\n".join([*parts, "AP: n/a (no true boxes of this class)"])
    others = ", ".join(f"{name} {value:.4f}" for name, value in e.by_interpolation.items())
    ap = f"AP {e.ap:.4f} by {e.rule.interpolation}. Other averages of the same curve: {others}."
    return "\n\n".join([*parts, ap, averages_text(e)])


def averages_text(e: Explanation) -> str:
    """Why eleven points and all points give different averages of the same curve."""
    values = [point.precision for point in e.points]
    levels = [(value, len(list(group))) for value, group in groupby(values)]
    eleven = " + ".join(f"{count} × {value:.4f}" for value, count in levels)
    hits = max((step.tp for step in e.steps), default=0)
    best = [max(s.precision for s in e.steps if s.tp >= k) for k in range(1, hits + 1)]
    steps = [(value, len(list(group))) for value, group in groupby(best)]
    area = " + ".join(f"{count}/{e.positives} × {value:.4f}" for value, count in steps) or "0"
    reached = sum(point.hits_needed <= hits for point in e.points)
    last = f"{hits}/{e.positives} = {_number(_quotient(hits, e.positives))}"
    return (
        f"4. Why the averages differ\n   Eleven points: ({eleven}) / 11 = {sum(values) / 11:.4f}. "
        f"{reached} of the 11 recalls 0, 0.1 … 1 are at or below\n   the largest recall, {last}; recall that "
        "is reached between two of them does not count, and recall 0 counts as one.\n"
        f"   All points: each step of recall, 1/{e.positives}, times the largest precision at it or beyond: "
        f"{area} = {sum(best) / e.positives:.4f}."
    )


def _steps_text(
    e: Explanation, truths: Sequence[str], detections: Sequence[str], images: Sequence[str], limit: int
) -> str:
    rows = []
    for step in e.steps[:limit]:
        where = f" in {_name(images, step.image, '#')}" if images else ""
        who = _name(detections, step.detection, "#") + where
        true_box = _name(truths, step.truth, "box ") if step.truth >= 0 else "–"
        cells = (str(step.place), f"{step.score:.4g}", who, true_box, f"{step.iou:.3f}", step.outcome)
        sums = (str(step.tp), str(step.fp), _number(step.precision), _number(step.recall))
        rows.append((*cells, *sums, step.why))
    header = ["", "score", "detection", "true box", "IoU", "", "TP", "FP", "precision", "recall", "why"]
    text = "1. Detections by descending score; precision = TP/(TP+FP), recall = TP/(TP+FN) so far\n"
    text += table(header, rows)
    hidden = len(e.steps) - limit
    return text + (f"\n   … and {hidden} more" if hidden > 0 else "")


def _thresholds_text(e: Explanation, sign: str) -> str:
    rows = []
    for (tp, fp), group in groupby(e.thresholds, key=lambda row: (row.tp, row.fp)):
        first, *others = group
        span = f"{first.score:.2f} … {others[-1].score:.2f}" if others else f"{first.score:.2f}"
        shares = _number(first.precision), _number(first.recall)
        rows.append([span, str(tp), str(fp), str(first.fn), *shares])
    title = f"2. Score threshold from 1.00 down to 0.00 in steps of 0.01 (counts where score {sign} it)"
    return f"{title}\n" + table(["threshold", "TP", "FP", "FN", "precision", "recall"], rows)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The rows as aligned columns of text, each line indented by three blanks."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in [header, *rows]]
    return "\n".join(f"   {line}" for line in lines)


def _name(names: Sequence[str], index: int, prefix: str) -> str:
    return names[index] if index < len(names) else f"{prefix}{index}"


def _number(value: float) -> str:
    return "n/a" if value != value else f"{value:.4f}"


def _fraction(part: int, whole: int) -> str:
    return f"{part}/{whole} = {part / whole:.4g}" if whole else "n/a (0/0)"


# The worked example of the lecture on 2D object detection: one road scene, one class. The lecture gives the
# counts at two score thresholds and says AP 0.75; boxes and scores here are our own, placed so that every
# count comes out, and in the one order of hits and misses in which the area under the curve is exactly 0.75
# (see docs/explanation/ap-rules.md).
_CARS = ((80, 300, 280, 420), (330, 310, 450, 390), (520, 320, 600, 380), (960, 330, 1040, 380))
_DETECTED = {
    "on car A": (0.98, (84, 302, 282, 422)),
    "on car B": (0.94, (334, 312, 452, 392)),
    "on car C": (0.88, (523, 322, 605, 382)),
    "on the truck's front": (0.86, (680, 180, 880, 400)),
    "next to car D": (0.74, (975, 335, 1065, 385)),
}
LECTURE_TRUTH = truth_table([0] * 4, [0] * 4, xyxy=_CARS)
LECTURE_DETECTIONS = detection_table(
    [0] * 5, [0] * 5, [score for score, _ in _DETECTED.values()], xyxy=[box for _, box in _DETECTED.values()]
)
LECTURE_SCORES = (0.9, 0.7)
LECTURE_IOU = 0.7


def explain_lecture() -> Explanation:
    """The AP of the lecture's example."""
    rule = RULES["lecture"]
    return explain(LECTURE_TRUTH, LECTURE_DETECTIONS, rule, images=1, class_names=("car",), iou=LECTURE_IOU)


def lecture_text(e: Explanation) -> str:
    """The explanation of the lecture's example with its title and the names of its boxes."""
    names = ("car A", "car B", "car C", "car D")
    text = explanation_text(e, scores=LECTURE_SCORES, truth_names=names, detection_names=tuple(_DETECTED))
    return f"Example of the lecture: four cars, five detections, one of them the front of a truck\n\n{text}"
