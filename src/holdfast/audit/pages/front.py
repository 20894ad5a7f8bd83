"""The first screen of an audit: gates, the verdict in five lines, the bounds, the matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from holdfast.audit.gates import count_verdicts, measured_text
from holdfast.audit.pages.verdict import (
    between,
    effect_of,
    points,
    rule_name,
    skip_reason,
    under,
    verdict,
    worst_cell,
)
from holdfast.audit.result import NO_THREAT, TRAINED, Audit, MatrixCell, RobustnessBounds
from holdfast.audit.values import some
from holdfast.metrics.intervals import FEWEST
from holdfast.metrics.points import facing, is_gain, is_indication
from holdfast.report.charts.bars import bounds_bar
from holdfast.report.charts.matrix import DENSE, CellMark, HeatCell, MatrixHead, heat, scale
from holdfast.report.parts import fragment
from holdfast.report.tables import many, shown

if TYPE_CHECKING:
    from holdfast.audit.gates import GateVerdict

_BROAD = 11  # deployments from which on the matrix has the whole width
_EFFECTS = {
    "magnified": (CellMark("▲", "magnified", "more"),),
    "overlaps": (CellMark("▽", "overlaps", "less"),),
}


def front(audit: Audit, judged: Sequence[GateVerdict] = ()) -> str:
    """The markup of the first screen."""
    gates = [_gate(verdict) for verdict in judged]
    tones = {gate["tone"] for gate in gates}
    commands = {p.threat: p.command for p in audit.proofs if p.command}
    commands |= {s.threat: s.command for s in audit.all_attacks if s.command}
    counts = {bounds.images for bounds in audit.bounds}
    images = f"n = {counts.pop()}" if len(counts) == 1 else "n per threat"
    return fragment(
        "audit.html",
        gates=gates,
        gates_tone=next((tone for tone in ("bad", "open") if tone in tones), "good"),
        gates_summary=count_verdicts(judged),
        lines=verdict(audit),
        bounds=[_bounds(bounds) for bounds in audit.bounds],
        bounds_lead=f"Certified ≤ true robustness ≤ not broken by any attack ({images}).",
        commands=[(b.threat, commands[b.threat]) for b in audit.bounds if b.threat in commands],
        no_bounds=f"{skip_reason(audit, 'attack', 'squares').capitalize()}.",
        **_matrix(audit),
    )


def _gate(judged: GateVerdict) -> dict[str, Any]:
    value = "" if judged.value is None else measured_text(judged, lambda value: shown(value, -4))
    if value and judged.end == "point":
        value = f"measured {value}"
    images = "" if judged.images is None or not judged.decided else f"n = {judged.images}"
    details = "; ".join(text for text in (value, images, judged.reason) if text)
    tone = "bad" if judged.failed else "good" if judged.decided else "open"
    return {"text": judged.gate.text, "tone": tone, "verdict": judged.verdict, "details": details}


def _bounds(bounds: RobustnessBounds) -> dict[str, Any]:
    low, high = bounds.certified, bounds.attacked
    bar = bounds_bar(low, high - low, bounds.images - high, bounds.threat)
    span = f"exactly {low}" if low == high else f"{low} to {high}"
    few = is_indication(bounds.images)
    engines = f"certified by: {bounds.prover or '–'}; attacked with: {bounds.attacker or '–'}"
    if bounds.prover and bounds.prover == bounds.attacker:
        engines = f"certified and attacked by: {bounds.prover}"
    return {
        "name": bounds.threat,
        "words": bounds.words,
        "range": f"{span} of {many(bounds.images, 'image')}{', indication' if few else ''}",
        "few": few,
        "bar": Markup(bar),  # noqa: S704 (every text in it is escaped)
        "engines": engines,
    }


def _matrix(audit: Audit) -> dict[str, Any]:
    matrix, alone = audit.matrix, tuple(audit.matrix.threats) in ((), (NO_THREAT,))
    table, legend, lead = "", "", f"{skip_reason(audit, 'matrix').capitalize()}."
    if matrix.cells:
        whole, lead = matrix.at(NO_THREAT, TRAINED), _lead(audit)
        clean = whole.value if whole is not None and whole.value else audit.clean.value
        fields = [[_field(matrix.at(t, d), clean) for d in matrix.deployments] for t in matrix.threats]
        words = {s.threat: s.words for s in audit.all_attacks}
        words |= {bounds.threat: bounds.words for bounds in audit.bounds}
        names = {NO_THREAT: "no threat"}
        rows = [MatrixHead(names.get(t, t), "", words.get(t, "")) for t in matrix.threats]
        columns = [_column(d) for d in matrix.deployments]
        table = heat(rows, columns, fields, corner="threat", caption=lead)
        legend = scale(f"lost, relative to the clean {clean:.3f}")
    return {
        "matrix_title": "Deployments" if alone else "Threat × deployment",
        "matrix": Markup(table),  # noqa: S704
        "matrix_command": next((m.command for m in matrix.cells if m.command), audit.command),
        "broad": len(matrix.deployments) > _BROAD,
        "keys": _keys(audit),
        "scale": Markup(legend),  # noqa: S704
        "matrix_lead": lead,
    }


def _column(deployment: str) -> MatrixHead:
    count = deployment.count(" + ") + 1
    if count > 1:
        return MatrixHead(f"{count} combined", "", deployment)
    family, equals, option = deployment.partition("=")
    if not equals:
        return MatrixHead(deployment)
    return MatrixHead(option.removeprefix(f"{family}-"), family, deployment)


def _lead(audit: Audit) -> str:
    counts = sorted({m.images for m in audit.matrix.cells if m.value is not None})
    images = many(counts[-1], "image") if counts else "no image"
    if len(counts) > 1:
        images = f"{counts[0]} to {images}"
    if counts and is_indication(counts[-1]):
        images += " (an indication)"
    how = " under each deployment"
    if any(t != NO_THREAT for t in audit.matrix.threats):
        how = ". Each threat was computed for the training pipeline and replayed under each deployment"
    rule = rule_name(audit)
    text = f"{audit.clean.title}{f' ({rule})' if rule else ''} on {images}{how}."
    worst = worst_cell(audit)
    if worst is not None and worst.value is not None:
        text += f" Lowest value: {worst.value:.3f}, {worst.threat} {under(worst.deployment)}."
    return text


def _field(cell: MatrixCell | None, clean: float) -> HeatCell:
    if cell is None or cell.value is None:
        return HeatCell("–", None, (CellMark("", "not run"),), cell.note if cell else "")
    lost = (clean - cell.value) / clean if clean > 0 else 0.0
    marks, share = [], f"{cell.still_broken}/{cell.broken_in_training}"
    if cell.broken_in_training and cell.deployment == TRAINED:
        marks.append(CellMark(f"✕ {cell.broken_in_training}", f"breaks {cell.broken_in_training}"))
    elif cell.broken_in_training:
        marks.append(CellMark(share, f"breaks {share}"))
    # The tooltip repeats the table of all cells.
    details = [f"{cell.threat} under {cell.deployment}: {cell.value:.4f} (n = {cell.images})"]
    if cell.extra_points_lost is not None and cell.low is not None and cell.high is not None:
        extra, (low, high) = cell.extra_points_lost, facing(cell.extra_points_lost, cell.low, cell.high)
        more = "fewer" if is_gain(extra) else "more"
        interval = between(low or 0.0, high or 0.0)
        details.append(f"{points(abs(extra))} {more} points lost than by both alone {interval}")
    tip = "; ".join(filter(None, (*details, cell.note)))
    return HeatCell(f"{cell.value:.3f}", lost, (*marks, *_EFFECTS.get(effect_of(cell), ())), tip)


def _keys(audit: Audit) -> list[str]:
    """The meaning of the marks that occur, and why cells are empty."""
    cells, keys = audit.matrix.cells, []
    broken = [m for m in cells if m.broken_in_training]
    trained = next((m.broken_in_training for m in broken if m.deployment == TRAINED), None)
    if trained is not None and len(audit.matrix.deployments) > DENSE:
        keys.append(f"✕ {trained}: images that the threat breaks under the training pipeline.")
    if (other := next((m for m in broken if m.deployment != TRAINED), None)) is not None:
        keys.append(
            f"{other.still_broken}/{other.broken_in_training}: images broken under this deployment, of those "
            "that the threat breaks under the training pipeline."
        )
    effects = {effect_of(m) for m in cells}
    if "magnified" in effects:
        keys.append("▲ magnified: more points lost than the sum of both alone (95% interval above 0).")
    if "overlaps" in effects:
        keys.append("▽ overlaps: fewer points lost than the sum of both alone (95% interval below 0).")
    if any(m.effect and not effect_of(m) for m in cells):
        keys.append(f"With fewer than {FEWEST} images, interactions of threat and deployment are not judged.")
    several = [d for d in audit.matrix.deployments if " + " in d]
    keys += [f"{_column(d).name}: {d.replace(' + ', ', ')}." for d in several]
    why: dict[str, list[str]] = {}
    for m in cells:
        if m.value is None:
            why.setdefault(m.note or "no reason given", []).append(f"{m.threat} under {m.deployment}")
    keys += [f"– not run: {some(names)}: {note}." for note, names in why.items()]
    keys += [f"{note.rstrip('.')}." for note in audit.matrix.notes]
    return keys
