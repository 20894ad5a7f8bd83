"""The explanation as plain text, for a terminal or a file."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.metrics.explain import Explanation, Step, ThresholdRow


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
    parts = [
        _heading(e),
        _steps_text(e, truth_names, detection_names, image_names, limit),
        *(_counts_text(e, score) for score in scores),
        _thresholds_text(e),
        _points_text(e),
        _result_text(e),
    ]
    return "\n\n".join(part for part in parts if part)


def _heading(e: Explanation) -> str:
    size = f"{e.positives} true boxes, {len(e.steps)} detections"
    return f"Class {e.class_name!r}: {size}, IoU threshold {e.iou:g}\nRule {e.rule}"


def _steps_text(
    e: Explanation,
    truth_names: Sequence[str],
    detection_names: Sequence[str],
    image_names: Sequence[str],
    limit: int,
) -> str:
    rows = []
    for step in e.steps[:limit]:
        who = _name(detection_names, step.detection, "#")
        if image_names:
            who = f"{who} in {_name(image_names, step.image, '#')}"
        met = _name(truth_names, step.truth, "box ") if step.truth >= 0 else "–"
        rows.append([
            str(step.place), f"{step.score:.4g}", who, met, f"{step.iou:.3f}", step.outcome,
            str(step.tp), str(step.fp), _number(step.precision), _number(step.recall), step.why,
        ])  # fmt: skip
    header = ["", "score", "detection", "true box", "IoU", "", "TP", "FP", "precision", "recall", "why"]
    text = "1. Detections by falling score; precision = TP/(TP+FP), recall = TP/(TP+FN) so far\n"
    text += table(header, rows)
    hidden = len(e.steps) - limit
    return text + (f"\n   … and {hidden} more" if hidden > 0 else "")


def _counts_text(e: Explanation, score: float) -> str:
    row = e.at(score)
    sign = ">" if e.rule.score_strict else "≥"
    return (
        f"At score {sign} {score:g}: TP {row.tp}, FP {row.fp}, FN {row.fn}; "
        f"precision {_fraction(row.tp, row.tp + row.fp)}, recall {_fraction(row.tp, e.positives)}"
    )


def _thresholds_text(e: Explanation) -> str:
    rows = [
        [
            f"{group[0].score:.2f}" if len(group) == 1 else f"{group[0].score:.2f} … {group[-1].score:.2f}",
            str(group[0].tp), str(group[0].fp), str(group[0].fn),
            _number(group[0].precision), _number(group[0].recall),
        ]
        for group in _grouped(e.thresholds)
    ]  # fmt: skip
    sign = ">" if e.rule.score_strict else "≥"
    return (
        f"2. Score threshold from 1.00 down to 0.00 in steps of 0.01 (counts where score {sign} it)\n"
        + table(["threshold", "TP", "FP", "FN", "precision", "recall"], rows)
    )


def _points_text(e: Explanation) -> str:
    if not e.points:
        return ""
    rows = [
        [f"{p.tenth / 10:.1f}", f"{p.hits_needed} of {e.positives}", f"{p.precision:.4f}"] for p in e.points
    ]
    title = "3. Eleven recalls: the largest precision at that recall or a higher one"
    ends = (
        "\n   The curve also holds (recall 0, precision 1) and (recall 1, precision 0)." * e.rule.end_points
    )
    return f"{title}{ends}\n" + table(["recall ≥", "hits needed", "precision"], rows)


def _result_text(e: Explanation) -> str:
    if not e.positives:
        return "AP: n/a (no true boxes of this class)"
    others = ", ".join(f"{name} {value:.4f}" for name, value in e.by_interpolation.items())
    return f"AP {e.ap:.4f} by {e.rule.interpolation}. The same curve averaged otherwise: {others}."


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The rows as aligned columns of text, each line indented by three blanks."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in [header, *rows]
    ]
    return "\n".join("   " + line.rstrip() for line in lines)


def _grouped(rows: Sequence[ThresholdRow]) -> list[list[ThresholdRow]]:
    """Neighbouring thresholds with the same counts together."""
    groups: list[list[ThresholdRow]] = []
    for row in rows:
        if groups and (groups[-1][0].tp, groups[-1][0].fp) == (row.tp, row.fp):
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups


def _name(names: Sequence[str], index: int, prefix: str) -> str:
    return names[index] if index < len(names) else f"{prefix}{index}"


def _number(value: float) -> str:
    return "n/a" if value != value else f"{value:.4f}"


def _fraction(part: int, whole: int) -> str:
    return f"{part}/{whole} = {part / whole:.4g}" if whole else "n/a (0/0)"


def step_rows(steps: Sequence[Step]) -> list[dict[str, object]]:
    """The steps as plain rows, for JSON and CSV."""
    return [{name: getattr(step, name) for name in Step.__dataclass_fields__} for step in steps]
